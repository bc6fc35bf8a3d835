"""The rows that an audit of a harness task asks about: the task's own, or those of a file in their place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lm_eval.api.task import ConfigurableTask

from lm_eval_leakage.harness.tasks.base_task import reader_of, texts_before
from lm_eval_leakage.harness.tasks.data_files import read_file
from lm_eval_leakage.questions.fields import Doc, question_from_doc
from lm_eval_leakage.questions.row_texts import texts_in
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)

QUESTIONS_TRIED = 50  # questions by which a task is judged before it is audited


class RefusedAudit(ValueError):
    """A task of which an audit would be impossible or would mean nothing; its message is the reason."""


@dataclass(frozen=True)
class AuditedRows:
    """rows: as the harness hashes and logs them
    read: what makes a question of each
    in_data: texts of a row before the task made anything of it
    """

    rows: Sequence[Mapping[str, Any]]
    read: Callable[[Doc], Question]
    in_data: Collection[str]


def rows_of(base: ConfigurableTask, metadata: Mapping[str, object]) -> AuditedRows:
    """`base`'s rows, or those of the file that `data_files` names: in `base`'s own words where it can render them,
    else as plain questions, which the log says. Raises RefusedAudit where the file's rows are neither."""
    if "data_files" not in metadata:
        return AuditedRows(base.eval_docs, reader_of(base), texts_before(base))
    given = read_file(metadata["data_files"])
    read, in_data = reader_of(base), frozenset(texts_in(given[0]))
    for rows in _prepared(base, given):
        if _some_readable(rows, read):
            return AuditedRows(rows, read, in_data)
    if not _some_readable(given, question_from_doc):
        raise RefusedAudit(_misfit(base, given, str(metadata["data_files"]), read))
    logger.warning(
        "%s cannot render the rows of data_files=%s (%s), so they are asked as plain questions and not in its prompt",
        base.config.task,
        metadata["data_files"],
        _reason(given, read),
    )
    return AuditedRows(given, question_from_doc, in_data)


def _prepared(base: ConfigurableTask, rows: Any) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The rows as the task prepares its own, where it can, and as they stand."""
    if callable(base.config.process_docs):
        try:
            yield base.config.process_docs(rows)
        except Exception as error:  # whatever a task's function makes of fields that it does not know
            logger.debug("%s cannot prepare these rows: %r", base.config.task, error)
    yield rows


def _some_readable(rows: Sequence[Mapping[str, Any]], read: Callable[[Doc], Question]) -> bool:
    return any(_reading(row, read) is None for row in islice(rows, QUESTIONS_TRIED))


def _reading(row: Mapping[str, Any], read: Callable[[Doc], Question]) -> str | None:
    """Why a row cannot be read; None where it can."""
    try:
        read(row)
    except UntestableQuestion as error:
        return str(error)
    return None


def _reason(rows: Sequence[Mapping[str, Any]], read: Callable[[Doc], Question]) -> str:
    return f"of the first: {_reading(rows[0], read)}"


def _misfit(base: ConfigurableTask, rows: Any, file: str, read: Callable[[Doc], Question]) -> str:
    split = base.config.test_split or base.config.validation_split
    own = getattr(base.dataset[split], "column_names", None) if split in (base.dataset or {}) else None
    needed = f"{base.config.task}'s own rows have {brief(own)}; " if own else ""
    return (
        f"data_files is {file!r}, whose rows have the fields {brief(list(rows.column_names))}, and {base.config.task} "
        f"can make no question of them ({_reason(rows, read)}); {needed}rename the fields to those, or to question, "
        "choices and answer"
    )


def refuse_one_file_for_many(name: str, n_tasks: int, metadata: Mapping[str, object], suffix: str) -> None:
    """Raises RefusedAudit where one file would be asked about once for each task of a group or tag."""
    if n_tasks > 1 and "data_files" in metadata:
        raise RefusedAudit(
            f"data_files is {metadata['data_files']!r}, and {name} stands for {n_tasks} tasks, each of which would "
            f"ask about that one file; name one of the tasks, or fresh_{suffix}, which asks about plain questions"
        )
