"""A worker as an actor of Ray: a process on a node of the cluster, which holds one model."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lm_eval_leakage
from lm_eval_leakage.jobs.folder import LOCKS, CampaignFolder
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.worker import work

RunnerMaker = Callable[..., Any]


class WorkerActor:
    """A process that holds one model. Ray ends it when the driver's job ends, whatever it is doing.

    maker: what makes the runner in its process; `UnitRunner` unless a test or a measurement says otherwise
    """

    def __init__(self, plan: Plan, model: str, folder: Path, name: str, maker: RunnerMaker | None) -> None:
        self._plan, self._model_key, self._folder, self._worker_name = plan, model, CampaignFolder(folder), name
        self._maker = maker

    def __repr__(self) -> str:
        return self._worker_name  # as Ray's dashboard shows it

    def ready(self, mark: str, version: str, cwd: Path) -> None:
        """Prepare this node for the worker.

        Raises ValueError if it cannot be used; if the actor raised it while it is made, Ray would not always report
        why. As on one machine, a model without GPUs sees none if others have theirs, and all if none is reserved.

        cwd: the driver's working directory, from which relative paths of the plan are meant
        """
        refuse_node(self._folder.path, mark, version)
        if cwd.is_dir():
            os.chdir(cwd)
        if not self._plan.model(self._model_key).gpus and any(model.gpus for model in self._plan.models):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def work(self) -> None:
        """Run units until none is left to claim."""
        if self._maker is None:
            from lm_eval_leakage.jobs.unit_runner import UnitRunner  # late: it loads the harness

            self._maker = UnitRunner
        with self._maker(self._folder, self._model_key, self._worker_name) as runner:
            work(self._folder, self._plan.retries, self._model_key, self._worker_name, runner)


def mark_of(folder: Path) -> Path:
    """Return a file with a text that no earlier campaign can have left on a node's own disk."""
    return folder / LOCKS / "ray"


def refuse_node(folder: Path, mark: str, version: str) -> None:
    """Raise ValueError, as the end of a sentence about a worker, unless this node sees the mark that the driver wrote
    into the folder, may write there and has the driver's version of this package."""
    node, file, version_here = f"its node {socket.gethostname()}", mark_of(folder), lm_eval_leakage.__version__
    if not file.is_file() or file.read_text() != mark:
        raise ValueError(
            f"{node} does not see the campaign's folder {folder}; choose an --output_path that all nodes share"
        )
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{node} cannot write to {folder}; let the user that runs Ray there write to it")
    if version_here != version:
        raise ValueError(f"{node} has lm-eval-leakage {version_here}; install {version} on every node")
