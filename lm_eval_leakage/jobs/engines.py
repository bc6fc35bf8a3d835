"""Engines: what starts workers, on this machine or others, and hands them units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Protocol

from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.plan import Plan, Unit

INLINE, LOCAL, RAY, SLURM = "inline", "local", "ray", "slurm"
GROUP = "lm_eval_leakage.engines"  # of entry points, by which another package adds one
PLACES = {
    INLINE: "unit_worker:InlineEngine",
    LOCAL: "local_engine:LocalEngine",
    RAY: "ray_engine:RayEngine",
    SLURM: "slurm_engine:SlurmEngine",
}  # imported when used: made from the plan, the folder and the address
CLASSES = {name: EntryPoint(name, f"lm_eval_leakage.jobs.{place}", GROUP) for name, place in PLACES.items()}
EXTRAS = {RAY: "ray", SLURM: "submitit"}  # the package that an engine needs
Tell = Callable[[Attempt], None]
Begun = Callable[[Unit, str], None]


class CampaignEngine(Protocol):
    """Starts workers and places them."""

    @property
    def description(self) -> str:
        """What it is, for the user: `local, 1 worker`."""

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """Runs units until each is done or given up. If it is interrupted, its workers end, but for jobs of a cluster.

        tell: called with every attempt as it ends. Attempts that were lost with their worker are recorded by the
            engine, all others by the worker
        begun: called with a unit and the name of the worker that begins it
        """


def engine_of(name: str | None, address: str | None, plan: Plan, folder: CampaignFolder) -> CampaignEngine:
    """The engine of this name; raises ValueError or ImportError, with the remedy, if it cannot be used.

    name: None takes Ray if it is installed and there is an address or more than one accelerator, else this machine
    address: of a Ray cluster; `local` for jobs of submitit on this machine
    """
    engine: CampaignEngine = entry_of(name or usual_engine(address), address).load()(plan, folder, address)
    return engine


def entry_of(name: str, address: str | None) -> EntryPoint:
    """Where the engine of this name is; raises ValueError or ImportError for what is known without it."""
    known = {one.name: one for one in entry_points(group=GROUP)} | CLASSES
    if name not in known:
        raise ValueError(f"engine is {name!r}; choose one of: {', '.join(sorted(known))}")
    if address is not None and name in (INLINE, LOCAL):
        raise ValueError(f"address is {address!r}, which is for --engine ray and slurm; leave it out for this machine")
    package = EXTRAS.get(name)
    if package is not None and find_spec(package) is None:
        raise ImportError(
            f"--engine {name} needs {package}, which is not installed; run `pip install 'lm-eval-leakage[{name}]'`"
        )
    return known[name]


def usual_engine(address: str | None) -> str:
    if address is not None:
        return RAY
    return RAY if find_spec(EXTRAS[RAY]) is not None and n_accelerators() > 1 else LOCAL


def n_accelerators() -> int:
    """GPUs that this process may use."""
    import torch

    return int(torch.cuda.device_count())


def lost_attempt(unit: Unit, worker: str, error: str, seconds: float, *, lost: bool = True) -> Attempt:
    """An attempt whose worker cannot tell of it any more.

    lost: False if it is the unit's own fault, such as one that took longer than the plan allows
    """
    return Attempt(unit, False, seconds, 0, 0, error, lost, worker, now())


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
