"""Which workers are started, and what is reported of lost ones; without Ray."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lm_eval_leakage import __version__
from lm_eval_leakage.jobs import ray_engine as ray_crew
from lm_eval_leakage.jobs.engines import engine_of
from lm_eval_leakage.jobs.folder import CampaignFolder, UnitQueue
from lm_eval_leakage.jobs.plan import CampaignModel, CampaignPlan, units_of
from lm_eval_leakage.jobs.ray_engine import Errand, RayCrew, RayWorker, WorkerState, cause_of, looking, marked
from tests.campaign.unloaded_worker import a_plan


@pytest.fixture(autouse=True)
def _two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with 4 CPUs and 2 GPUs, one with 8 CPUs."""
    monkeypatch.setattr(ray_crew, "largest", {"CPU": 8.0, "GPU": 2.0}.__getitem__)
    monkeypatch.setattr(ray_crew, "total", {"CPU": 12.0, "GPU": 2.0}.__getitem__)
    monkeypatch.setattr(ray_crew, "living_nodes", lambda: [{}, {}])


def crew(plan: CampaignPlan, **workers: WorkerState | tuple[WorkerState, ...]) -> RayCrew:
    errand = Errand(plan, Path(), "", "")
    queue = UnitQueue(units_of(plan), plan)
    found = RayCrew(errand, CampaignFolder("unused"), queue, lambda _: None, lambda *_: None, 0.0)
    for model, states in workers.items():
        for state in states if isinstance(states, tuple) else (states,):
            found.workers.append(RayWorker(f"{model}-1", model, 1.0, None, None, state))
    return found


STARTING, WORKING, ENDING = WorkerState.STARTING, WorkerState.WORKING, WorkerState.ENDING


def wanted(found: RayCrew) -> dict[str, int]:
    return dict(Counter(found._wanted()))


def test_every_model_gets_a_worker_before_any_gets_a_second() -> None:
    plan = a_plan(3)
    assert wanted(crew(plan)) == {"model0": 1, "model1": 1, "model2": 1}
    assert wanted(crew(plan, model0=WORKING, model1=WORKING)) == {"model2": 1}
    assert wanted(crew(plan, model0=WORKING, model1=WORKING, model2=STARTING)) == {}
    assert wanted(crew(plan, model0=WORKING, model1=WORKING, model2=ENDING)) == {"model2": 1}


def test_further_workers_double_but_are_no_more_than_waiting_units() -> None:
    plan = a_plan(1, tuple(f"task{place}" for place in range(7)))
    assert wanted(crew(plan, model0=WORKING)) == {"model0": 1}
    assert wanted(crew(plan, model0=(WORKING, STARTING))) == {}
    assert wanted(crew(plan, model0=(WORKING,) * 4)) == {"model0": 4}
    assert wanted(crew(plan, model0=(WORKING,) * 9)) == {"model0": 7}
    assert wanted(crew(plan, model0=(WORKING,) * 9 + (STARTING,) * 3)) == {"model0": 4}


def test_workers_of_a_model_and_of_the_plan_are_limits() -> None:
    models = (CampaignModel("few", workers=1), CampaignModel("many"))
    assert wanted(crew(a_plan(models=models), few=WORKING, many=WORKING)) == {"many": 1}
    assert wanted(crew(a_plan(models=models, workers=3), few=WORKING, many=(WORKING, WORKING))) == {}
    assert wanted(crew(a_plan(5, workers=2))) == {"model0": 1, "model1": 1}


def test_the_largest_models_come_first_and_those_without_a_node_last() -> None:
    models = tuple(CampaignModel(f"gpus{gpus}", gpus=gpus) for gpus in (0, 1, 8, 2))
    assert list(crew(a_plan(models=models))._wanted()) == ["gpus2", "gpus1", "gpus0", "gpus8"]


@pytest.mark.parametrize(
    ("gpus", "workers", "cpus"), [(0, None, 1.0), (0, 1, 8.0), (0, 3, 4.0), (0, 100, 1.0), (2, 1, 1.0)]
)
def test_workers_without_gpus_share_the_cpus_if_their_number_is_limited(gpus, workers, cpus) -> None:
    plan = a_plan(models=(CampaignModel("one", gpus=gpus, workers=workers),))
    assert crew(plan)._cpus("one") == cpus


# ---------------------------------------------------------------------- what is reported

DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: CampaignWorker
\tactor_id: 07254a
\tpid: 13008
\tip: 192.0.2.2
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


def test_an_error_that_was_raised_in_a_worker_is_the_cause() -> None:
    error = RuntimeError("ray::CampaignWorker.run() (pid=1)")
    error.cause = MemoryError("no room")
    assert cause_of(error) == "MemoryError: no room"


# ---------------------------------------------------------------------- nodes


def test_a_node_tells_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with marked(tmp_path) as mark:
        assert looking()(str(mark), __version__) == ""
        assert looking()(str(mark), "9.9") == f"has lm-eval-leakage {__version__}; install 9.9 on every node"
        monkeypatch.setattr("os.access", lambda *_: False)
        assert looking()(str(mark), __version__).startswith(f"cannot write to {tmp_path}; ")
    assert looking()(str(mark), __version__).startswith(f"does not see the campaign's folder {tmp_path}; ")


def test_the_mark_of_a_killed_driver_is_no_proof(tmp_path: Path) -> None:
    with marked(tmp_path) as mark:
        copy = mark.read_text()
    (tmp_path / mark.name).write_text(copy)
    with marked(tmp_path) as newer:
        assert [file.name for file in tmp_path.iterdir()] == [newer.name] != [mark.name]


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_eval_leakage.jobs.engines.find_spec", lambda name: None)
    with pytest.raises(
        ImportError,
        match=r"^--engine ray needs ray, which is not installed; run `pip install 'lm-eval-leakage\[ray\]'`$",
    ):
        engine_of("ray", None, a_plan(), CampaignFolder("unused"))
