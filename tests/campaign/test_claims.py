"""Which worker has a unit: one at a time, whatever becomes of the others, and nothing is published twice."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from lm_eval_leakage.files import clock_of
from lm_eval_leakage.jobs import claims
from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.claims import held_claims, next_claim
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.inline_engine import InlineEngine
from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.jobs.supervision import carry_out
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.jobs.worker import work
from lm_eval_leakage.logs import answer_store
from tests.campaign.campaigns import plan_for, prepared_folder
from tests.campaign.scripted_model import ASKED, ScriptedModel, lines
from tests.faults.children import KILLED, child
from tests.waiting import wait_for

UNIT = Unit.of("a", "quiz", "leakage_perm")
AT, LATER = "Which of 0-7", "Which of 1-7"


def is_lost(folder: Path) -> bool:
    """Return whether the claim of unit `u` is."""
    return held_claims(folder)["u"].is_lost(clock_of(folder))


def worker_of(file: Path, **options: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | options))


def test_of_many_that_want_a_unit_at_once_one_has_it(tmp_path: Path) -> None:
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(next_claim(tmp_path, "u", "w"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(claim is not None for claim in got) == 1


def test_a_unit_is_free_again_when_its_claim_has_ended_and_not_before(tmp_path: Path) -> None:
    first = next_claim(tmp_path, "u", "w")
    assert first is not None
    assert next_claim(tmp_path, "u", "other") is None
    assert next_claim(tmp_path, "u.1", "other") is not None  # another unit
    assert first.end()
    assert not first.end()
    second = next_claim(tmp_path, "u", "other")
    assert second is not None
    assert (second.file.name, second.worker) == ("u.2", "other")
    assert held_claims(tmp_path) == {"u": second, "u.1": claims.Claim(tmp_path / "u.1.1")}


def test_a_claim_is_lost_if_its_process_has_ended(tmp_path: Path) -> None:
    claim = next_claim(tmp_path, "u", "w")
    assert claim is not None
    assert not is_lost(tmp_path)
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    worker_of(claim.file, pid=pid)
    assert is_lost(tmp_path)
    assert next_claim(tmp_path, "u", "other") is None
    claim.end()
    assert held_claims(tmp_path) == {}
    assert next_claim(tmp_path, "u", "other") is not None


def test_a_claim_of_another_machine_is_lost_if_it_was_not_renewed_by_the_clock_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = next_claim(tmp_path, "u", "w")
    assert claim is not None
    worker_of(claim.file, host="elsewhere", pid=1)
    monkeypatch.setattr(time, "time", lambda: 4e9)  # this machine's clock is wrong
    assert not is_lost(tmp_path)
    before = claim.file.stat().st_mtime - claims.LEASE_S - 60
    os.utime(claim.file, (before, before))
    assert is_lost(tmp_path)


def test_a_process_with_the_number_of_one_that_has_ended_does_not_keep_its_claim(tmp_path: Path) -> None:
    claim = next_claim(tmp_path, "u", "w")
    assert claim is not None
    worker_of(claim.file, started=1.0)
    assert is_lost(tmp_path)


# ---------------------------------------------------------------------- whole workers


@pytest.mark.model
@pytest.mark.usefixtures("here")
def test_a_worker_that_was_stopped_and_wakes_up_publishes_nothing_and_destroys_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval_leakage.jobs.unit_runner import TAKEN_OVER, UnitRunner

    monkeypatch.setattr(claims, "LEASE_S", 2.0)
    monkeypatch.setattr(answer_store, "ANSWERS_AT_ONCE", 8)
    (tmp_path / "counts").mkdir()
    plan = plan_for(tmp_path, tmp_path / "out", "a", arguments={"counts": str(tmp_path / "counts")})
    campaign = prepared_folder(plan)
    pid = os.fork()
    if not pid:
        answer = ScriptedModel.answer

        def stopped_once(model: ScriptedModel, context: str, continuation: str) -> float:
            if AT in context and not (tmp_path / "stopped").exists():
                (tmp_path / "stopped").touch()
                os.kill(os.getpid(), signal.SIGSTOP)
            return answer(model, context, continuation)

        ScriptedModel.answer = stopped_once  # type: ignore[method-assign]
        with UnitRunner(campaign, "a", "sleeper") as runner:
            work(campaign, plan.retries, "a", "sleeper", runner)
        os._exit(0)
    try:
        process = psutil.Process(pid)
        wait_for(lambda: process.status() == psutil.STATUS_STOPPED)
        carry_out(InlineEngine(plan.changed(workers=None), campaign))
        files = {file: file.read_bytes() for file in (campaign.path / "runs").rglob("*") if file.is_file()}
        process.resume()
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
    assert {file: file.read_bytes() for file in (campaign.path / "runs").rglob("*") if file.is_file()} == files
    attempts = campaign.attempts()
    (lost,) = [attempt for attempt in attempts if not attempt.ok]
    assert (lost.worker, lost.lost) == ("sleeper", True)
    assert TAKEN_OVER in campaign.log_of(lost.unit).read_text()
    assert sorted(attempt.unit for attempt in attempts if attempt.ok) == sorted(units_of(plan))


@pytest.mark.model
def test_two_commands_on_one_folder_without_locks_do_every_unit_once(
    here: Callable[..., CheckOutcome], settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext

    monkeypatch.setattr("lm_eval_leakage.jobs.driver.sole_use", lambda _: nullcontext())
    here(settings, output_path=str(tmp_path / "alone"))
    n_asked = len(lines(tmp_path / "counts", ASKED))
    pid = os.fork()
    if not pid:
        os._exit(child(lambda: here(settings), tmp_path / "log").code)
    ended = here(settings)
    assert os.waitpid(pid, 0)[1] == 0
    assert (ended.n_done, ended.lost) == (4, ())
    assert len(list((tmp_path / "out" / "runs").rglob("results_*.json"))) == 4
    assert len(lines(tmp_path / "counts", ASKED)) == 2 * n_asked


@pytest.mark.model
def test_a_folder_that_is_moved_after_a_kill_is_continued(
    here: Callable[..., CheckOutcome], settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_store, "ANSWERS_AT_ONCE", 8)
    whole = here(settings, output_path=str(tmp_path / "whole"))
    n_asked = len(lines(tmp_path / "counts", ASKED))

    def killed() -> None:
        answer = ScriptedModel.answer

        def dies(model: ScriptedModel, context: str, continuation: str) -> float:
            if LATER in context and len(lines(tmp_path / "counts", ASKED)) > 1.5 * n_asked:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer(model, context, continuation)

        monkeypatch.setattr(ScriptedModel, "answer", dies)
        here(settings)

    assert child(killed, tmp_path / "log").code == KILLED
    (tmp_path / "out").rename(tmp_path / "moved")
    ended = here(settings, output_path=str(tmp_path / "moved"))
    assert (ended.n_done, ended.lost) == (4, ())
    assert ended.verdicts == whole.verdicts
    assert len(lines(tmp_path / "counts", ASKED)) <= 2 * n_asked + 2 * 8
    assert CampaignFolder(tmp_path / "moved").left([UNIT]) == []
