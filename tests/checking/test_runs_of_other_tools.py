"""A check takes the accuracy from a log of another tool."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.steps import StepStatus
from tests.checking.conftest import checked, questions, statuses, written
from tests.logs.inspect_stand_in import install, log_of, sample, scored

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks", "fakes")]

DOCS = questions(60)
N_RIGHT = 17


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write logs of the model's answers to 50 questions of the benchmark and one of another, with options in another
    order."""
    rng = random.Random(1)

    def logged_sample(number: int, doc: dict[str, Any]) -> dict[str, Any]:
        score = scored("C" if number < N_RIGHT else "I")
        return sample(number, input=doc["question"], choices=rng.sample(doc["choices"], 4), **score)

    other = logged_sample(50, questions(1, seed=7)[0])
    install(
        monkeypatch, {"x.eval": log_of([*map(logged_sample, range(50), DOCS), other], model="hf/m", task="a_quiz")}
    )
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "x.eval").touch()
    return tmp_path / "logs"


def test_the_model_is_asked_only_the_audits_of_the_questions_that_the_log_has(tmp_path: Path, logs: Path) -> None:
    written(tmp_path, DOCS)
    outcome = checked(tmp_path, runs=logs)
    assert [statuses(outcome)[step] for step in ("accuracy", "option orders")] == [StepStatus.THERE, StepStatus.TO_RUN]
    (verdict,) = outcome.verdicts
    assert (verdict.task, verdict.metric) == ("quiz", "acc,choice")
    assert verdict.accuracy == pytest.approx(N_RIGHT / 51)
    (row,) = [row for annotation in outcome.annotations for row in annotation.rows if row.task == "quiz"]
    assert (row.n, row.n_joined) == (51, 50)
    assert any("1 question(s) are in no audit" in problem for problem in outcome.problems)
