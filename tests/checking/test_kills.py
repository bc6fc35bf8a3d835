"""A check that is killed anywhere continues, and ends as if it had not been."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.plan import Unit
from lm_eval_leakage.logs import answer_store
from tests.checking.conftest import NamedFake, checked, questions, written
from tests.faults.children import KILLED, child

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks")]
N = 40
KEPT = 32  # answers that are kept at once, and lost at most


def killed_at(request: int, fakes: type[NamedFake], output: Path, file: Path) -> None:
    """Runs the check in a fork, which is killed before this request is answered."""

    def score(context: str, continuation: str) -> float:
        if len(fakes.asked) == request:
            os.kill(os.getpid(), signal.SIGKILL)
        return NamedFake.score(context, continuation)

    def in_fork() -> None:
        fakes.score = staticmethod(score)
        checked(output.parent, file, output.name)

    assert child(in_fork, output.parent / "log").code == KILLED


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, Any]:
    """The outcome of the check of `file` that is not killed, and how many requests it makes: from the first test."""
    return {}


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory, uninterrupted: dict[str, Any], fakes: type[NamedFake]) -> Path:
    """The same questions for every test, so that one check tells what each should end with."""
    if not uninterrupted:
        folder = tmp_path_factory.mktemp("whole")
        uninterrupted |= {"file": written(folder, questions(N))}
        uninterrupted |= {"outcome": checked(folder, uninterrupted["file"]), "n": len(fakes.asked)}
        fakes.asked.clear()
    return uninterrupted["file"]


@pytest.mark.parametrize(
    "request_", [3 * N, 4 * N + 1, 35 * N, 42 * N], ids=["accuracy", "orders", "orders late", "arms"]
)
def test_a_killed_check_continues(
    fakes: type[NamedFake],
    tmp_path: Path,
    file: Path,
    uninterrupted: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    request_: int,
) -> None:
    monkeypatch.setattr(answer_store, "ANSWERS_AT_ONCE", KEPT)
    killed_at(request_, fakes, tmp_path / "out", file)
    assert checked(tmp_path, file).verdicts == uninterrupted["outcome"].verdicts
    assert len(fakes.asked) <= uninterrupted["n"] - request_ + KEPT
    assert not list((tmp_path / "out").rglob("responses_*"))


def test_a_check_that_was_killed_twice_continues(
    fakes: type[NamedFake],
    tmp_path: Path,
    file: Path,
    uninterrupted: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_store, "ANSWERS_AT_ONCE", KEPT)
    killed_at(10 * N, fakes, tmp_path / "out", file)
    killed_at(10 * N, fakes, tmp_path / "out", file)
    assert checked(tmp_path, file).verdicts == uninterrupted["outcome"].verdicts
    assert len(fakes.asked) < uninterrupted["n"] - 15 * N


def test_a_draw_that_a_kill_left_complete_and_unpublished_does_not_pass_for_another(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    file = written(tmp_path, questions(N))
    checked(tmp_path, file, questions=25)
    left = Unit("m", "quiz", "leakage_perm", 0, 1)
    folder = CampaignFolder(tmp_path / "out")
    folder.work_of(left).parent.mkdir(parents=True, exist_ok=True)
    folder.run_of(left).rename(folder.work_of(left))
    (one,) = checked(tmp_path, file, questions=35).verdicts
    (whole,) = checked(tmp_path, file, "whole", questions=35).verdicts
    assert (one.n_tested, one.pvalue) == (whole.n_tested, whole.pvalue) == (35, whole.pvalue)
