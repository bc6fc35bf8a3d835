"""The step of a unit, which says what is to be done for it, and the file from which a worker does it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.costs import RunSize
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.records import StrEnum

if TYPE_CHECKING:
    from lm_eval_leakage.harness.named_model import NamedModel

OF_DRIVER = ("size",)  # fields of `UnitWork` that are not written
IN_MEMORY = "loaded"  # likewise, of a model


class StepStatus(StrEnum):
    TO_RUN = "to run"
    THERE = "there already"
    NOT_NEEDED = "not needed"
    NOT_POSSIBLE = "not possible"


@dataclass(frozen=True)
class UnitWork:
    """The questions that a model is asked for a unit.

    task: the task or audit of lm_eval, loaded with `metadata` and, where it is not None, `num_fewshot` examples
    samples: indices of the chosen rows by task, sorted
    digests: of all rows of these tasks
    seed: by which the rows were drawn; None if they are all
    n_characters: in the texts of all requests; n_tokens: that are read, and at most generated; both are estimated
    size: the estimate that these are from
    """

    task: str
    metadata: Mapping[str, Any]
    samples: Mapping[str, Sequence[int]]
    digests: Mapping[str, str]
    num_fewshot: int | None = None
    seed: int | None = None
    n_characters: int = 0
    n_tokens: int = 0
    size: RunSize | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Step:
    """The step of a unit: whether it is run, reused or skipped, and why.

    All but `work` is written into the file of the unit that is done, from which verdicts are computed.

    n_questions, n_requests, n_tokens: 0 if unknown; tokens are estimated
    note: where it is, or why it is not run; remedy: what may change that
    files: results files of given runs that are there already
    remarks: sentences about them
    benchmarks: the tasks in it, with digests of the rows of those whose option orders can be audited
    n_available: questions that may be drawn; 0 if unknown; whole: whether all of them are asked
    staged: whether fewer questions might have been the end
    work: None where the model is not asked
    """

    task: str
    what: str
    n_questions: int = 0
    n_requests: int = 0
    n_tokens: int = 0
    status: StepStatus = StepStatus.TO_RUN
    note: str = ""
    remedy: str = ""
    files: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    benchmarks: Mapping[str, str] = field(default_factory=dict, hash=False)
    n_available: int = 0
    whole: bool = False
    staged: bool = False
    work: UnitWork | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Step:
        """Return the step of a record; raises TypeError or ValueError for what is none of `as_record`."""
        files, remarks = tuple(record["files"]), tuple(record["remarks"])
        return cls(**{**record, "status": StepStatus(record["status"]), "files": files, "remarks": remarks})

    @property
    def as_record(self) -> dict[str, Any]:
        record = asdict(replace(self, work=None))
        del record["work"]
        return record


@dataclass(frozen=True)
class ReadyUnit:
    """A unit that a worker can run, from its file alone.

    place: in the order of the plan
    who: its model
    include_paths, imports: as the plan names them
    """

    unit: Unit
    place: int
    who: NamedModel
    include_paths: Sequence[str]
    imports: Sequence[str]
    step: Step
    work: UnitWork

    @property
    def digest(self) -> str:
        """The digest of which rows are asked, and how.

        Those of two files are equal if their answers may stand for each other.
        """
        work = self.work
        parts = [work.task, work.metadata, work.num_fewshot, work.samples, work.digests]
        text = json.dumps(parts, sort_keys=True, default=str)
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def write(self, file: Path) -> None:
        work = {name: value for name, value in vars(self.work).items() if name not in OF_DRIVER}
        record = {
            **vars(self),
            "unit": self.unit.id,
            "who": {name: value for name, value in vars(self.who).items() if name != IN_MEMORY},
            "step": self.step.as_record,
            "work": work,
        }
        atomic_write(file, json.dumps(record, default=str) + "\n")

    @classmethod
    def read(cls, file: Path) -> ReadyUnit:
        """Return the unit of a file.

        Raises FileNotFoundError if there is none any more, and ValueError for a file that the driver did not write.
        """
        from lm_eval_leakage.harness.named_model import NamedModel  # late: imports lm_eval

        text = file.read_text(encoding="utf-8")
        try:
            record = json.loads(text)
            unit = Unit.of_id(record["unit"])
            who, step, work = NamedModel(**record["who"]), Step.of(record["step"]), UnitWork(**record["work"])
            return cls(**{**record, "unit": unit, "who": who, "step": step, "work": work})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{file} is not as the driver wrote it ({error!r}); start the same command again"
            ) from error
