"""Engines: what starts workers, on this machine or others, and says which of them have ended and why."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.plan import Plan

INLINE, LOCAL, RAY, SLURM = "inline", "local", "ray", "slurm"
GROUP = "lm_eval_leakage.engines"  # of entry points, by which another package adds one
PLACES = {
    INLINE: "inline_engine:InlineEngine",
    LOCAL: "local_engine:LocalEngine",
    RAY: "ray_engine:RayEngine",
    SLURM: "slurm_engine:SlurmEngine",
}  # imported when used: made from the plan, the folder and the address
CLASSES = {name: EntryPoint(name, f"lm_eval_leakage.jobs.{place}", GROUP) for name, place in PLACES.items()}
EXTRAS = {RAY: "ray", SLURM: "submitit"}  # the package that an engine needs
LOOK_S = 0.5  # between two looks at the folder and at workers


class JobEngine(ABC):
    """Starts workers and ends them; which ones are wanted is decided in `supervision`.

    As a context manager, it is ready to start workers within the block, and ends those that are left afterwards.

    most: workers at once
    minutes: the time limit of an attempt, after which its worker is stopped; None if there is none
    workers: names of those that have been started and not ended, with the keys of their models
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
        """Start a worker; this may return before it runs."""

    @abstractmethod
    def ended(self) -> Mapping[str, str | None]:
        """Return the workers that have ended since the last call, each with the reason as the end of a sentence, or
        with None if it ended since nothing was left to claim. Waits `LOOK_S` if there are none."""

    @abstractmethod
    def stop(self, name: str) -> None:
        """End a worker at once, with its children, whatever it does."""

    def has_room(self, model: str) -> bool:
        """Return whether another worker of this model can be started now."""
        return True

    def most_of(self, model: str) -> float:
        """Return how many workers of this model may run at once."""
        return self.plan.model(model).workers or self.most

    def why_hopeless(self, model: str) -> str | None:
        """Return why no worker of this model will ever be started; None if one may be."""
        return None

    def __enter__(self) -> JobEngine:
        return self

    def __exit__(self, *error: Any) -> None:
        for name in [*self.workers]:
            self.stop(name)


def engine_of(name: str | None, address: str | None, plan: Plan, folder: CampaignFolder) -> JobEngine:
    """Return the engine of this name; raises ValueError or ImportError, with the remedy, if it cannot be used.

    name: None takes Ray if it is installed and there is an address or more than one accelerator, else this machine
    address: of a Ray cluster; `local` for jobs of submitit on this machine
    """
    engine: JobEngine = entry_of(name or usual_engine(address), address).load()(plan, folder, address)
    return engine


def entry_of(name: str, address: str | None) -> EntryPoint:
    """Return the entry point of an engine; raises ValueError or ImportError for what is known without loading it."""
    entries = {entry.name: entry for entry in entry_points(group=GROUP)} | CLASSES
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
    if address is not None:
        return RAY
    return RAY if find_spec(EXTRAS[RAY]) is not None and n_accelerators() > 1 else LOCAL


def n_accelerators() -> int:
    """Return the number of GPUs that this process may use."""
    import torch

    return int(torch.cuda.device_count())
