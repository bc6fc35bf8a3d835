"""Real data parallelism: processes that share the questions over torch.distributed (gloo)."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.models import processes
from lm_eval_leakage.harness.models.processes import (
    is_first,
    of_every,
    refuse_wrong_rank,
)
from lm_eval_leakage.harness.models.ranked_hf import asked_by_any
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import EMPTY, FIVE, GOOD, ONE, SAME, TASK, TWINS, evaluate
from tests.harness.test_task import MANY as COLOURS

# every other question goes to the second process, which therefore has no testable one
DOCS = [GOOD, ONE, TWINS, EMPTY, FIVE, SAME, GOOD | {"question": "Again?"}]


class RankedLM(FakeLM):
    """A fake model on one of several processes."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        super().__init__(by_hash)
        self._rank, self._world_size = dist.get_rank(), dist.get_world_size()

    def all_gather(self, tensor):
        gathered = [torch.zeros_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(gathered, tensor)
        return torch.stack(gathered)

    def gather_object(self, obj, dst=0):
        gathered = [None] * self.world_size if self.rank == dst else None
        dist.gather_object(obj, gathered, dst=dst)
        return gathered

    def barrier(self) -> None:
        dist.barrier()


def meet(rank: int, world_size: int, folder: str) -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "RANK": str(rank), "WORLD_SIZE": str(world_size)}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world_size)


def run_rank(rank: int, world_size: int, metadata: dict, folder: str) -> None:
    meet(rank, world_size, folder)
    results = evaluate(RankedLM(), metadata)
    if results is not None:
        row = results["results"][TASK], results.get("leakage_details", {}).get(TASK)
        Path(folder, "found.json").write_text(json.dumps(row))
    Path(folder, f"all_{rank}").write_text(str(of_every(rank)))
    dist.destroy_process_group()


@pytest.mark.model  # starts several interpreters in sequence
@pytest.mark.filterwarnings("ignore")
def test_the_rows_and_the_verdict_do_not_depend_on_the_number_of_processes(questions_file, tmp_path) -> None:
    metadata = questions_file([*DOCS, *COLOURS])
    alone = evaluate(FakeLM(by_hash), metadata)
    mp.start_processes(run_rank, (2, metadata, str(tmp_path)), nprocs=2, start_method="fork")
    row, details = json.loads((tmp_path / "found.json").read_text())
    assert row == pytest.approx(dict(alone["results"][TASK]), nan_ok=True)
    assert row["sample_len"] == alone["n-samples"][TASK]["effective"] == len(DOCS) + len(COLOURS)
    assert details["verdict"] == pytest.approx(alone["leakage_details"][TASK]["verdict"], nan_ok=True)
    assert (details["verdict"]["basis"], details["verdict"]["n"]) == ("control", 3 + len(COLOURS))
    for rank in range(2):  # what only the first process finds is not found by all
        assert (tmp_path / f"all_{rank}").read_text() == str([0, 1])


@pytest.mark.parametrize(("world_size", "tp_size", "warned"), [(1, None, True), (1, 2, False), (2, None, False)])
def test_processes_that_all_do_the_same_work_are_reported(monkeypatch, caplog, world_size, tp_size, warned) -> None:
    monkeypatch.setattr(processes, "n_processes", lambda: 2)
    monkeypatch.setattr(processes, "process_number", lambda: 0)
    processes.warn_of_repeated_work(SimpleNamespace(world_size=world_size, model=SimpleNamespace(tp_size=tp_size)))
    assert ("each of the 2 processes does all of the work" in caplog.text) == warned


# ---------------------------------------------------------------------- resuming with another number of processes

MANY = [GOOD | {"question": f"Colour {number}?"} for number in range(15)]
N_REQUESTS = 15 * 24


class Kept(RankedLM):
    """Reports its answers, and fails after a given number of them."""

    def __init__(self, stop_after: int | None) -> None:
        super().__init__()
        self.stop_after = stop_after

    def loglikelihood(self, requests):
        answers = []
        for request in requests:
            if self.stop_after is not None and len(self.requests) == self.stop_after:
                raise ConnectionError("cut off")
            answers += super().loglikelihood([request])
            self.cache_hook.add_partial("loglikelihood", request.args, answers[-1])
        return answers


class Replica(Kept):
    """One of several processes that hold parts of one model: each has rank 0 of 1."""

    def __init__(self, stop_after: int | None) -> None:
        super().__init__(stop_after)
        self._rank, self._world_size = 0, 1


def run_kept(rank: int, world_size: int, kind: type, stop_after: int | None, metadata: dict, folder: str) -> None:
    import lm_eval.api.registry

    meet(rank, world_size, folder)
    lm = kind(stop_after)
    lm_eval.api.registry.get_model = lambda name: type(
        "Maker", (), {"create_from_arg_string": staticmethod(lambda *_: lm)}
    )
    manager = TaskManager(include_path=task_configs_path(), include_defaults=False, metadata=metadata)
    # replicas on two nodes without a shared disk: each has its own output folder
    output = f"{folder}/../kept" + (f"_{rank}" if kind is Replica else "")
    try:
        results = simple_evaluate(
            model="kept",
            model_args="pretrained=a",
            tasks=[TASK],
            task_manager=manager,
            evaluation_tracker=EvaluationTracker(output_path=output),
        )
        if results is not None and rank == 0:
            Path(folder, "samples.json").write_text(json.dumps(results["samples"][TASK]))
    except ConnectionError:
        pass
    Path(folder, f"asked_{rank}").write_text(json.dumps(lm.requests))
    dist.destroy_process_group()


def spawned(tmp_path: Path, name: str, n_processes: int, kind: type, stop_after: int | None, metadata: dict):
    folder = tmp_path / name
    folder.mkdir()
    mp.start_processes(
        run_kept, (n_processes, kind, stop_after, metadata, str(folder)), nprocs=n_processes, start_method="fork"
    )
    samples = folder / "samples.json"
    requests = [json.loads((folder / f"asked_{rank}").read_text()) for rank in range(n_processes)]
    return requests, json.loads(samples.read_text()) if samples.exists() else None


def texts(requests: list[list[list[str]]]) -> set[tuple[str, ...]]:
    """All requests of all ranks, without the dummy request of a rank that has none."""
    return {tuple(request) for requests_of_rank in requests for request in requests_of_rank} - {
        ("Skipped", " question")
    }


@pytest.mark.model
@pytest.mark.filterwarnings("ignore")
def test_a_run_can_be_resumed_with_another_number_of_processes(questions_file, tmp_path) -> None:
    metadata = questions_file(MANY) | {"control_form": False}
    earlier, _ = spawned(tmp_path, "two", 2, Kept, 50, metadata)
    assert [len(requests_of_rank) for requests_of_rank in earlier] == [50, 50]
    requests, samples = spawned(tmp_path, "three", 3, Kept, None, metadata)
    assert (
        len({len(requests_of_rank) for requests_of_rank in requests}) == 1
    )  # all ranks make the same number of calls
    assert not texts(earlier) & texts(requests)
    assert len(texts(earlier) | texts(requests)) == N_REQUESTS
    whole = evaluate(FakeLM(by_hash), metadata)["samples"][TASK]
    order = lambda line: (line["doc_id"], line["filter"])  # noqa: E731
    assert [line["pvalue"] for line in sorted(samples, key=order)] == [
        line["pvalue"] for line in sorted(whole, key=order)
    ]
    requests, _ = spawned(tmp_path, "five", 5, Kept, None, metadata)
    assert requests == [[]] * 5
    requests, _ = spawned(tmp_path, "one", 1, Kept, None, metadata)
    assert requests == [[]]


@pytest.mark.model
@pytest.mark.filterwarnings("ignore")
def test_processes_of_one_model_make_the_same_requests_whatever_each_has_saved(questions_file, tmp_path) -> None:
    metadata = questions_file(MANY) | {"control_form": False}
    earlier, _ = spawned(tmp_path, "begun", 2, Replica, 50, metadata)
    assert [len(requests_of_rank) for requests_of_rank in earlier] == [50, 50]
    assert not (tmp_path / "kept_1" / "leakage_answers").exists()  # only the first one writes
    requests, samples = spawned(tmp_path, "on", 2, Replica, None, metadata)
    assert [len(requests_of_rank) for requests_of_rank in requests] == [N_REQUESTS - 50] * 2
    assert requests[0] == requests[1]
    assert len(samples) == 2 * len(MANY)


# ---------------------------------------------------------------------- what the processes agree on


def agree(rank: int, world_size: int, folder: str) -> None:
    processes.PATIENCE = timedelta(seconds=2)
    meet(rank, world_size, folder)
    answers = [of_every(rank), is_first()]
    try:
        refuse_wrong_rank(0, 2)  # like a backend that numbers the processes of each node from 0
    except ValueError as error:
        answers.append(str(error))
    answers.append(asked_by_any([("same", "thing")]))
    answers.append(asked_by_any([("a", 1), ("a", 1), ("b", {})] if rank else [("c", 1), ("a", 1)]))
    Path(folder, f"reported_{rank}").write_text(json.dumps(answers))
    if rank == 0:
        try:
            of_every(1, in_step=True)  # the other one does not call it
        except RuntimeError as error:
            Path(folder, "alone").write_text(str(error))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.model
@pytest.mark.filterwarnings("ignore")
def test_processes_agree_and_wait_for_no_dead_one(tmp_path) -> None:
    mp.start_processes(agree, (2, str(tmp_path)), nprocs=2, start_method="fork")
    first, second = (json.loads((tmp_path / f"reported_{rank}").read_text()) for rank in range(2))
    union = [["c", 1], ["a", 1], ["a", 1], ["b", {}]]
    assert first == [[0, 1], True, None, union]
    assert second[3:] == [None, union]
    assert second[:2] == [[0, 1], False]
    assert second[2].startswith("this process is number 1 of 2, but the model says 0")
    assert "run again with a lower max_tokens" in (tmp_path / "alone").read_text()
