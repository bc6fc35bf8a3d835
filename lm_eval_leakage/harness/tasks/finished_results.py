"""Finishes the results of a run with our tasks before lm_eval prints and saves them.

Rows without a value are removed, audited tasks get leakage columns, and results and samples are left in strict JSON.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lm_eval_leakage.harness.table import Counted, JudgedQuestion, RowValue
from lm_eval_leakage.logs.audit_line import (
    audit_lines,
    with_repeated_rows,
    written_line,
)
from lm_eval_leakage.logs.run import Problem, Run
from lm_eval_leakage.logs.runs import SECTIONS_KEPT
from lm_eval_leakage.questions.families import left_out_in_words
from lm_eval_leakage.results.data_verdict import verdict_on
from lm_eval_leakage.results.joining import Joining
from lm_eval_leakage.results.reported_metrics import with_checked_metrics
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, audit_rows
from lm_eval_leakage.results.tables import keys_of
from lm_eval_leakage.results.task_runs import TaskRun, answers_from_lines
from lm_eval_leakage.results.verdict_numbers import VERDICT_ROWS, details
from lm_eval_leakage.results.verdicts import audited_questions

logger = logging.getLogger(__name__)
COPIES = "copies_left_out"
DETAILS = "leakage_details"  # section of the results with what the table has no room for
NO_ERROR = "N/A"  # what the harness enters as the standard error of every row whose error it does not compute itself


def finish(results: dict[str, Any]) -> None:
    """Finish the rows of our tasks and their groups, and add columns to other tasks audited in the same run."""
    for section in ("results", "groups"):
        for name, row in (results.get(section) or {}).items():
            if any(isinstance(value, RowValue) for value in row.values()):
                results.setdefault(DETAILS, {})[name] = _details_of(row)
                finished = {key: _plain(value) for key, value in row.items() if _is_shown(key, value, row)}
                row.clear()
                row.update({key: value for key, value in finished.items() if value is not None})
    _log_verdicts(results)
    samples = results.get("samples") or {}
    audits = {task: lines for task, lines in samples.items() if any(map(_is_judged, lines))}
    samples |= {task: _Copied(map(_finished_sample, lines)) for task, lines in audits.items()}
    if audits and len(audits) < len(samples):
        add_columns(results, [*audits])


class _Copied(list[dict[str, Any]]):
    """Samples, of which a loop gets copies.

    The harness puts other forms of requests and answers into each that it writes, which would take as much memory
    again.
    """

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(dict, super().__iter__())


def _details_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a row that the table does not show, and everything about its verdict on the data set."""
    values = {key: value for key, value in row.items() if isinstance(value, RowValue)}
    of_verdict = [value.counted for key, value in values.items() if key.startswith(f"{VERDICT_ROWS[0].name},")]
    counted = next(iter(of_verdict), Counted())
    verdict = replace(verdict_on(counted.verdicts), n_copies=counted.n_copies)
    shown: dict[str, Any] = {"verdict": details(verdict)} if verdict.basis else {}
    if n_copies := max((value.counted.n_copies for value in values.values()), default=0):
        shown[COPIES] = n_copies
    hidden = {key: _plain(value) for key, value in values.items() if not value.in_table}
    return shown | {key: value for key, value in hidden.items() if value is not None}


def _log_verdicts(results: Mapping[str, Any]) -> None:
    """Log the verdict on each audit in a sentence, for a group instead of its members.

    Without a verdict, what was left out of its rows is logged.
    """
    sentences = {}
    for name, shown in (results.get(DETAILS) or {}).items():
        sentence = shown["verdict"]["sentence"] if "verdict" in shown else left_out_in_words(shown.get(COPIES, 0))
        if sentence:
            sentences[name] = sentence
    groups = {name: names for name, names in (results.get("group_subtasks") or {}).items() if name in sentences}
    members = {name for group, names in groups.items() for name in names if name != group}
    for name, sentence in sentences.items():
        if name not in members:
            logger.warning("%s: %s", name, sentence)


def _is_shown(key: str, value: object, row: Mapping[str, Any]) -> bool:
    if isinstance(value, RowValue):
        return value.in_table
    return value != NO_ERROR or not isinstance(row.get(key.replace("_stderr,", ",")), RowValue)


def _plain(value: object) -> object:
    """Return a row's value as JSON has it: the words shown instead of a number, or None for NaN."""
    if not isinstance(value, RowValue):
        return value
    if value.words is not None:
        return int(value) if value.words.isdigit() else value.words
    return float(value) if math.isfinite(value) else None


def _is_judged(sample: Mapping[str, Any]) -> bool:
    responses = sample.get("filtered_resps")
    return isinstance(responses, list) and bool(responses) and isinstance(responses[0], JudgedQuestion)


def _finished_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample of one of our tasks in the form in which it is logged, with the verdict as flat scalars."""
    judged = sample["filtered_resps"][0]
    of_harness = {key: value for key, value in sample.items() if key not in sample["metrics"]}
    of_harness["filtered_resps"] = [response for (response,) in sample["resps"]]
    return of_harness | written_line(
        judged.verdict,
        benchmark=judged.benchmark,
        detector=judged.detector,
        guards=judged.guards,
        question_key=judged.key,
        contributions={name: judged.value_in_row(name) for name in sample["metrics"]},
        orders=judged.orders,
        fillers=judged.fillers,
    )


def add_columns(results: dict[str, Any], audits: Sequence[str]) -> None:
    """Add the columns of `lm-eval-leakage annotate` to the results of tasks and groups audited in the same run.

    They stand under the filter name `leakage`, and need the samples (`--log_samples`).
    """
    try:
        _add_columns(results, audits)
    except Exception as error:  # an error in a table must not lose hours of a run
        logger.warning("no leakage columns in this table (%r); `lm-eval-leakage annotate` may say why", error)


def _add_columns(results: dict[str, Any], audits: Sequence[str]) -> None:
    samples: Mapping[str, Sequence[Mapping[str, Any]]] = results["samples"]
    problems: list[Problem] = []
    verdicts = (
        (task, line)
        for task in audits
        for line in with_repeated_rows(audit_lines(enumerate(samples[task]), task, problems))
    )
    joining = Joining(audited_questions(verdicts, problems).questions)
    run = Run("", "", {key: results.get(key) or {} for key in SECTIONS_KEPT})
    parts = []
    for task, lines in samples.items():
        if task not in audits:
            of_task = TaskRun(task, "", run, None, len(lines))
            of_task = replace(of_task, questions=joining.join(of_task, answers_from_lines(enumerate(lines), problems)))
            parts.append(with_checked_metrics(of_task, problems))
    for row in audit_rows("", parts, {}, {}, None, {}, problems):
        for section in ("results", "groups"):
            values = results.get(section, {}).get(row.task)
            if values is not None and row.n_joined and row.level != SUBJECT_LEVEL:
                values.update(keys_of(row))
    for problem in problems:
        logger.warning("%s", problem)
