"""Which workers are started, and what becomes of units whose workers are lost: with workers that only exist here."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.claims import Claim
from lm_eval_leakage.jobs.engines import JobEngine
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, now
from lm_eval_leakage.jobs.plan import Plan, PlanModel
from lm_eval_leakage.jobs.queue import claim_next, read_queue
from lm_eval_leakage.jobs.supervision import carry_out
from lm_eval_leakage.jobs.units import Unit
from tests.campaign.unloaded_runner import a_plan, made_ready


class PaperEngine(JobEngine):
    """An engine of which, at each look, one worker at random goes on by one step.

    fates: what may become of it: `ok`, `fails`, `dies` or `late`
    """

    description = "paper"

    def __init__(self, plan: Plan, folder: Path, most: float, seed: int, fates: tuple[str, ...]) -> None:
        super().__init__(plan, CampaignFolder(folder), most)
        self._rng, self._fates = random.Random(seed), fates
        self._units: dict[str, tuple[Unit, Claim]] = {}
        self.seen: list[Counter[str]] = []
        self.stopped: list[str] = []

    def start(self, model: str, name: str) -> None:
        self.workers[name] = model

    def stop(self, name: str) -> None:
        del self.workers[name]
        self._units.pop(name, None)
        self.stopped.append(name)

    def ended(self) -> Mapping[str, str | None]:
        self.seen.append(Counter(self.workers.values()))
        if not self.workers:  # the last one was stopped
            return {}
        name, fate = self._rng.choice([*self.workers]), self._rng.choice(self._fates)
        reason = "died" if fate == "dies" else None
        if name not in self._units and reason is None:
            claimed = claim_next(self.folder, self.plan.retries, self.workers[name], name)
            if claimed is not None:
                self._units[name] = claimed
                return {}
        elif fate == "late":
            _, claim = self._units[name]
            claim.file.write_text(json.dumps({**claim.holder, "since": 0.0}))
            return {}
        elif reason is None:
            self._end_unit(name, fate)
            return {}
        self.stop(name)
        return {name: reason}

    def _end_unit(self, name: str, fate: str) -> None:
        unit, claim = self._units.pop(name)
        if fate == "ok":
            self.folder.conclude(unit, {})
        error = None if fate == "ok" else "it failed"
        self.folder.record(Attempt(unit, error is None, 0.0, 0, 0, error, False, name, now()))
        claim.end()


@pytest.mark.parametrize("seed", range(20))
def test_every_unit_is_done_once_or_has_failed_whatever_becomes_of_workers(tmp_path: Path, seed: int) -> None:
    models = (PlanModel(name="few", workers=1), PlanModel(name="many"))
    plan = a_plan(models=models, tasks=tuple(f"task{n}" for n in range(6)), minutes=60.0, retries=1)
    most = (1, 3, float("inf"))[seed % 3]
    engine = PaperEngine(plan, tmp_path, most, seed, ("ok", "ok", "fails", "dies", "late"))
    units = made_ready(plan, engine.folder)
    carry_out(engine)
    attempts = engine.folder.attempts()
    assert {attempt.unit for attempt in attempts} == set(units)
    assert max(Counter(attempt.unit for attempt in attempts if attempt.ok).values(), default=1) == 1
    assert {attempt.unit for attempt in attempts if attempt.ok} == set(units) - set(engine.folder.left(units))
    assert all(workers.total() <= most and workers["few"] <= 1 for workers in engine.seen)
    assert engine.workers == {}


def test_workers_that_cannot_start_are_tried_three_times_and_their_units_recorded_as_failed(tmp_path: Path) -> None:
    plan = a_plan(1)
    engine = PaperEngine(plan, tmp_path, 1, 0, ("dies",))
    units = made_ready(plan, engine.folder)
    carry_out(engine)
    reason = "3 workers in a row could not be started; the last one died"
    assert [(attempt.unit, attempt.error) for attempt in engine.folder.attempts()] == [
        (unit, reason) for unit in units
    ]


def test_each_model_gets_a_worker_before_any_gets_a_second(tmp_path: Path) -> None:
    plan = a_plan(3, tuple(f"task{n}" for n in range(20)))
    engine = PaperEngine(plan, tmp_path, 5, 0, ("ok",))
    made_ready(plan, engine.folder)
    carry_out(engine)
    assert all(min(workers.values()) >= 1 for workers in engine.seen[:20])
    assert max(workers.total() for workers in engine.seen) == 5


def test_a_unit_that_takes_too_long_costs_its_worker_and_counts_as_failed(tmp_path: Path) -> None:
    plan = a_plan(1, ("one",), minutes=60.0, retries=0)
    engine = PaperEngine(plan, tmp_path, 1, 0, ("late",))
    made_ready(plan, engine.folder)
    carry_out(engine)
    (attempt,) = engine.folder.attempts()
    assert (attempt.lost, attempt.error) == (False, "it took longer than minutes: 60 allows; give more")
    assert engine.stopped == [attempt.worker]


def test_a_job_tries_again_what_took_too_long_and_does_not_wait_for_units_of_other_workers(tmp_path: Path) -> None:
    plan = a_plan(1, ("late", "others"), minutes=60.0, retries=1)
    engine = PaperEngine(plan, tmp_path, 1, 0, ("late",))
    late, _ = made_ready(plan, engine.folder)
    for _ in range(2):
        assert claim_next(engine.folder, 1, late.model, "other") is not None
    read_queue(engine.folder, 1).claims[late].end()
    carry_out(engine, job="job")
    attempts = engine.folder.attempts()
    assert [(attempt.unit, attempt.worker) for attempt in attempts] == [(late, "job-1"), (late, "job-2")]


def test_a_claim_of_another_driver_whose_worker_is_gone_is_recorded_and_the_unit_done(tmp_path: Path) -> None:
    plan = a_plan(1, ("one",))
    engine = PaperEngine(plan, tmp_path, 1, 0, ("ok",))
    (unit,) = made_ready(plan, engine.folder)
    claimed = claim_next(engine.folder, 1, unit.model, "earlier")
    assert claimed is not None
    claimed[1].file.write_text(json.dumps({**claimed[1].holder, "started": 1.0}))  # its process has ended
    carry_out(engine)
    lost, done = engine.folder.attempts()
    assert (lost.worker, lost.lost, done.ok) == ("earlier", True, True)


class Quitting(PaperEngine):
    """Its workers end without taking a unit."""

    def ended(self) -> Mapping[str, str | None]:
        (name,) = self.workers
        self.stop(name)
        return {name: None}


def test_workers_that_take_no_unit_are_not_started_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = a_plan(1, ("one",))
    engine = Quitting(plan, tmp_path, 1, 0, ())
    made_ready(plan, engine.folder)
    with caplog.at_level(logging.WARNING):
        carry_out(engine)
    (attempt,) = engine.folder.attempts()
    assert attempt.error == "3 workers in a row could not be started; the last one ended without a unit"
