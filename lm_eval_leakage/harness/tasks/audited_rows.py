"""Chooses the rows that an audit of an lm_eval task tests: its own, or those of a user's file (`data_files`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from lm_eval.api.task import ConfigurableTask
from lm_eval.config.task import TaskConfig

from lm_eval_leakage.harness.seams.tasks import compile_templates_once
from lm_eval_leakage.harness.tasks.base_task import (
    ROWS_TRIED,
    RefusedAudit,
    reader_of,
    refusal_of_readings,
    refusal_of_unpublished_order,
    unprocessed_rows,
    without_constant_words,
)
from lm_eval_leakage.harness.tasks.data import Docs, docs_of, fields_of
from lm_eval_leakage.harness.tasks.question_files import read_file, read_questions
from lm_eval_leakage.questions.fields import Doc, question_from_doc
from lm_eval_leakage.questions.named_fields import QUESTION
from lm_eval_leakage.questions.prompt_parser import texts_in
from lm_eval_leakage.questions.slots import FINDERS
from lm_eval_leakage.questions.statements import fillers_of, refusal_of_statements, statement_reader
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)
OWN_DOCS = "docs_to_audit"  # attribute of a task
FILLERS_KEY = "fillers"  # of `--metadata`: what rows without options exchange; by default what they have
SPLIT_KEY, TRAIN = "split", "train"  # of `--metadata`, and its one value
OWN_STATEMENTS = "statements_to_audit"  # attribute of a task


def checked_fillers(given: object) -> str:
    """Return what rows exchange, as it is given. Raises ValueError for anything else."""
    if not isinstance(given, str) or given not in FINDERS:
        raise ValueError(f"{FILLERS_KEY} is {given!r}; give {' or '.join(FINDERS)}, or leave it out")
    return given


def split_asked(config: TaskConfig, scored: str, metadata: Mapping[str, object] | None = None) -> str:
    """Return the split that an audit asks: the one that a task is scored on or, for `split: train`, that of training.

    metadata: by default that of `config`

    Raises RefusedAudit if the task has no training split, and ValueError for another value.
    """
    split = ((config.metadata or {}) if metadata is None else metadata).get(SPLIT_KEY)
    if split is None:
        return scored
    if split != TRAIN:
        raise ValueError(f"split is {split!r}; give {TRAIN}, or leave it out for the rows that the task is scored on")
    if not config.training_split:
        raise RefusedAudit(f"{config.task} has no training split")
    return str(config.training_split)


def rows_of_split(base: ConfigurableTask, metadata: Mapping[str, object]) -> Any:
    """Return the rows of the split that an audit of a task asks, as the task prepares them."""
    scored = ""
    return base.eval_docs if split_asked(base.config, scored, metadata) == scored else base.training_docs()


def docs_to_audit(base: ConfigurableTask, metadata: Mapping[str, object]) -> tuple[Docs, Sequence[Doc]]:
    """Return `base`'s rows, or those of the file that `data_files` names, as the harness hashes and logs them; and the
    first rows before the task processed them. A task's own are read once for all of its audits. A file's rows are read
    in `base`'s own prompt if it can render them, else as plain questions, with a warning; raises RefusedAudit if
    neither is possible."""
    if "data_files" not in metadata:
        kept, name = vars(base), f"{OWN_DOCS} {metadata.get(SPLIT_KEY)}"
        if name not in kept:
            docs = rows_of_split(base, metadata)  # the harness prepares them at each access
            read = without_constant_words(reader_of(base), docs)
            kept[name] = docs_of(docs, read), unprocessed_rows(base)
        docs_and_rows: tuple[Docs, Sequence[Doc]] = kept[name]
        return docs_and_rows
    given, read = read_questions(metadata["data_files"], fields_of(metadata)), reader_of(base)
    in_data, ways = [*islice(given, ROWS_TRIED)], [given]
    if callable(base.config.process_docs):
        try:
            ways = [base.config.process_docs(given), given]
        except Exception as error:  # a task's function may raise anything on unknown fields
            logger.debug("%s cannot prepare these rows: %r", base.config.task, error)
    for rows in ways:
        if not (why := why_unreadable(rows, read)):
            return docs_of(rows, without_constant_words(read, rows)), in_data
    if why_unreadable(given, question_from_doc):
        raise RefusedAudit(_misfit(base, given, metadata["data_files"], why))
    logger.warning(
        "%s cannot render the rows of data_files=%s (the first row: %s), so they are audited as plain questions, not "
        "in its prompt",
        base.config.task,
        metadata["data_files"],
        why,
    )
    return docs_of(given, question_from_doc), in_data


def statements_to_audit(base: ConfigurableTask, metadata: Mapping[str, object], *, is_sealed: bool = False) -> Docs:
    """Return `base`'s rows, or those of the file that `data_files` names, read as texts without options.

    is_sealed: whether a seal says what is exchanged in them, so that they need no names

    Raises RefusedAudit, with the reason, if names are not exchanged in them.
    """
    is_own = "data_files" not in metadata
    name = f"{OWN_STATEMENTS} {metadata.get(SPLIT_KEY)} {metadata.get(FILLERS_KEY)}"
    if is_own and name in vars(base):
        kept: Docs = vars(base)[name]
        return kept
    fields = fields_of(metadata)
    rows = rows_of_split(base, metadata) if is_own else read_file(metadata["data_files"])
    compile_templates_once()
    try:
        read = statement_reader([*islice(rows, ROWS_TRIED)], base.doc_to_text, fields.get(QUESTION))
    except UntestableQuestion as error:
        raise RefusedAudit(str(error)) from None
    docs = docs_of(rows, read)
    first, given = [doc.reading for doc in docs[:ROWS_TRIED]], metadata.get(FILLERS_KEY)
    if not is_sealed:
        docs.fillers = fillers_of(first) if given is None else checked_fillers(given)
        if reason := refusal_of_statements(first, docs.fillers):
            raise RefusedAudit(reason)
    if is_own:
        vars(base)[name] = docs
    return docs


def why_not_audited(docs: Docs, rows: Sequence[Doc]) -> str | None:
    """Return why a task is not audited, by its first questions; None if it is.

    docs, rows: as `docs_to_audit` returns them
    """
    readings = [doc.reading for doc in docs[:ROWS_TRIED]]
    in_data = frozenset(texts_in(rows[0])) if rows else frozenset()
    return refusal_of_readings(readings, in_data) or refusal_of_unpublished_order(readings, rows)


def why_unreadable(
    rows: Iterable[Mapping[str, Any]], read: Callable[[Doc], Question], n_tried: int | None = ROWS_TRIED
) -> str:
    """Return why the first of the rows cannot be read, if none of those that are tried can; empty if one can."""
    reasons = []
    for row in islice(rows, n_tried):
        try:
            read(row)
        except UntestableQuestion as error:
            reasons.append(str(error))
        else:
            return ""
    return reasons[0] if reasons else "there is none"


def _misfit(base: ConfigurableTask, rows: Any, file: object, why: str) -> str:
    columns = getattr(base.dataset[base.config.test_split or base.config.validation_split], "column_names", None)
    needed = f"{base.config.task}'s own rows have {brief(columns)}; " if columns else ""
    return (
        f"data_files is {str(file)!r}, whose rows have the fields {brief(list(rows.column_names))}, and "
        f"{base.config.task} cannot read them as questions (the first row: {why}); {needed}rename the fields to "
        "those, or to question, choices and answer"
    )
