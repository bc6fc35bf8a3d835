"""A whole campaign on Ray, with the harness: nodes that are lost change no number of its tables."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.queue import Queue
from lm_eval_leakage.jobs.ray_engine import RayEngine
from lm_eval_leakage.jobs.supervision import carry_out
from tests.campaign.campaigns import benchmark, in_one_process, numbers, plan_for, prepared_folder
from tests.campaign.ray_nodes import a_cluster
from tests.checking.conftest import without_environment

pytestmark = pytest.mark.model  # starts processes of Ray

MODELS = ("ash", "birch", "cedar")
BENCHMARKS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
LOST_BETWEEN = ((2, 12), (14, 26))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_environment(monkeypatch)


def a_plan(place: Path, output: str, **more) -> Plan:
    for seed, name in enumerate(BENCHMARKS):
        benchmark(place / "tasks", name, n=7, seed=seed)
    named = [{"name": name, "model": "scripted", "model_args": {"seed": name}} for name in MODELS]
    settings = {"models": named, "tasks": list(BENCHMARKS), "minutes": 5}
    return plan_for(place, place / output, **(settings | more))


def test_a_node_lost_twice_changes_no_number_of_the_tables(tmp_path: Path) -> None:
    """One of two at random, whatever its worker does, when some unit is done; a new one takes its place."""
    plan, seed = a_plan(tmp_path, "on_ray"), random.randrange(2**32)
    print("seed", seed)
    rng, folder = random.Random(seed), prepared_folder(plan)
    lost_at = {rng.randint(*between) for between in LOST_BETWEEN}  # attempts that have ended

    with a_cluster() as cluster:
        nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]

        def watch(queue: Queue) -> None:
            for at in [at for at in lost_at if at <= len(queue.attempts)]:
                lost_at.remove(at)
                cluster.kill_node(nodes.pop(rng.randrange(2)))
                nodes.append(cluster.add_node(num_cpus=1))

        carry_out(RayEngine(plan, folder, cluster.address), watch)
    attempts = folder.attempts()
    units = units_of(plan)
    assert folder.left(units) == []
    assert all(attempt.lost for attempt in attempts if not attempt.ok)
    assert sum(attempt.lost for attempt in attempts) <= 2
    assert all(len(list(folder.run_of(unit).rglob("results_*.json"))) == 1 for unit in units)
    alone = in_one_process(a_plan(tmp_path, "alone"))
    assert numbers(folder) == numbers(alone)
    assert len(json.loads(numbers(alone)["leaderboard.json"])["rows"]) >= len(MODELS)
