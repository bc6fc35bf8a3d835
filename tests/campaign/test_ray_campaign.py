"""A whole campaign on Ray, with the harness: nodes that are lost change no number of its tables."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.plan import Plan, units_of
from lm_eval_leakage.jobs.ray_engine import RayEngine
from tests.campaign.campaigns import begun, benchmark, in_one_process, numbers, plan_for, without_environment
from tests.campaign.ray_nodes import SmallCluster, a_cluster

pytestmark = pytest.mark.model  # starts processes of Ray

MODELS = ("ash", "birch", "cedar")
BENCHMARKS = ("alpha", "beta", "gamma")
LOST_BETWEEN = ((2, 12), (14, 26))  # units that are done
END_S = 300.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_environment(monkeypatch)


def a_plan(place: Path, output: str, shards: int, **more) -> Plan:
    for seed, name in enumerate(BENCHMARKS):
        benchmark(place / "tasks", name, n=7, seed=seed)
    named = [{"name": one, "model": "scripted", "model_args": {"seed": one}} for one in MODELS]
    told = {"models": named, "tasks": list(BENCHMARKS), "shards": shards, "minutes": 5}
    return plan_for(place, place / output, **(told | more))


class LosesNodes:
    """Of two nodes, kills a random one at a random moment, and another one later. A new one takes its place at the
    next attempt that ends, since Ray starts nodes in the main thread only."""

    def __init__(self, cluster: SmallCluster, folder: CampaignFolder, seed: int) -> None:
        self._cluster, self._folder, self._rng = cluster, folder, random.Random(seed)
        self._nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
        self.lost_at: list[int] = []
        self.told: list[Attempt] = []
        self._thread = threading.Thread(target=self._kill)
        self._thread.start()

    def tell(self, attempt: Attempt) -> None:
        self.told.append(attempt)
        if len(self._nodes) < 2:
            self._nodes.append(self._cluster.add_node(num_cpus=1))

    def join(self) -> None:
        self._thread.join(END_S)

    def _kill(self) -> None:
        end = time.monotonic() + END_S
        for n_done in (self._rng.randint(*between) for between in LOST_BETWEEN):
            while self._n_done() < n_done or len(self._nodes) < 2:
                if time.monotonic() > end:
                    return
                time.sleep(0.02)
            time.sleep(self._rng.random() / 4)
            self.lost_at.append(self._n_done())
            self._cluster.kill_node(self._nodes.pop(self._rng.randrange(2)))

    def _n_done(self) -> int:
        return len(list((self._folder.path / "runs").glob("*/*/*/*")))


def test_a_node_lost_twice_changes_no_number_of_the_tables(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, "on_ray", shards=2)
    folder, seed = begun(plan), random.randrange(2**32)
    print("seed", seed)
    with a_cluster() as cluster:
        nodes = LosesNodes(cluster, folder, seed)
        RayEngine(plan, folder, cluster.address).carry_out(units_of(plan), nodes.tell, lambda *_: None)
        nodes.join()
    units = units_of(plan)
    assert folder.left(units) == []
    assert len(nodes.lost_at) == 2
    assert max(nodes.lost_at) < len(units)
    assert all(one.lost for one in nodes.told if not one.ok)
    assert sum(one.lost for one in nodes.told) <= 2
    assert all(len(list(folder.run_of(unit).rglob("results_*.json"))) == 1 for unit in units)
    alone = in_one_process(a_plan(tmp_path, "alone", shards=1))
    assert numbers(folder) == numbers(alone)
    assert len(json.loads(numbers(alone)["leaderboard.json"])["rows"]) >= len(MODELS)
