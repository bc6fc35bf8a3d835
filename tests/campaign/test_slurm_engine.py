"""How units get into jobs, and what becomes of them when jobs die: with jobs that only exist on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lm_eval_leakage.jobs import slurm_engine
from lm_eval_leakage.jobs.engines import engine_of
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, lost_attempt
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.slurm_engine import THIS_MACHINE, SlurmEngine, SlurmJob, dealt
from lm_eval_leakage.jobs.units import Unit, units_of
from tests.campaign.campaigns import small_plan

Work = Callable[["PaperJobs", SlurmJob], object]


class PaperJobs(SlurmEngine):
    """Its jobs have ended at the first look, after `work` has done what they did."""

    work: Work
    dealt: list[SlurmJob]
    earlier: Sequence[SlurmJob] = ()  # jobs of an earlier driver
    at_once: list[int]

    def adopt(self) -> None:
        self._take(self.earlier)

    def submit(self, jobs: Sequence[SlurmJob]) -> None:
        self.dealt.extend(jobs)
        self._take(jobs)
        self.at_once.append(len(self.live))

    def ended(self) -> list[SlurmJob]:
        for job in self.live:
            type(self).work(self, job)
        return list(self.live)

    def interrupt(self) -> str:
        return "they go on"

    def _take(self, jobs: Sequence[SlurmJob]) -> None:
        files = {"stderr": self.folder.path / "job.err", "submitted_pickle": self.folder.path / "gone.pkl"}
        self.live |= dict.fromkeys(jobs, SimpleNamespace(paths=SimpleNamespace(**files)))

    def does(self, job: SlurmJob, unit: Unit, error: str | None = None) -> None:
        """What a job does."""
        if error is None:
            self.folder.run_of(unit).mkdir(parents=True)
        attempt = lost_attempt(unit, f"{job.worker}-1", "", 1.0, lost=False)
        self.folder.record(replace(attempt, ok=not error, error=error))


def all_done(jobs: PaperJobs, job: SlurmJob) -> None:
    for unit in job.units:
        jobs.does(job, unit)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> type[PaperJobs]:
    monkeypatch.setattr(slurm_engine, "executor", lambda *_: None)
    monkeypatch.setattr(slurm_engine, "LOOK_S", 0.0)
    return type("Jobs", (PaperJobs,), {"work": staticmethod(all_done), "dealt": [], "at_once": []})


def plan(output: Path, **more: object) -> Plan:
    told = {"models": [{"name": name, "workers": 2} for name in ("a", "b")], "tasks": ["quiz", "trivia"]}
    return small_plan(**(told | {"output_path": output} | more))


def carried_out(jobs: type[PaperJobs], told: Plan) -> list[Attempt]:
    heard: list[Attempt] = []
    engine = jobs(told, CampaignFolder(told.output_path))
    engine.carry_out(units_of(told), heard.append, lambda unit, worker: None)
    return heard


def test_every_unit_is_in_one_job_and_a_model_has_as_many_jobs_as_workers(jobs, tmp_path: Path) -> None:
    told = plan(tmp_path)
    heard = carried_out(jobs, told)
    assert sorted(attempt.unit for attempt in heard) == sorted(units_of(told))
    assert [(job.model, len(job.units)) for job in jobs.dealt] == [("a", 2), ("a", 2), ("b", 2), ("b", 2)]


def test_no_more_jobs_than_workers_are_submitted_at_once(jobs, tmp_path: Path) -> None:
    carried_out(jobs, plan(tmp_path, workers=3))
    assert jobs.at_once == [3, 2]


def test_a_model_without_a_name_and_the_reference_have_jobs_too(jobs, tmp_path: Path) -> None:
    told = plan(tmp_path, models=[{"model_args": "pretrained=m"}], engine="slurm", reference="pretrained=r")
    assert {attempt.unit for attempt in carried_out(jobs, told)} == {*units_of(told)}
    assert {job.model for job in jobs.dealt} == {"m", "r"}


def test_a_dead_job_loses_the_unit_that_it_was_at_and_the_rest_is_dealt_again(jobs, tmp_path: Path) -> None:
    def dies(own: PaperJobs, job: SlurmJob) -> None:
        if len(own.dealt) > 1:
            return all_done(own, job)
        first, second, *_ = job.units
        own.does(job, first)
        return job.is_at(second)

    jobs.work = staticmethod(dies)
    told = plan(tmp_path, workers=1, tasks=["quiz"], models=[{"name": "a"}])
    heard = carried_out(jobs, told)
    first, second = jobs.dealt
    assert second.units == first.units[1:]
    assert [attempt.unit for attempt in heard if attempt.lost] == [first.units[1]]
    assert CampaignFolder(tmp_path).left(units_of(told)) == []


def test_a_unit_whose_jobs_die_again_and_again_is_given_up_and_the_others_are_done(jobs, tmp_path: Path) -> None:
    def dies_at_quiz(own: PaperJobs, job: SlurmJob) -> None:
        for unit in job.units:
            if unit.task == "quiz" and unit.kind == "run":
                return job.is_at(unit)
            own.does(job, unit)
        return None

    jobs.work = staticmethod(dies_at_quiz)
    told = plan(tmp_path, models=[{"name": "a"}])
    heard = carried_out(jobs, told)
    (left,) = CampaignFolder(tmp_path).left(units_of(told))
    assert (left.task, left.kind) == ("quiz", "run")
    assert sum(attempt.lost for attempt in heard) == 1 + 4


def test_jobs_that_end_before_they_begin_end_the_campaign_with_the_reason(jobs, tmp_path: Path, caplog) -> None:
    jobs.work = staticmethod(lambda own, job: None)
    (tmp_path / "job.err").write_text("srun: starting\nModuleNotFoundError: No module named 'lm_eval'\n\n")
    with pytest.raises(ValueError, match="3 jobs in a row .* No module named 'lm_eval'"):
        carried_out(jobs, plan(tmp_path, workers=1))
    assert "they go on" in caplog.text


def test_jobs_of_an_earlier_driver_keep_their_units_and_what_they_made_before_counts(jobs, tmp_path: Path) -> None:
    told = plan(tmp_path, retries=0)
    theirs = tuple(unit for unit in units_of(told) if unit.model == "a")
    jobs.earlier = [SlurmJob(tmp_path, "a-1", theirs, "slurm")]
    jobs(told, CampaignFolder(tmp_path)).does(jobs.earlier[0], theirs[0], "ValueError: no")
    jobs.work = staticmethod(lambda own, job: [own.does(job, unit) for unit in job.units if unit != theirs[0]])
    heard = carried_out(jobs, told)
    assert sorted(attempt.unit for attempt in heard) == sorted(set(units_of(told)) - {theirs[0]})
    assert {job.model for job in jobs.dealt} == {"b"}


def test_every_unit_is_dealt_once_and_of_each_kind_as_many_to_each_job() -> None:
    units = [
        Unit("m", f"task{task}", kind) for task in range(15) for kind in ("run", "leakage_perm", "leakage_tokens")
    ]
    for n_jobs in (1, 2, 3, 4, 7, 50):
        hands = dealt(units, n_jobs)
        assert sorted(unit for hand in hands for unit in hand) == sorted(units)
        assert all(hands)
        for kind in ("run", "leakage_perm", "leakage_tokens"):
            sizes = [Counter(unit.kind for unit in hand)[kind] for hand in hands]
            assert max(sizes) - min(sizes) <= 1, (n_jobs, kind)


# ---------------------------------------------------------------------- what the plan says


def made(output: Path, address: str | None = THIS_MACHINE, **told: object) -> SlurmEngine:
    return engine_of("slurm", address, plan(output, slurm=told), CampaignFolder(output))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"partitoin": "gpu", "timeout_min": 60, "slurm_qos": "low", "mem_gb": 8}, "partitoin"),
        ({"timeout_min": "4 hours"}, "timeout_min"),
        ({"nodes": 2}, "a job is one process on one node"),
        ({"slurm_ntasks_per_node": 8}, "a job is one process on one node"),
        ({"time": "4:00:00"}, "in minutes as timeout_min"),
    ],
    ids=lambda told: str(told),
)
def test_a_parameter_that_cannot_be_used_is_one_sentence(tmp_path: Path, told, said: str) -> None:
    with pytest.raises(ValueError, match="slurm") as error:
        made(tmp_path, **told)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_machine_without_slurm_and_an_unknown_address_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="no srun on this machine"):
        made(tmp_path, None)
    with pytest.raises(ValueError, match="'auto'"):
        made(tmp_path, "auto")
