"""Which unit is next, which are tried again, which are given up."""

from __future__ import annotations

import random

from lm_eval_leakage.jobs.folder import Attempt, UnitQueue
from lm_eval_leakage.jobs.plan import Unit, units_of
from tests.campaign.test_plan_settings import plan

UNITS = units_of(plan(models=[{"name": "a"}, {"name": "b"}], tasks="t,u", runs=False))


def attempt(unit: Unit, *, ok: bool = False, lost: bool = False) -> Attempt:
    return Attempt(unit, ok, 1.0, 0, 0, None if ok else "why", lost, "w", "2026-01-01T00:00:00+00:00")


def n_tries(*, lost: bool, retries: int) -> int:
    """How often a unit is tried that never succeeds."""
    queue, n = UnitQueue(UNITS[:1], plan(retries=retries)), 0
    while not queue.finished:
        unit = queue.take("a")
        assert unit is not None
        queue.returned(attempt(unit, lost=lost))
        n += 1
    return n


def test_a_worker_gets_units_of_its_model_alone_and_each_once() -> None:
    queue = UnitQueue(UNITS, plan())
    assert [queue.take("a"), queue.take("a"), queue.take("a"), queue.take("c")] == [*UNITS[:2], None, None]
    assert queue.models_with_work() == {"b": 2}
    assert not queue.finished


def test_a_unit_that_fails_by_itself_is_given_up_after_the_retries() -> None:
    assert [n_tries(lost=False, retries=retries) for retries in (0, 1, 3)] == [1, 2, 4]


def test_a_unit_whose_workers_die_is_given_up_later() -> None:
    assert [n_tries(lost=True, retries=retries) for retries in (0, 1, 3)] == [4, 5, 7]


def test_what_failed_waits_behind_the_others() -> None:
    queue = UnitQueue(UNITS, plan())
    first = queue.take("a")
    assert first is not None
    queue.returned(attempt(first))
    assert [queue.take("a"), queue.take("a")] == [UNITS[1], first]


def test_an_attempt_that_is_told_twice_counts_once() -> None:
    queue = UnitQueue(UNITS[:1], plan(retries=1))
    unit = queue.take("a")
    assert unit is not None
    queue.returned(attempt(unit))
    queue.returned(attempt(unit, lost=True))
    assert queue.models_with_work() == {"a": 1}


def test_it_is_finished_when_every_unit_is_done_or_given_up() -> None:
    rng, queue, done = random.Random(0), UnitQueue(UNITS, plan(retries=1)), []
    while not queue.finished:
        unit = queue.take(rng.choice(["a", "b"]))
        if unit is not None:
            ok = rng.random() < 0.5
            queue.returned(attempt(unit, ok=ok, lost=rng.random() < 0.5))
            done += [unit] if ok else []
    assert len(set(done)) == len(done)
    assert queue.models_with_work() == {}
