"""A check of a model behind a server that misbehaves: nothing that it answers is believed unseen."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.registry import model_registry
from lm_eval.models.openai_completions import LocalCompletionsAPI

from lm_eval_leakage.jobs.check import check
from lm_eval_leakage.jobs.outcome import CheckOutcome
from tests.checking.conftest import NamedFake, questions, written
from tests.harness.fake_completions import FAULTS, ByteCompletions, FakeServer, in_logprobs, serving

pytestmark = pytest.mark.usefixtures("only_given_tasks", "fakes")


N_OF_PROOF = 2  # requests before everything else


def checked(folder: Path, server: FakeServer, out: str = "out", **given: Any) -> CheckOutcome:
    with serving(server) as url:
        return check(
            model="served",
            model_args={"base_url": url, "max_retries": 2},
            tasks=str(folder / "quiz.jsonl"),
            output_path=folder / out,
            **given,
        )


def accuracies(folder: Path, server: FakeServer, out: str) -> list[object]:
    """The log-likelihoods of the run without an audit."""
    checked(folder, server, out)
    (log,) = (folder / out).rglob("samples_quiz_2*.jsonl")
    return [json.loads(line)["filtered_resps"] for line in log.read_text().splitlines()]


@pytest.mark.parametrize("fault", ["no log-probabilities", "a positive log-probability", "a choice twice"])
def test_a_faulty_response_to_the_run_itself_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    monkeypatch.setitem(model_registry._objs, "served", ByteCompletions)
    written(tmp_path, questions(4, n_options=3))
    right = accuracies(tmp_path, FakeServer(), "right")
    unpatched = inspect.unwrap(LocalCompletionsAPI._loglikelihood_tokens)  # as in a new process
    monkeypatch.setattr(LocalCompletionsAPI, "_loglikelihood_tokens", unpatched)
    assert accuracies(tmp_path, FakeServer(FAULTS[fault], lambda number, _: number == N_OF_PROOF), "faulty") == right


@pytest.fixture
def served(fakes: type[NamedFake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(model_registry._objs, "served", ByteCompletions)
    written(tmp_path, questions(4, n_options=3))
    return tmp_path


def test_a_server_without_echo_is_reported_after_one_request_and_before_anything_is_written(served: Path) -> None:
    generated_only = in_logprobs(
        lambda columns: columns.update({name: column[-1:] for name, column in columns.items()})
    )
    server = FakeServer(generated_only)
    with pytest.raises(ValueError, match="does not give the log-probabilities of a text that audits need: the server"):
        checked(served, server)
    assert server.n_asked == 1
    assert not [*(served / "out").rglob("*.jsonl")]


def test_a_server_is_proven_once_per_check_and_not_by_a_dry_run(served: Path) -> None:
    server, said = FakeServer(), list[str]()
    checked(served, server, dry_run=True, say=said.append)
    assert server.n_asked == 0
    with serving(server) as url:
        given = {"model_args": {"base_url": url}, "tasks": str(served / "quiz.jsonl"), "output_path": served / "out"}
        check(model="served", **given, say=said.append)
        n_asked = server.n_asked
        check(model="served", **given, say=said.append)
    assert sum("returns log-probabilities of a given text" in text for text in said) == 1
    assert server.n_asked == n_asked


def test_more_tokens_than_may_be_asked_are_refused_before_any_request_of_an_audit(served: Path) -> None:
    server = FakeServer()
    with pytest.raises(
        ValueError, match="max_tokens_asked is 50, but the requests that are left have about .* tokens"
    ):
        checked(served, server, max_tokens_asked=50)
    assert server.n_asked == N_OF_PROOF
    with serving(server) as url:
        given = {"model_args": {"base_url": url}, "tasks": str(served / "quiz.jsonl"), "output_path": served / "out"}
        done = check(model="served", **given, max_tokens_asked=10**6)
        assert (done.n_done, done.unfinished) == (done.n_units, ())
        assert check(model="served", **given, max_tokens_asked=1).verdicts  # what is done does not count
