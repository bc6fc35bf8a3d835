"""What a folder says is left to be run: what a worker takes next, and what is given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.queue import claim_next, read_queue, record_loss
from lm_eval_leakage.jobs.units import Unit
from tests.campaign.unloaded_runner import a_plan, made_ready


@pytest.fixture
def folder(tmp_path: Path) -> CampaignFolder:
    return CampaignFolder(tmp_path)


def attempt(unit: Unit, second: int = 0, *, ok: bool = False, lost: bool = False) -> Attempt:
    time = f"2026-01-01T00:00:{second:02}.000000+00:00"
    return Attempt(unit, ok, 1.5, 2, 3, None if ok else "why", lost, "w", time)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_unit_is_given_up_after_the_retries_and_later_if_its_workers_die(
    folder: CampaignFolder, lost: bool, retries: int
) -> None:
    (unit,) = made_ready(a_plan(1, ("one",)), folder)
    n = 0
    while claimed := claim_next(folder, retries, unit.model, "w"):
        folder.record(attempt(unit, n, lost=lost))
        claimed[1].end()
        n += 1
    assert n == retries + (4 if lost else 1)


def test_attempts_of_earlier_sessions_are_kept_and_do_not_count(folder: CampaignFolder) -> None:
    plan = a_plan(1, ("one",))
    (unit,) = made_ready(plan, folder)
    folder.record(attempt(unit))
    assert read_queue(folder, 0).open == []
    made_ready(plan, folder)
    assert read_queue(folder, 0).open == [unit]
    assert read_queue(folder, 0).failed == []
    assert folder.attempts() == [attempt(unit)]


def test_a_worker_gets_units_of_its_model_alone_in_the_order_of_the_plan_and_what_failed_last(
    folder: CampaignFolder,
) -> None:
    units = made_ready(a_plan(2, ("late", "early", "a~task")), folder)
    first, second, third, *others = units
    assert [unit.task for unit in units[:3]] == ["late", "early", "a~task"]
    assert read_queue(folder, 1).open == units
    assert read_queue(folder, 1, "model0").open == units[:3]
    folder.record(attempt(first))
    assert read_queue(folder, 1).open == [second, third, *others, first]
    assert claim_next(folder, 1, "model9", "w") is None


def test_a_unit_is_claimed_by_one_worker_and_passed_over_by_others_until_its_claim_has_ended(
    folder: CampaignFolder,
) -> None:
    first, second = made_ready(a_plan(1, ("one", "two")), folder)
    taken, other = claim_next(folder, 1, first.model, "w"), claim_next(folder, 1, first.model, "v")
    assert taken is not None
    assert other is not None
    assert (taken[0], other[0]) == (first, second)
    assert claim_next(folder, 1, first.model, "u") is None
    assert {unit: claim.worker for unit, claim in read_queue(folder, 1).claims.items()} == {first: "w", second: "v"}
    record_loss(folder, *taken, "its machine is gone")
    record_loss(folder, *taken, "its machine is gone")
    (lost,) = folder.attempts()
    assert (lost.unit, lost.worker, lost.lost) == (first, "w", True)
    again = claim_next(folder, 1, first.model, "u")
    assert again is not None
    assert again[0] == first


def test_a_unit_that_is_done_is_neither_claimed_nor_lost(folder: CampaignFolder) -> None:
    (unit,) = made_ready(a_plan(1, ("one",)), folder)
    taken = claim_next(folder, 1, unit.model, "w")
    assert taken is not None
    folder.conclude(unit, {})
    record_loss(folder, *taken, "its machine is gone")
    assert folder.attempts() == []
    assert claim_next(folder, 1, unit.model, "w") is None
    assert read_queue(folder, 1).left == ()


def test_a_unit_failed_if_its_last_attempt_did_and_it_is_not_done(folder: CampaignFolder) -> None:
    first, second = made_ready(a_plan(1, ("one", "two")), folder)
    for each in (attempt(first, 1), attempt(second, 2), attempt(first, 3), attempt(second, 4, ok=True)):
        folder.record(each)
    folder.conclude(second, {})
    assert read_queue(folder, 1).failed == [attempt(first, 3)]
