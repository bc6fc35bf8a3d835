"""Define what an engine is, and choose one.

An engine starts workers, on this machine or others, and reports which of them have ended and why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.plan import Plan

INLINE, LOCAL, RAY, SLURM = "inline", "local", "ray", "slurm"
GROUP = "lm_eval_leakage.engines"  # of entry points, by which another package adds an engine
OUR_ENGINES = {  # classes, imported when used; each takes the plan, the folder and the address
    INLINE: EntryPoint(INLINE, "lm_eval_leakage.jobs.inline_engine:InlineEngine", GROUP),
    LOCAL: EntryPoint(LOCAL, "lm_eval_leakage.jobs.local_engine:LocalEngine", GROUP),
    RAY: EntryPoint(RAY, "lm_eval_leakage.jobs.ray_engine:RayEngine", GROUP),
    SLURM: EntryPoint(SLURM, "lm_eval_leakage.jobs.slurm_engine:SlurmEngine", GROUP),
}
EXTRAS = {RAY: "ray", SLURM: "submitit"}  # the package that an engine needs
LOOK_S = 0.5  # seconds between two reports on the folder and the workers


class JobEngine(ABC):
    """Starts workers and stops them; `supervision` decides when.

    As a context manager, it is ready to start workers within the block, and stops those that are left afterwards. A
    model is named by its key in the plan.

    most: how many workers may run at once; infinite if there is no limit
    minutes: the time limit of an attempt, after which `supervision` stops its worker; None if there is none
    workers: the model of each worker that was started, and has neither been stopped nor reported as ended
    """

    def __init__(self, plan: Plan, folder: CampaignFolder, most: float) -> None:
        self.plan, self.folder, self.most = plan, folder, most
        self.minutes: float | None = plan.minutes
        self.workers: dict[str, str] = {}

    @property
    @abstractmethod
    def description(self) -> str:
        """The engine in words for the user, such as `local, 1 worker`."""

    @abstractmethod
    def start(self, model: str, name: str) -> None:
        """Start a worker of a model under a new name; this may return before it runs."""

    @abstractmethod
    def ended(self) -> Mapping[str, str | None]:
        """Return the workers that have ended since the last call, with the reasons, and remove them from `workers`.

        A reason is the end of a sentence about the worker, or None if it ended since no unit was left to claim. The
        call waits `LOOK_S` if no worker has ended.
        """

    @abstractmethod
    def stop(self, name: str) -> None:
        """Stop a worker at once, with its child processes, and remove it from `workers`."""

    def has_room(self, model: str) -> bool:
        """Return whether the devices that another worker of this model needs are free now."""
        return True

    def most_of(self, model: str) -> float:
        """Return how many workers of this model may run at once."""
        return self.plan.model(model).workers or self.most

    def why_hopeless(self, model: str) -> str | None:
        """Return why no worker of this model can ever be started; None if one may be."""
        return None

    def __enter__(self) -> JobEngine:
        return self

    def __exit__(self, *error: Any) -> None:
        for name in [*self.workers]:
            self.stop(name)


def engine_of(name: str | None, address: str | None, plan: Plan, folder: CampaignFolder) -> JobEngine:
    """Return the engine of this name for a plan and its folder; None stands for the `usual_engine`.

    Raises ValueError or ImportError, with the remedy, if it cannot be used.

    address: of a Ray cluster; `local` has Slurm's jobs run on this machine, without Slurm
    """
    engine: JobEngine = engine_entry_point(name or usual_engine(address), address).load()(plan, folder, address)
    return engine


def engine_entry_point(name: str, address: str | None) -> EntryPoint:
    """Return the entry point of an engine, without loading it.

    Raises ValueError for an unknown name or an address that the engine does not take, and ImportError if the package
    that it needs is not installed.
    """
    entries = {entry.name: entry for entry in entry_points(group=GROUP)} | OUR_ENGINES
    if name not in entries:
        raise ValueError(f"engine is {name!r}; choose one of: {', '.join(sorted(entries))}")
    if address is not None and name in (INLINE, LOCAL):
        raise ValueError(f"address is {address!r}, which is for --engine ray and slurm; leave it out for this machine")
    package = EXTRAS.get(name)
    if package is not None and find_spec(package) is None:
        raise ImportError(
            f"--engine {name} needs {package}, which is not installed; run `pip install 'lm-eval-leakage[{name}]'`"
        )
    return entries[name]


def usual_engine(address: str | None) -> str:
    """Return the engine to use if none is named.

    It is Ray if there is an address, or if Ray is installed and there is more than one GPU; else the local one.
    """
    if address is not None:
        return RAY
    return RAY if find_spec(EXTRAS[RAY]) is not None and n_accelerators() > 1 else LOCAL


def n_accelerators() -> int:
    """Return the number of GPUs that this process may use."""
    import torch

    return int(torch.cuda.device_count())
