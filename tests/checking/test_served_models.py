"""A check of a model behind a server that misbehaves: nothing that it answers is believed unseen."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from lm_eval.api.registry import model_registry
from lm_eval.models.openai_completions import LocalCompletionsAPI

from lm_eval_leakage.jobs.driver import check
from tests.checking.conftest import NamedFake, questions, written
from tests.harness.fake_completions import FAULTS, ByteCompletions, FakeServer, serving

pytestmark = pytest.mark.usefixtures("only_given_tasks", "fakes")


def accuracies(folder: Path, server: FakeServer, out: str) -> list[object]:
    """The log-likelihoods of the run without an audit."""
    with serving(server) as url:
        check(
            model="served",
            model_args={"base_url": url, "max_retries": 2},
            tasks=str(folder / "quiz.jsonl"),
            output_path=folder / out,
        )
    (log,) = (folder / out).rglob("samples_quiz_2*.jsonl")
    return [json.loads(line)["filtered_resps"] for line in log.read_text().splitlines()]


@pytest.mark.parametrize("fault", ["no log-probabilities", "a positive log-probability", "a choice twice"])
def test_a_faulty_response_to_the_run_itself_is_asked_for_again(
    fakes: type[NamedFake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    monkeypatch.setitem(model_registry._objs, "served", ByteCompletions)
    written(tmp_path, questions(4, n_options=3))
    right = accuracies(tmp_path, FakeServer(), "right")
    unpatched = inspect.unwrap(LocalCompletionsAPI._loglikelihood_tokens)  # as in a new process
    monkeypatch.setattr(LocalCompletionsAPI, "_loglikelihood_tokens", unpatched)
    assert accuracies(tmp_path, FakeServer(FAULTS[fault], lambda number, _: number == 2), "faulty") == right
