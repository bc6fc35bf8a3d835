"""Findings on each task of a plan, with every verdict at the level of its look.

A check of 100 questions, then of 300, then of 1,000 has three chances of a false alarm. The looks at one benchmark by
one model therefore share one error, as those of a seal do (`stats.looks`). Each look has a level of its own. Its
p-value is divided by its share of the error, before the p-values that are shown together are adjusted by Holm's
method. The same questions scored again are the same look, at its own level.

A first stage of fewer questions is no look. It ends the check by evidence at a tenth of the look's level; the whole
then has the other nine tenths. Or it ends it by an upper bound of the share of seen questions that excludes the share
which the check should be able to find; all such bounds of a benchmark share one error, too.

A model is identified by what its answers depend on, a benchmark by a digest of all its rows. Runs that do not record
which model they are of have looks of their own.
Limits: looks in another folder are not counted, nor are those of a deleted file.
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

LOOKS = "looks.jsonl"  # the file of a folder that records its looks


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

    task: a task or group; empty for other benchmarks in runs that the user names, which have no look of their own but
        are shown and count in Holm's method
    annotation: the rows of the task, of its members and of its subjects
    benchmarks: the tasks in it with digests of their rows, see `Step`
    n_available: the number of questions that may be drawn; None if it is not known
    whole: whether all of these are drawn
    staged: whether a first stage of fewer questions can end the check of the task
    problems: sentences on its runs for the user
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
        """Return the same findings with other rows."""
        return replace(self, annotation=replace(self.annotation, rows=tuple(rows)))


def at_their_looks(tasks: Sequence[TaskFindings], folder: Path, *, keep: bool = True) -> list[TaskFindings]:
    """Return the findings with every verdict at the level of its look, adjusted for all that are shown together.

    New looks are recorded in the folder before this returns, so that the caller must have locked it.

    keep: whether new looks are recorded; a first stage is no look
    """
    earlier = read_looks(folder)
    looks, rows = list(earlier), list[Row]()
    for task in tasks:
        look = _unnumbered_look(task)
        if look is not None:
            look, is_new = number_alone(looks, look)
            looks += [look] if is_new else []
        rows += (
            task.annotation.rows
            if look is None
            else [_row_at_look(row, look, staged=task.staged) for row in task.annotation.rows]
        )
    if keep and len(looks) > len(earlier):
        atomic_write(folder / LOOKS, "".join(f"{json.dumps(look_record(look))}\n" for look in looks))
    adjusted = iter([replace(row, verdict=at_its_level(row.verdict)) for row in adjusted_rows(rows)])
    return [task.with_rows(islice(adjusted, len(task.annotation.rows))) for task in tasks]


def _unnumbered_look(findings: TaskFindings) -> Look | None:
    """Return the look that findings are, with number 0.

    None for findings without a p-value, which cannot be a false alarm, and for those of no task of the plan.
    """
    if not findings.task:
        return None
    tested = [row for row in findings.own_rows if row.verdict.tested.n or row.verdict.has_texts]
    if not tested:
        return None
    row, verdict = tested[-1], tested[-1].verdict
    # the identity holds what answers depend on, so that a model under another path is the same
    identity = f"[{digest_of(findings.who.identity)}]"
    model = identity if row.provenance.asked_as else f"{findings.annotation.model} [unknown]"
    digests = {name: digest for name, digest in findings.benchmarks.items() if digest}
    benchmark = f"{findings.task} [{digest_of(digests or findings.benchmarks)}]"
    digest = _digest_of_analysis(findings.annotation.audited_questions, verdict)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Look(
        number=0,
        model=f"{model} on {benchmark}",
        digest=digest,
        alpha=EVIDENCE_LEVEL,
        pvalue=verdict.pvalue,
        log_evalue=verdict.tested.log_evalue,
        places="",
        time=now,
    )


def _digest_of_analysis(questions: Sequence[AuditedQuestion], verdict: DataVerdict) -> str:
    """Return a digest of which questions were tested, and of all that their p-value depends on.

    These are the basis of the verdict, the reference, the unseen questions and the layouts.
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


def _row_at_look(row: Row, look: Look, *, staged: bool) -> Row:
    """Return a row of a look's task, its members or subjects with the look's number and share of the error.

    staged: whether a first stage has taken its part of that share
    """
    spent = look.share / look.alpha * (1 - FIRST_STAGE if staged else 1)
    return replace(row, verdict=replace(row.verdict, look=look.number, spent=spent))


def ends_first_stage(verdict: DataVerdict) -> bool:
    """Return whether a first stage with this verdict ends the check of the task.

    Evidence counts at FIRST_STAGE of the look's level. The p-value is divided by the rest already, 1 - FIRST_STAGE.
    """
    if verdict.word == VerdictWord.NONE_FOUND:
        return True
    return verdict.deciding_pvalue <= EVIDENCE_LEVEL * FIRST_STAGE / (1 - FIRST_STAGE)
