"""Which workers are started, and what is reported of lost ones; without Ray."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lm_eval_leakage import __version__
from lm_eval_leakage.jobs import ray_engine as ray_crew
from lm_eval_leakage.jobs.engines import engine_of
from lm_eval_leakage.jobs.folder import CampaignFolder, UnitQueue
from lm_eval_leakage.jobs.plan import Plan, PlanModel, units_of
from lm_eval_leakage.jobs.ray_engine import RayEngine, RayWorker, cause_of, looking, marked
from tests.campaign.unloaded_worker import a_plan


@pytest.fixture(autouse=True)
def _two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with 4 CPUs and 2 GPUs, one with 8 CPUs."""
    monkeypatch.setattr(ray_crew, "largest", {"CPU": 8.0, "GPU": 2.0}.__getitem__)
    monkeypatch.setattr(ray_crew, "total", {"CPU": 12.0, "GPU": 2.0}.__getitem__)
    monkeypatch.setattr(ray_crew, "living_nodes", lambda: [{}, {}])


def engine(plan: Plan, **workers: str) -> RayEngine:
    """With workers by model: `w` works, `s` is started."""
    found = RayEngine(plan, CampaignFolder("unused"))
    units = units_of(plan)
    found._queue = UnitQueue(units, plan)
    for model, states in workers.items():
        found._workers += [RayWorker("", model, 1.0, None, None, units[0] if one == "w" else None) for one in states]
    return found


def wanted(plan: Plan, **workers: str) -> dict[str, int]:
    return dict(Counter(engine(plan, **workers)._wanted()))


FEW_AND_MANY = (PlanModel(name="few", workers=1), PlanModel(name="many"))
OF_SEVEN = a_plan(1, tuple(f"task{place}" for place in range(7)))


@pytest.mark.parametrize(
    ("plan", "workers", "expected"),
    [
        (a_plan(3), {}, {"model0": 1, "model1": 1, "model2": 1}),  # one each, before any gets a second
        (a_plan(3), {"model0": "w", "model1": "w"}, {"model2": 1}),
        (a_plan(3), {"model0": "w", "model1": "w", "model2": "s"}, {}),
        (OF_SEVEN, {"model0": "w"}, {"model0": 1}),  # then as many as work, but no more than waiting units
        (OF_SEVEN, {"model0": "ws"}, {}),
        (OF_SEVEN, {"model0": "wwww"}, {"model0": 4}),
        (OF_SEVEN, {"model0": "w" * 9}, {"model0": 7}),
        (OF_SEVEN, {"model0": "w" * 9 + "sss"}, {"model0": 4}),
        (a_plan(models=FEW_AND_MANY), {"few": "w", "many": "w"}, {"many": 1}),  # limits of a model and of the plan
        (a_plan(models=FEW_AND_MANY, workers=3), {"few": "w", "many": "ww"}, {}),
        (a_plan(5, workers=2), {}, {"model0": 1, "model1": 1}),
    ],
)
def test_which_workers_are_started(plan: Plan, workers: dict[str, str], expected: dict[str, int]) -> None:
    assert wanted(plan, **workers) == expected


def test_the_largest_models_come_first_and_those_without_a_node_last() -> None:
    models = tuple(PlanModel(name=f"gpus{gpus}", gpus=gpus) for gpus in (0, 1, 8, 2))
    assert list(engine(a_plan(models=models))._wanted()) == ["gpus2", "gpus1", "gpus0", "gpus8"]


@pytest.mark.parametrize(
    ("gpus", "workers", "cpus"), [(0, None, 1.0), (0, 1, 8.0), (0, 3, 4.0), (0, 100, 1.0), (2, 1, 1.0)]
)
def test_workers_without_gpus_share_the_cpus_if_their_number_is_limited(gpus, workers, cpus) -> None:
    plan = a_plan(models=(PlanModel(name="one", gpus=gpus, workers=workers),))
    assert engine(plan)._cpus("one") == cpus


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
