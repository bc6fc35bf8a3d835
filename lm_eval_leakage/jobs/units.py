"""Units of a plan: what one worker does at a time, one model's run or audit of one task."""

from __future__ import annotations

from dataclasses import dataclass, field

from lm_eval_leakage.logs.run import POSITIVE, REFERENCE, RUNS, UNSEEN
from lm_eval_leakage.records import StrEnum

RUN = "run"  # the kind of an ordinary run; other kinds are suffixes of audits


class Role(StrEnum):
    """The role of a unit in a verdict, and the folder of units that are done. Only `runs` are judged themselves."""

    RUNS = RUNS
    REFERENCE = REFERENCE
    UNSEEN = UNSEEN
    POSITIVE = POSITIVE


@dataclass(frozen=True, order=True)
class Unit:
    """A unit of work: the run or audit of one task by one model.

    id: such as `smol/arc_challenge/leakage_perm`: its folder in those of the campaign
    model: its key in the plan
    kind: `run`, or the suffix of an audit, which `reference-`, `unseen-` or `positive-` may stand before
    role: which its kind begins with
    suffix: of the audit that it runs; `run` for an ordinary run
    """

    id: str = field(compare=False)
    model: str = field(repr=False)
    task: str = field(repr=False)
    kind: str = field(repr=False)
    role: Role = field(compare=False, repr=False)
    suffix: str = field(compare=False, repr=False)

    @classmethod
    def of(cls, model: str, task: str, kind: str) -> Unit:
        """Return the unit of a kind."""
        role, suffix = Role.RUNS, kind
        for other in (Role.REFERENCE, Role.UNSEEN, Role.POSITIVE):
            if kind.startswith(f"{other}-"):
                role, suffix = other, kind.removeprefix(f"{other}-")
        return cls(f"{model}/{task}/{kind}", model, task, kind, role, suffix)

    @classmethod
    def of_id(cls, text: str) -> Unit:
        """Return the unit of an id; raises ValueError for anything that is not one."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"{text!r} is not the id of a unit; write it as MODEL/TASK/KIND")
        return cls.of(*parts)
