"""How many jobs a model has, which are submitted together, and what becomes of those that die: with jobs on paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lm_eval_leakage.jobs import slurm_engine
from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.engines import JobEngine, engine_of
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, now
from lm_eval_leakage.jobs.plan import Plan, PlanModel
from lm_eval_leakage.jobs.queue import claim_next
from lm_eval_leakage.jobs.slurm_engine import SlurmEngine
from lm_eval_leakage.jobs.slurm_jobs import THIS_MACHINE, SlurmJob
from lm_eval_leakage.jobs.supervision import carry_out
from tests.campaign.campaigns import small_plan
from tests.campaign.unloaded_runner import a_plan, made_ready

DEATH = "x died"


class PaperCluster:
    """A stand-in for submitit's executor. A job has ended when it is first looked at, after it has run its units.

    deaths: in how many jobs the first unit kills the job
    is_stillborn: whether jobs end before their first unit
    """

    def __init__(self) -> None:
        self.arrays: list[Sequence[SlurmJob]] = []
        self.deaths, self.is_stillborn = 0, False

    def submit_array(self, jobs: Sequence[SlurmJob]) -> list[Any]:
        self.arrays.append(jobs)
        return [self._handle(job) for job in jobs]

    def _handle(self, job: SlurmJob) -> Any:
        job.folder.mkdir(exist_ok=True)
        pickle = job.folder / f"{job.name}.pkl"
        return SimpleNamespace(job=job, job_id=job.name, paths=SimpleNamespace(submitted_pickle=pickle))

    def run(self, handle: Any) -> str | None:
        """Return why a job has ended."""
        folder, job = CampaignFolder(handle.job.folder), handle.job
        while not self.is_stillborn and (claimed := claim_next(folder, 1, job.model, f"{job.name}-1")):
            unit, claim = claimed
            if self.deaths:
                self.deaths -= 1
                return DEATH
            folder.conclude(unit, {})
            folder.record(Attempt(unit, True, 0.0, 0, 0, None, False, f"{job.name}-1", now()))
            claim.end()
        return DEATH if self.is_stillborn else None


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    paper = PaperCluster()
    monkeypatch.setattr(slurm_engine, "executor", lambda *_: paper)
    monkeypatch.setattr(slurm_engine, "CLUSTER_LOOK_S", 0.0)
    monkeypatch.setattr(slurm_engine, "has_ended", lambda handle, in_queue: True)
    monkeypatch.setattr(slurm_engine, "why_ended", paper.run)
    return paper


def carried_out(plan: Plan, output: Path) -> CampaignFolder:
    folder = CampaignFolder(output)
    made_ready(plan, folder)
    carry_out(SlurmEngine(plan, folder))
    return folder


def two_models(**given: Any) -> Plan:
    models = tuple(PlanModel(name=name, workers=2) for name in ("a", "b"))
    return a_plan(models=models, tasks=("quiz", "trivia", "riddle"), **given)


def test_a_model_has_as_many_jobs_as_workers_all_submitted_as_one_array(cluster: PaperCluster, tmp_path: Path) -> None:
    plan = two_models()
    folder = carried_out(plan, tmp_path)
    assert folder.left(units_of(plan)) == []
    (jobs,) = cluster.arrays
    assert sorted(job.model for job in jobs) == ["a", "a", "b", "b"]
    assert sorted(attempt.unit for attempt in folder.attempts()) == sorted(units_of(plan))


def test_no_more_jobs_than_workers_are_submitted_at_once(cluster: PaperCluster, tmp_path: Path) -> None:
    carried_out(two_models(workers=3), tmp_path)
    assert max(len(jobs) for jobs in cluster.arrays) == 3


def test_a_model_without_workers_has_one_job(cluster: PaperCluster, tmp_path: Path) -> None:
    carried_out(a_plan(1), tmp_path)
    assert [len(jobs) for jobs in cluster.arrays] == [1]


def test_a_job_that_dies_costs_its_unit_an_attempt_and_another_job_goes_on(
    cluster: PaperCluster, tmp_path: Path
) -> None:
    cluster.deaths = 1
    plan = a_plan(1)
    folder = carried_out(plan, tmp_path)
    assert folder.left(units_of(plan)) == []
    first, second = (jobs[0] for jobs in cluster.arrays)
    lost = [attempt for attempt in folder.attempts() if not attempt.ok]
    assert [(attempt.worker, attempt.lost, attempt.error) for attempt in lost] == [
        (f"{first.name}-1", True, f"its worker {DEATH}")
    ]
    assert {attempt.worker for attempt in folder.attempts() if attempt.ok} == {f"{second.name}-1"}


def test_jobs_that_end_before_their_first_unit_are_submitted_three_times(
    cluster: PaperCluster, tmp_path: Path
) -> None:
    cluster.is_stillborn = True
    folder = carried_out(a_plan(1, ("one",)), tmp_path)
    assert len(cluster.arrays) == 3
    (attempt,) = folder.attempts()
    assert attempt.error == f"3 workers in a row could not be started; the last one {DEATH}"


# ---------------------------------------------------------------------- what the plan says


def made(output: Path, address: str | None = THIS_MACHINE, **parameters: object) -> JobEngine:
    plan = small_plan(output_path=output, slurm=parameters)
    return engine_of("slurm", address, plan, CampaignFolder(output))


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"partitoin": "gpu", "timeout_min": 60, "slurm_qos": "low", "mem_gb": 8}, "partitoin"),
        ({"timeout_min": "4 hours"}, "timeout_min"),
        ({"nodes": 2}, "a job is one process on one node"),
        ({"slurm_ntasks_per_node": 8}, "a job is one process on one node"),
        ({"time": "4:00:00"}, "in minutes as timeout_min"),
    ],
    ids=lambda parameters: str(parameters),
)
def test_a_parameter_that_cannot_be_used_is_one_sentence(tmp_path: Path, parameters, said: str) -> None:
    with pytest.raises(ValueError, match="slurm") as error:
        made(tmp_path, **parameters)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_machine_without_slurm_and_an_unknown_address_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="no srun on this machine"):
        made(tmp_path, None)
    with pytest.raises(ValueError, match="'auto'"):
        made(tmp_path, "auto")
