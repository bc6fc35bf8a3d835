"""Processes of `hf-prefix-tree` that are killed, without a launcher that would end the others (gloo, CPUs)."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from lm_eval_leakage.harness.models import prefix_tree_lm
from lm_eval_leakage.harness.models import prefix_tree_lm as exact_scoring
from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM, ScorerChoice
from lm_eval_leakage.scoring.scorers import TreeScorer
from tests.harness.launched import free_port, launched_as
from tests.harness.shared_model import PAIRS
from tests.harness.test_prefix_tree_lm import asked, checkpoint

LONG = 100  # seconds; more than a test may take
NOT_TOGETHER = "the processes of this model no longer compute the same"
REASONS = {"error": "MemoryError: no memory left", "memory": f"RuntimeError: {NOT_TOGETHER}"}


def killed(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def slow(*_: Any, **__: Any) -> None:
    time.sleep(LONG)


def failing(*_: Any, **__: Any) -> None:
    raise MemoryError("no memory left")


def out_of_memory(*_: Any, **__: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory.")


# What is replaced in process 1 and in process 0, which it would then wait for or be busy with for long.
STAGES: dict[str, tuple[tuple[Any, str, Callable[..., None]], tuple[Any, str, Callable[..., None]] | None]] = {
    "load": ((PrefixTreeLM, "_create_model", killed), (PrefixTreeLM, "_create_model", slow)),
    "check": ((ScorerChoice, "settle", killed), None),
    "scoring": ((TreeScorer, "_advance", killed), (TreeScorer, "_advance", slow)),
    "error": ((TreeScorer, "_advance", failing), (TreeScorer, "_advance", slow)),
    "memory": ((TreeScorer, "_advance", out_of_memory), None),
    "gather": ((PrefixTreeLM, "gather_object", killed), None),
}


def run(number: int, port: int, stage: str, model: str, arguments: dict[str, Any], folder: Path) -> None:
    launched_as(number, port)
    logging.basicConfig(filename=folder / f"log_{number}", force=True)
    prefix_tree_lm.PATIENCE = exact_scoring.PATIENCE = timedelta(seconds=1)
    replaced = STAGES[stage][1 - number]
    if replaced is not None and stage in ("load", "check"):
        setattr(*replaced)
    lm = PrefixTreeLM(pretrained=model, device="cpu", dtype="float32", max_length=100, **arguments)
    if replaced is not None:
        setattr(*replaced)
    lm.loglikelihood(asked(PAIRS), disable_tqdm=True)
    lm.gather_object(number)
    distributed.barrier()  # as if there were more to do: NCCL waits, gloo notices


def ended(stage: str, model: str, arguments: dict[str, Any], folder: Path) -> tuple[int | None, str, float]:
    """Exit code and log of process 0, and the seconds from the end of process 1 to its own."""
    port, context = free_port(), multiprocessing.get_context("fork")
    both = [context.Process(target=run, args=(number, port, stage, model, arguments, folder)) for number in range(2)]
    for process in both:
        process.start()
    both[1].join(60)
    assert both[1].exitcode in (-signal.SIGKILL, 1)
    begun = time.monotonic()
    both[0].join(60)
    code = both[0].exitcode
    both[0].kill()
    return code, (folder / "log_0").read_text(), time.monotonic() - begun


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoint(tmp_path_factory.mktemp("model"))


@pytest.mark.model  # starts processes
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("stage", "arguments"),
    [(stage, {}) for stage in STAGES if stage != "memory"]
    + [(stage, {"tp_plan": "auto"}) for stage in STAGES if stage != "gather"],
    ids=lambda value: value if isinstance(value, str) else ("tensor" if value else "data") + " parallel",
)
def test_if_one_process_dies_the_other_ends_with_a_sentence(stage, arguments, model, tmp_path) -> None:
    code, log, seconds = ended(stage, model, arguments, tmp_path)
    reason = (
        f"failed ({REASONS[stage]}" if stage in REASONS else "was killed, or its machine is gone, so process 0 ends"
    )
    assert f"process 1 of 2 on {socket.gethostname()} {reason}" in log
    assert "the same command continues from there" in log
    assert (code, seconds < 20) == (1, True)
