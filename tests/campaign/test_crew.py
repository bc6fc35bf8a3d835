"""Which workers are started, and what becomes of units whose workers are lost: with workers that only exist here."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lm_eval_leakage import __version__
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.jobs import ray_engine
from lm_eval_leakage.jobs.engines import Crew, Worker
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, lost_attempt
from lm_eval_leakage.jobs.plan import Plan, PlanModel
from lm_eval_leakage.jobs.ray_engine import RayEngine, cause_of, mark_of, refuse_node
from lm_eval_leakage.jobs.units import Unit, units_of
from tests.campaign.unloaded_worker import a_plan


class PaperWorker(Worker):
    ended = False

    def hand(self, unit: Unit) -> None:
        assert not self.ended

    def end(self) -> None:
        assert not self.ended
        self.ended = True


class PaperCrew(Crew[PaperWorker]):
    """fate: of a worker that is started or of a unit: `ok`, `fails`, `dies`, `late`, or one of them at random"""

    def __init__(self, plan: Plan, folder: Path, most: float, seed: int, fates: tuple[str, ...]) -> None:
        super().__init__(plan, CampaignFolder(folder), "paper", most)
        self._rng, self._fates, self.seen = random.Random(seed), fates, list[Counter[str]]()

    def started(self, model: str, name: str) -> PaperWorker:
        return PaperWorker(model, name)

    def heard(self) -> Iterator[tuple[PaperWorker, Attempt | str | None]]:
        self.seen.append(Counter(worker.model for worker in self.workers))
        worker, fate = self._rng.choice(self.workers), self._rng.choice(self._fates)
        if fate == "dies":
            yield worker, "died"
        elif worker.unit is None:
            yield worker, None
        elif fate == "late":
            worker.since = float("-inf")
        else:
            error = None if fate == "ok" else "it failed"
            attempt = lost_attempt(worker.unit, worker.name, "", 0.0, lost=False)
            yield worker, Attempt(**{**vars(attempt), "ok": error is None, "error": error})


@pytest.mark.parametrize("seed", range(20))
def test_every_unit_is_done_once_or_told_to_have_failed_whatever_becomes_of_workers(tmp_path: Path, seed: int) -> None:
    models = (PlanModel(name="few", workers=1), PlanModel(name="many"))
    plan = a_plan(models=models, tasks=tuple(f"task{n}" for n in range(6)), minutes=60.0, retries=1)
    most = (1, 3, float("inf"))[seed % 3]
    crew, told = PaperCrew(plan, tmp_path, most, seed, ("ok", "ok", "fails", "dies", "late")), list[Attempt]()
    crew.carry_out(units_of(plan), told.append, lambda unit, worker: None)
    last = {attempt.unit: attempt for attempt in told}
    assert set(last) == set(units_of(plan))
    assert max(Counter(attempt.unit for attempt in told if attempt.ok).values(), default=1) == 1
    assert all(own.total() <= most and own["few"] <= 1 for own in crew.seen)


def test_workers_that_cannot_start_are_tried_three_times_and_their_units_told_to_have_failed(tmp_path: Path) -> None:
    plan, told = a_plan(1), list[Attempt]()
    PaperCrew(plan, tmp_path, 4, 0, ("dies",)).carry_out(units_of(plan), told.append, lambda *_: None)
    said = "3 workers in a row could not be started; the last one died"
    assert [(one.unit, one.error) for one in told] == [(unit, said) for unit in units_of(plan)]
    assert [attempt.error for attempt in CampaignFolder(tmp_path).attempts()] == [said, said]


def test_each_model_gets_a_worker_before_any_gets_a_second(tmp_path: Path) -> None:
    plan = a_plan(3, tuple(f"task{n}" for n in range(20)))
    crew = PaperCrew(plan, tmp_path, 5, 0, ("ok",))
    crew.carry_out(units_of(plan), lambda _: None, lambda *_: None)
    assert all(own.total() == 3 or min(own.values()) >= 1 for own in crew.seen[:20])
    assert max(own.total() for own in crew.seen) == 5


# ---------------------------------------------------------------------- Ray


@pytest.mark.parametrize(
    ("gpus", "workers", "cpus"), [(0, None, 1.0), (0, 1, 8.0), (0, 3, 4.0), (0, 100, 1.0), (2, 1, 1.0)]
)
def test_workers_without_gpus_share_the_cpus_if_their_number_is_limited(gpus, workers, cpus, monkeypatch) -> None:
    monkeypatch.setattr(ray_engine, "amounts", {"CPU": [4.0, 8.0]}.__getitem__)
    plan = a_plan(models=(PlanModel(name="one", gpus=gpus, workers=workers),))
    assert RayEngine(plan, CampaignFolder("unused"))._cpus("one") == cpus


DIED = """The actor died unexpectedly before finishing this task.
\tactor_id: 07254a
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR \
Some common causes include: (1) the process was killed by the OOM killer"""
IN_CREATION = (
    "The actor died because of an error raised in its creation task, ray::A\n  File 'a.py'\nOSError: no disk\n"
)


@pytest.mark.parametrize(
    ("report", "cause"),
    [
        (DIED, "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"),
        (IN_CREATION, "OSError: no disk"),
        ("", "RuntimeError"),
    ],
)
def test_the_cause_of_a_loss_is_one_sentence_without_ids_and_advice(report: str, cause: str) -> None:
    assert cause_of(RuntimeError(report)) == cause


def test_a_node_that_cannot_be_used_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic_write(mark_of(tmp_path), "now")
    refuse_node(tmp_path, "now", __version__)
    with pytest.raises(ValueError, match=f"has lm-eval-leakage {__version__}; install 9.9 on every node"):
        refuse_node(tmp_path, "now", "9.9")
    with pytest.raises(ValueError, match=f"does not see the campaign's folder {tmp_path}; choose an --output_path"):
        refuse_node(tmp_path, "another start", __version__)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ValueError, match=f"cannot write to {tmp_path}; let the user that runs Ray there write to it"):
        refuse_node(tmp_path, "now", __version__)
