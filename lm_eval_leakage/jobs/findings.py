"""Findings on each task of a plan, with every verdict at the level of its look.

Who asks 100 questions, then 300, then 1,000 has three chances of a false alarm, so the looks at one benchmark by one
model share one error, as those of a seal do (`stats.looks`): each has a level of its own, and the p-value is adjusted
for it before those that are shown together are adjusted by Holm's method. The same questions asked again are the same
look, at its own level. A first stage of fewer questions is no look: it ends with evidence at a tenth of the look's
level, which is taken off the whole's, or with an upper bound of the share of seen questions that excludes what has to
be excluded; all such bounds of a benchmark share one error, too.
A model is known by what its answers depend on, a benchmark by a digest of all its rows; runs that do not say which
model they are of have looks of their own.
Limits: nothing counts looks in another folder, or without the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.named_model import NamedModel
from lm_eval_leakage.logs.run import digest_of
from lm_eval_leakage.results.data_verdict import at_its_level
from lm_eval_leakage.results.result_types import Annotation, AuditedQuestion, Row
from lm_eval_leakage.results.rows import adjusted_rows
from lm_eval_leakage.results.tables import benchmarks
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL, Basis, DataVerdict, VerdictWord
from lm_eval_leakage.stats.looks import FIRST_STAGE, Look, look_of, look_record, number_alone

LOOKS = "looks.jsonl"


def read_looks(folder: Path) -> list[Look]:
    """Return the looks that are recorded in a folder.

    Raises ValueError for a file that this package did not write: looks that are lost would raise the error.
    """
    file = folder / LOOKS
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [look_of(json.loads(line)) for line in lines]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{file}, which counts the looks at each benchmark, is not as this package wrote it ({error!r}); restore "
            "it, or give another output_path"
        ) from error


@dataclass(frozen=True)
class TaskFindings:
    """The findings of the units of one model and one task of the plan, and of nothing else.

    task: a task or group; empty for other benchmarks in runs that the user names, which are shown and adjusted for
    annotation: its rows, those of its members and of its subjects
    whole: whether all of its `n_available` questions are asked; staged: whether fewer might have ended it
    benchmarks: the tasks in it with digests of their rows, see `Step`
    problems: what is to be said of its runs
    """

    who: NamedModel
    task: str
    annotation: Annotation
    benchmarks: Mapping[str, str]
    n_available: int | None = None
    whole: bool = False
    staged: bool = False
    problems: tuple[str, ...] = ()

    @property
    def own_rows(self) -> list[Row]:
        """The rows of the task or group itself, one for each number of examples."""
        return benchmarks(self.annotation.rows)

    def with_rows(self, rows: Iterable[Row]) -> TaskFindings:
        return replace(self, annotation=replace(self.annotation, rows=tuple(rows)))


def at_their_looks(tasks: Sequence[TaskFindings], folder: Path, *, keep: bool = True) -> list[TaskFindings]:
    """Return the findings with every verdict at the level of its look. New looks are in the folder when this returns.

    The folder is locked by whoever calls this.

    keep: whether new looks are written
    """
    earlier = read_looks(folder)
    looks, rows = list(earlier), list[Row]()
    for task in tasks:
        look = _look_at(task)
        if look is not None:
            look, is_new = number_alone(looks, look)
            looks += [look] if is_new else []
        rows += task.annotation.rows if look is None else [_at_look(row, look, task) for row in task.annotation.rows]
    if keep and len(looks) > len(earlier):
        atomic_write(folder / LOOKS, "".join(f"{json.dumps(look_record(look))}\n" for look in looks))
    adjusted = iter([replace(row, verdict=at_its_level(row.verdict)) for row in adjusted_rows(rows)])
    return [task.with_rows(islice(adjusted, len(task.annotation.rows))) for task in tasks]


def _look_at(findings: TaskFindings) -> Look | None:
    """Return the look at a task that has a p-value, which is all that could alarm; not numbered yet."""
    if not findings.task:
        return None
    tested = [row for row in findings.own_rows if row.verdict.tested.n or row.verdict.has_texts]
    if not tested:
        return None
    row, digests = tested[-1], {name: digest for name, digest in findings.benchmarks.items() if digest}
    # by what its answers depend on, so that it is the same model under another path
    identity = f"[{digest_of(findings.who.identity)}]"
    model = identity if row.provenance.asked_as else f"{findings.annotation.model} [unknown]"
    benchmark = f"{findings.task} [{digest_of(digests or findings.benchmarks)}]"
    digest = _digest_of(findings.annotation.audited_questions, row.verdict)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    of, verdict = f"{model} on {benchmark}", row.verdict
    return Look(0, of, digest, EVIDENCE_LEVEL, verdict.pvalue, verdict.tested.log_evalue, "", now)


def _digest_of(questions: Sequence[AuditedQuestion], verdict: DataVerdict) -> str:
    """Return the digest of which questions were tested, and by what.

    With another reference, other unseen questions or in other layouts, their p-value is another one.
    """
    basis, texts = verdict.basis, verdict.texts
    unseen = "" if texts is None else f"{texts.n_unseen} {texts.mean:.4g}"
    digest = blake2b(f"{basis}{unseen}".encode(), digest_size=8)
    orders_of = {question.doc_hash: question.orders for question in questions if question.orders is not None}
    for name, orders in sorted(orders_of.items()):
        reference = orders.reference if basis == Basis.REFERENCE else ()
        digest.update(json.dumps([name, reference, *orders.layouts]).encode())
    fillers_of = {question.doc_hash: question.fillers for question in questions if question.fillers is not None}
    for name, fillers in sorted(fillers_of.items()):
        digest.update(json.dumps([name, fillers.block, fillers.reference, *fillers.layouts, fillers.start]).encode())
    return digest.hexdigest()


def _at_look(row: Row, look: Look, findings: TaskFindings) -> Row:
    """Return a row with its verdict at the level of the look; it may be of a member of the group, or of a subject."""
    spent = look.share / look.alpha * (1 - FIRST_STAGE if findings.staged else 1)
    return replace(row, verdict=replace(row.verdict, look=look.number, spent=spent))


def ends_first_stage(verdict: DataVerdict) -> bool:
    """Return whether the fewer questions that are asked first are enough."""
    if verdict.word == VerdictWord.NONE_FOUND:
        return True
    return verdict.deciding_pvalue <= EVIDENCE_LEVEL * FIRST_STAGE / (1 - FIRST_STAGE)
