"""A check that is killed anywhere continues, and ends as if it had not been."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.logs import answer_store
from tests.checking.conftest import NamedFake, checked, questions, written
from tests.faults.children import KILLED, child

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks", "fakes")]
N = 40
KEPT = 32  # answers that are kept at once, and lost at most
# requests at which the check is killed, one after the other: in its accuracy, and early, late and last in its orders
KILLS = (3 * N, N + KEPT + 1, 31 * N, 7 * N)


def killed_at(request: int, fakes: type[NamedFake], output: Path, file: Path) -> None:
    """Runs the check in a fork, which is killed before this request is answered."""

    def score(context: str, continuation: str) -> float:
        if len(fakes.requests) == request:
            os.kill(os.getpid(), signal.SIGKILL)
        return NamedFake.score(context, continuation)

    def in_fork() -> None:
        fakes.score = staticmethod(score)
        checked(output.parent, file, output.name)

    assert child(in_fork, output.parent / "log").code == KILLED


def test_a_check_that_is_killed_again_and_again_continues(
    fakes: type[NamedFake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_store, "ANSWERS_AT_ONCE", KEPT)
    file = written(tmp_path, questions(N))
    whole, n = checked(tmp_path, file, "whole"), len(fakes.requests)
    fakes.requests.clear()
    for request in KILLS:
        killed_at(request, fakes, tmp_path / "out", file)
    assert checked(tmp_path, file).verdicts == whole.verdicts
    assert len(fakes.requests) <= n - sum(KILLS) + len(KILLS) * KEPT
    assert not list((tmp_path / "out").rglob("responses_*"))


def test_a_draw_that_a_kill_left_complete_and_unpublished_does_not_pass_for_another(tmp_path: Path) -> None:
    file = written(tmp_path, questions(N))
    checked(tmp_path, file, questions=25)
    left = Unit.of("m", "quiz", "leakage_perm")
    folder = CampaignFolder(tmp_path / "out")
    folder.work_of(left).mkdir(parents=True, exist_ok=True)
    folder.run_of(left).rename(folder.work_of(left) / "1")
    (verdict,) = checked(tmp_path, file, questions=35).verdicts
    (whole,) = checked(tmp_path, file, "whole", questions=35).verdicts
    assert (verdict.n_tested, verdict.pvalue) == (whole.n_tested, whole.pvalue) == (35, whole.pvalue)
