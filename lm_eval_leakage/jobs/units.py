"""Units of a plan: what one worker does at a time, one model's run or audit of one task."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lm_eval_leakage.harness.tasks.templates import FILLER_AUDIT, FIRST_AUDIT
from lm_eval_leakage.jobs.plan import CHECKED_AUDITS, TOKENS, Plan
from lm_eval_leakage.logs.run import POSITIVE, UNSEEN
from lm_eval_leakage.records import StrEnum

RUN = "run"  # the kind of an ordinary run; other kinds are suffixes of audits


class Room(StrEnum):
    """The folder of units that are done. Only what is in `runs` is judged itself."""

    RUNS = "runs"
    REFERENCE = "reference"
    UNSEEN = UNSEEN
    POSITIVE = POSITIVE


@dataclass(frozen=True, order=True)
class Unit:
    """A unit of work: the run or audit of one task by one model.

    model: its key in the plan
    kind: `run`, or the suffix of an audit, which `reference-`, `unseen-` or `positive-` may stand before
    """

    model: str
    task: str
    kind: str

    @property
    def id(self) -> str:
        """The id of the unit, such as `smol/arc_challenge/leakage_perm`: its folder below its room and `work`."""
        return f"{self.model}/{self.task}/{self.kind}"

    @classmethod
    def of_id(cls, text: str) -> Unit:
        """Return the unit of an id; raises ValueError for anything that is not one."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"{text!r} is not the id of a unit; write it as MODEL/TASK/KIND")
        return cls(*parts)

    @property
    def room(self) -> Room:
        """The folder of the unit when it is done."""
        return next((room for room in [*Room][1:] if self.kind.startswith(f"{room}-")), Room.RUNS)

    @property
    def suffix(self) -> str:
        """The suffix of the audit that it runs; `run` for an ordinary run."""
        return self.kind if self.room is Room.RUNS else self.kind.removeprefix(f"{self.room}-")

    @property
    def asked(self) -> str:
        """The task or audit of lm_eval that it runs."""
        return self.task if self.kind == RUN else f"{self.task}_{self.suffix}"


def units_of(
    plan: Plan, audits: Mapping[str, Sequence[str]] | None = None, controlled: Collection[str] = ()
) -> list[Unit]:
    """Return all units, of each model together, and of each task together; the reference model comes last.

    audits: by tasks, suffixes of those that their verdicts rest on (`Finding.audits`); of option orders for others
    controlled: tasks that have a positive control
    """
    judging = {task: [*(audits or {}).get(task, (FIRST_AUDIT,))] for task in plan.tasks}

    def kinds_of(task: str) -> list[str]:
        suffixes = _audits_of(plan, judging[task])
        kinds = [] if plan.accuracy is False else [RUN]
        kinds += suffixes
        if plan.unseen is not None:  # what is asked of the benchmark, for comparison
            kinds += [f"{Room.UNSEEN}-{suffix}" for suffix in (*CHECKED_AUDITS, FILLER_AUDIT) if suffix in suffixes]
        if task in controlled:
            kinds += [f"{Room.POSITIVE}-{suffix}" for suffix in suffixes if suffix in (FIRST_AUDIT, FILLER_AUDIT)]
        return kinds

    referred = plan.reference_models or (plan.models if plan.reference is not None else ())
    keys = [(model.key, task, kind) for model in plan.models for task in plan.tasks for kind in kinds_of(task)]
    keys += [
        (model.key, task, f"{Room.REFERENCE}-{suffix}")
        for model in referred
        for task in plan.tasks
        for suffix in judging[task]
    ]
    if plan.unseen is not None and TOKENS in plan.audits:
        rooms = (Room.REFERENCE, Room.UNSEEN)
        keys += [
            (model.key, task, f"{room}-{TOKENS}")
            for model in plan.reference_models
            for task in plan.tasks
            if FIRST_AUDIT in judging[task]
            for room in rooms
        ]
    return [Unit(*key) for key in keys]


def _audits_of(plan: Plan, judging: Sequence[str]) -> list[str]:
    """Return the audits of a task.

    judging: suffixes of those that its verdict rests on
    """
    if FIRST_AUDIT not in judging:
        return [*judging] if {FIRST_AUDIT, *judging} & {*plan.audits} else []
    added = judging if FIRST_AUDIT in plan.audits else ()
    return list(dict.fromkeys([*plan.audits, *added]))
