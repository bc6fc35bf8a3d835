"""Data parallelism for real: processes that share the questions over torch.distributed (gloo)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from lm_eval_leakage.harness.processes import on_all
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import EMPTY, FIVE, GOOD, ONE, SAME, TASK, TWINS, evaluate

# every other question goes to the second process, which so has none that can be tested
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


def run_rank(rank: int, world_size: int, metadata: dict, folder: str) -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "RANK": str(rank), "WORLD_SIZE": str(world_size)}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world_size)
    results = evaluate(RankedLM(), metadata)
    if results is not None:
        Path(folder, "row.json").write_text(json.dumps(results["results"][TASK]))
    Path(folder, f"all_{rank}").write_text(str([on_all(rank == 0), on_all(True), on_all(False)]))
    dist.destroy_process_group()


@pytest.mark.model  # several interpreters, one after the other
@pytest.mark.filterwarnings("ignore")
def test_the_rows_do_not_depend_on_the_number_of_processes(questions_file, tmp_path) -> None:
    metadata = questions_file(DOCS)
    alone = evaluate(FakeLM(by_hash), metadata)["results"][TASK]
    mp.spawn(run_rank, (2, metadata, str(tmp_path)), nprocs=2)
    together = json.loads((tmp_path / "row.json").read_text())
    assert together == pytest.approx(dict(alone), nan_ok=True)
    for rank in range(2):  # what only the first process finds is not found by all
        assert (tmp_path / f"all_{rank}").read_text() == str([False, True, False])


def test_one_process_decides_alone() -> None:
    assert on_all(True)
    assert not on_all(False)
