"""Campaigns on a Ray cluster of two nodes on this machine, with a stand-in for models."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.plan import Plan, PlanModel
from lm_eval_leakage.jobs.queue import Queue
from lm_eval_leakage.jobs.ray_engine import RayEngine
from lm_eval_leakage.jobs.supervision import carry_out
from tests.campaign.ray_nodes import a_cluster
from tests.campaign.unloaded_runner import LOADED, UnloadedRunner, a_plan, made_ready, workers_made
from tests.waiting import a_process, wait_for

pytestmark = pytest.mark.model  # starts processes of Ray


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with a_cluster() as cluster:
        cluster.add_node(num_cpus=2, num_gpus=2)
        cluster.add_node(num_cpus=2)
        yield cluster.address


@pytest.fixture
def folder(tmp_path: Path) -> CampaignFolder:
    (tmp_path / "campaign").mkdir()
    return CampaignFolder(tmp_path / "campaign")


def carried_out(plan: Plan, folder: CampaignFolder, address: str | None) -> list[Attempt]:
    made_ready(plan, folder)
    carry_out(RayEngine(plan, folder, address, UnloadedRunner))
    return folder.attempts(earlier=False)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_every_unit_is_done_once_and_a_model_is_loaded_once_per_worker(address, folder) -> None:
    plan = a_plan(3, tuple(f"task{n}" for n in range(9)), workers=3)
    attempts = carried_out(plan, folder, address)
    assert sorted(attempt.unit for attempt in attempts) == sorted(units_of(plan))
    assert all(attempt.ok for attempt in attempts)
    assert folder.left(units_of(plan)) == []
    assert len(workers_made(folder)) <= 9  # 27 units
    assert len(list((folder.path / LOADED).glob("*.ended"))) == len(workers_made(folder))
    assert {made["cwd"] for made in workers_made(folder)} == {str(Path.cwd())}


def test_a_lost_worker_costs_one_attempt_and_a_unit_that_kills_every_worker_is_given_up(
    address, folder, capfd
) -> None:
    plan = a_plan(1, ("one", "dies_once", "dies", "exits"), retries=0)
    attempts = carried_out(plan, folder, address)
    by_task = {task: [attempt for attempt in attempts if attempt.unit.task == task] for task in plan.tasks}
    assert {task: [attempt.ok for attempt in attempts] for task, attempts in by_task.items()} == {
        "one": [True],
        "dies_once": [False, True],
        "dies": [False] * 4,
        "exits": [False] * 4,
    }
    assert all(attempt.lost for attempt in attempts if not attempt.ok)
    assert all(attempt.error.startswith("its worker was lost: ") for attempt in by_task["dies"])
    assert {attempt.error for attempt in by_task["exits"]} == {
        "its worker ended with RuntimeError: the worker itself is broken"
    }
    assert {unit.task for unit in folder.left(units_of(plan))} == {"dies", "exits"}
    assert "raylet" not in capfd.readouterr().out


def test_a_unit_that_fails_by_itself_keeps_its_worker(address, folder) -> None:
    attempts = carried_out(a_plan(1, ("fails", "one"), retries=2, workers=1), folder, address)
    assert [(attempt.unit.task, attempt.ok) for attempt in attempts] == [("fails", False), ("one", True)] + [
        ("fails", False)
    ] * 2
    assert len(workers_made(folder)) == 1


def test_a_worker_that_takes_too_long_is_killed(address, folder) -> None:
    attempts = carried_out(a_plan(1, ("hangs_once", "one"), minutes=0.03, workers=1), folder, address)
    assert [(attempt.unit.task, attempt.ok, attempt.lost) for attempt in attempts] == [
        ("hangs_once", False, False),
        ("one", True, False),
        ("hangs_once", True, False),
    ]
    assert "minutes: 0.03" in attempts[0].error
    wait_for(lambda: not any(is_alive(made["pid"]) for made in workers_made(folder)))


def test_a_model_gets_its_gpus_on_one_node_and_one_without_gpus_sees_none(address, folder) -> None:
    models = (PlanModel(name="small"), PlanModel(name="parallel", gpus=2))
    carried_out(a_plan(models=models), folder, address)
    assert {made["model"]: made["gpus"] for made in workers_made(folder)} == {"small": "", "parallel": "0,1"}


def test_a_model_for_which_no_node_is_large_enough_is_named_and_the_others_are_done(
    address, folder, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.setattr("lm_eval_leakage.jobs.ray_engine.PLACE_S", 0.0)
    models = (PlanModel(name="huge", gpus=8), PlanModel(name="small"))
    attempts = carried_out(a_plan(models=models, retries=2, workers=1), folder, address)
    assert Counter((attempt.unit.model, attempt.ok) for attempt in attempts) == {
        ("small", True): 2,
        ("huge", False): 2,
    }
    needs = "huge needs a node with 8 GPUs, and the largest has 2"
    assert {attempt.error for attempt in attempts if not attempt.ok} == {needs}
    assert needs in caplog.messages
    carried_out(a_plan(1, ("one",)), folder, address)
    assert [text for text in caplog.messages if "none of its 2 for workers; add `gpus: 1`" in text]


def test_workers_whose_node_does_not_see_the_folder_are_tried_three_times(
    address, folder, monkeypatch, caplog
) -> None:
    monkeypatch.setattr("lm_eval_leakage.jobs.ray_engine.mark_of", lambda path: path / "elsewhere")
    (attempt,) = carried_out(a_plan(1, ("one",), retries=0), folder, address)
    assert "3 workers in a row could not be started; the last one was lost: ValueError: its node" in attempt.error
    assert "does not see the campaign's folder" in attempt.error
    assert len([text for text in caplog.messages if "could not be started" in text]) == 3


def test_an_interrupted_driver_leaves_no_worker(address, folder) -> None:
    def interrupt(queue: Queue) -> None:
        if queue.attempts:
            raise KeyboardInterrupt

    plan = a_plan(2, ("one", "hangs"))
    made_ready(plan, folder)
    with pytest.raises(KeyboardInterrupt):
        carry_out(RayEngine(plan, folder, address, UnloadedRunner), interrupt)
    wait_for(lambda: not any(is_alive(made["pid"]) for made in workers_made(folder)))


DRIVER = """
import sys
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.ray_engine import RayEngine
from lm_eval_leakage.jobs.supervision import carry_out
from tests.campaign.unloaded_runner import UnloadedRunner, a_plan, made_ready
plan, folder = a_plan(2, ("one", "hangs_once")), CampaignFolder(sys.argv[1])
made_ready(plan, folder)
carry_out(RayEngine(plan, folder, None, UnloadedRunner))
"""


def test_the_workers_of_a_killed_driver_end_and_its_successor_asks_what_is_missing(address, folder) -> None:
    first = folder.path / "first"
    with a_process([sys.executable, "-c", DRIVER, folder.path], stdout=subprocess.DEVNULL) as driver:
        wait_for(lambda: len(list(first.glob("*"))) == 2)
        driver.kill()
        assert driver.wait() == -signal.SIGKILL
    pids = [made["pid"] for made in workers_made(folder)]
    assert len(pids) == 2
    wait_for(lambda: not any(map(is_alive, pids)))
    attempts = carried_out(a_plan(2, ("one", "hangs_once")), folder, address)
    assert sorted(attempt.unit.id for attempt in attempts if attempt.ok) == [
        f"model{n}/hangs_once/run" for n in (0, 1)
    ]


LOSING_ITS_HEAD = """
import sys
from lm_eval_leakage.cli.ending import run_or_exit
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.ray_engine import RayEngine
from lm_eval_leakage.jobs.supervision import carry_out
from tests.campaign.unloaded_runner import UnloadedRunner, a_plan, made_ready
plan, folder = a_plan(1, ("one", "hangs_once")), CampaignFolder(sys.argv[1])
made_ready(plan, folder)
run_or_exit(lambda: carry_out(RayEngine(plan, folder, sys.argv[2], UnloadedRunner)))
"""


def test_a_cluster_whose_head_is_killed_ends_the_driver_with_a_sentence_and_status_2(folder) -> None:
    """Ray itself would end it with status 1, which means that a condition was met."""
    with a_cluster() as cluster:
        cluster.add_node(num_cpus=1)
        address = cluster.address
        command = [sys.executable, "-c", LOSING_ITS_HEAD, folder.path, address]
        with a_process(command, stderr=subprocess.PIPE, text=True) as driver:
            wait_for(lambda: len(folder.attempts()) == 1 and len(list((folder.path / "first").glob("*"))) == 1)
            cluster.kill_head()
            _, errors = driver.communicate()
    assert driver.returncode == 2
    assert f"the head of the Ray cluster at {address} is gone" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("ray://head:10001", "Ray Client"),
        ("127.0.0.1:9", "no Ray cluster can be reached at '127.0.0.1:9'"),
        ("nonsense", "no Ray cluster can be reached at 'nonsense'"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(wrong: str, reason: str, folder) -> None:
    with pytest.raises(ValueError, match=reason):
        carried_out(a_plan(), folder, wrong)
