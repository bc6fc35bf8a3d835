"""Cost of scheduling a campaign on Ray: 20 models x 40 benchmarks x 4 kinds with a worker that returns at once.

    python benchmarks/campaign.py [N_MODELS N_BENCHMARKS]

Ray is started on this machine and ended. What remains when units take no time is what the engine, Ray and the starts
of workers cost. It is compared with the time that units of 10 seconds would take on as many workers.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from types import TracebackType

from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.claims import Claim
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, now
from lm_eval_leakage.jobs.plan import Plan, PlanModel
from lm_eval_leakage.jobs.ray_engine import RayEngine
from lm_eval_leakage.jobs.steps import ReadyUnit, Step, UnitWork
from lm_eval_leakage.jobs.supervision import carry_out
from lm_eval_leakage.jobs.units import Unit

UNIT_S = 10.0
AUDITS = ("leakage_perm", "leakage_tokens", "leakage_semihalf")


class AtOnce:
    """A runner whose units are done as soon as they begin."""

    def __init__(self, folder: CampaignFolder, model: str, name: str) -> None:
        self._folder, self._name = folder, name

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Holds nothing."""

    def run(self, unit: Unit, claim: Claim) -> None:
        self._folder.conclude(unit, {})
        self._folder.record(Attempt(unit, True, 0.0, 24, 2400, None, False, self._name, now()))


def main() -> None:
    n_models, n_benchmarks = map(int, sys.argv[1:]) if len(sys.argv) == 3 else (20, 40)
    models = tuple(PlanModel(name=f"model{place}") for place in range(n_models))
    plan = Plan(models=models, tasks=tuple(f"task{place}" for place in range(n_benchmarks)), audits=AUDITS)
    units = units_of(plan)
    with tempfile.TemporaryDirectory() as place:
        folder = CampaignFolder(place)
        folder.make_ready(
            ReadyUnit(unit, n, plan.model(unit.model).who, (), (), Step(unit.task, ""), UnitWork("t", {}, {}, {}))
            for n, unit in enumerate(units)
        )
        began, cpu = time.monotonic(), time.process_time()
        carry_out(RayEngine(plan, folder, None, AtOnce))
        workers = {attempt.worker for attempt in folder.attempts()}
        wall, cpu = time.monotonic() - began, time.process_time() - cpu
    n_places = os.cpu_count() or 1
    ideal = len(units) * UNIT_S / n_places
    print(f"{len(units)} units of {n_models} models, {len(workers)} workers started, {n_places} at once")
    print(f"wall time: {wall:.1f} s with starting and ending Ray; {100 * wall / ideal:.2f} % of {ideal:.0f} s")
    print(
        f"driver: {1000 * cpu / len(units):.2f} ms of CPU per unit: enough for {len(units) * UNIT_S / cpu:.0f} workers"
    )
    print(f"driver: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB at most")


if __name__ == "__main__":
    main()
