"""Rows of the results table: lm_eval aggregations over the verdicts on all questions, and what is made of them at the
end of a run.

Every question contributes its whole verdict to every row, whether it was tested or not: with data parallelism, the
harness needs the same keys on every process, and a p-value of the data set needs all questions at once. Undefined
values are NaN, since the harness does arithmetic on them. `finish` removes the rows without a value, adds leakage
columns to audited tasks, and leaves results and samples in strict JSON.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from lm_eval_leakage.detectors import Statistic, statistics
from lm_eval_leakage.harness.seams.registries import add_metric, is_metric
from lm_eval_leakage.logs.audit_line import (
    CORE,
    OF_FILLERS,
    OF_HARNESS,
    OF_ORDERS,
    audit_lines,
    with_repeated_rows,
    written_line,
)
from lm_eval_leakage.logs.run import Problem, Run
from lm_eval_leakage.logs.runs import SECTIONS_KEPT
from lm_eval_leakage.questions.families import each_once, left_out_in_words
from lm_eval_leakage.records import DeclaredRow, Evidence, FillerAnswers, OrderAnswers, Skipped, Verdict
from lm_eval_leakage.registry import package_of, unregister
from lm_eval_leakage.results.annotate import Joining
from lm_eval_leakage.results.answered import TaskRun, answers
from lm_eval_leakage.results.data_verdict import verdict_on
from lm_eval_leakage.results.reported_metrics import with_checked_metrics
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, rows_of
from lm_eval_leakage.results.tables import keys_of
from lm_eval_leakage.results.verdict_numbers import VERDICT_ROWS, details
from lm_eval_leakage.results.verdicts import audited_questions
from lm_eval_leakage.stats.pooling import NULL_RATE_ROW, SKIPPED, Verdicts

logger = logging.getLogger(__name__)

UNDECIDABLE = "2 options: no rate"
ELSEWHERE = Skipped("it belongs to another row")


class Contribution(NamedTuple):
    """What one question gives to one row.

    key: as of `questions.copies`; place: the audited task and the number of the row in it
    """

    given: Any
    key: str = ""
    place: tuple[str, int] = ("", 0)


class Counted(NamedTuple):
    """The verdicts of a row, each question once, and the number of copies that were left out."""

    verdicts: Verdicts = ()
    n_copies: int = 0

    @staticmethod
    def of(contributions: Sequence[Contribution]) -> Counted:
        """Without the placeholders for questions of other rows. Of copies, the first in the order of tasks and rows
        counts, in whatever order several processes hand them in."""
        own = [one for one in contributions if one.given != ELSEWHERE]
        once = each_once(own, lambda one: one.key, lambda one: one.place)
        return Counted([one.given for one in once], len(own) - len(once))


class RowValue(float):
    """A row's value that carries the verdicts it was computed from, so that a group can compute its row from them.

    It must be a float: lm_eval 0.4.13 does arithmetic on what an aggregation returns and formats it with `%.4f`. It
    must carry the verdicts: a group gets only these values of its members, and neither its p-value nor the rate over
    all its questions is a mean of theirs. Only `LeakageGroup` and `finish` use the verdicts; the latter leaves plain
    numbers. If groups got their members' samples, this class would not be needed.

    contributions: of all questions, as the harness collected them
    counted: what the value is computed from: those of the row's own questions, without copies
    words: shown in the table instead of a number that would mislead
    in_table: whether the table shows it
    """

    row: Aggregation
    contributions: Sequence[Contribution]
    counted: Counted
    words: str | None
    in_table: bool

    def __format__(self, spec: str) -> str:
        return self.words or super().__format__(spec)


Aggregation = Callable[[Sequence[Contribution]], RowValue]


def _aggregation(row: DeclaredRow, name: str, compute: Callable[[Verdicts], float]) -> Aggregation:
    """The row or its standard error, which is a separate row: the harness computes errors only for its own `mean`, and
    prints a row named `<row>_stderr` as the ± of the other."""

    def aggregate(contributions: Sequence[Contribution]) -> RowValue:
        counted = Counted.of(contributions)
        value = compute(counted.verdicts)
        words = f"{value:.0f}" if isinstance(value, int) else getattr(value, "words", None)
        if row.withheld_if_undecidable and undecidable(counted.verdicts):
            value, words = math.nan, UNDECIDABLE if name == row.name else None
        found = RowValue(value)
        found.row, found.contributions, found.counted = aggregate, contributions, counted
        found.words, found.in_table = words, row.in_table
        return found

    aggregate.__name__ = aggregate.__qualname__ = name  # under which the harness prints the row
    aggregate.__doc__ = row.meaning if name == row.name else f"Standard error of `{row.name}`."
    return aggregate


def pooled(values: Sequence[RowValue]) -> RowValue:
    """One row over several tasks, as if all their questions belonged to one task."""
    return values[0].row([one for value in values for one in value.contributions])


def undecidable(verdicts: Verdicts) -> bool:
    """Whether at least half of the questions are flagged by chance, as with 2 options: then a single flag means
    nothing, only their number does."""
    rates = [verdict.null_rate for verdict in verdicts if isinstance(verdict, Evidence)]
    return bool(rates) and min(rates) >= 0.5


@dataclass(frozen=True)
class JudgedQuestion:
    """Takes the place of the filtered response to a question's first request.

    detector: the detector's id
    guards: the question's guards; benchmark: the audited task
    orders: its answers to all orders, in the task's first pipeline, if its probe asks orders
    fillers: its answers with the fillers of its block, if its probe exchanges fillers
    key: as of `questions.copies`; number: of its row in the task
    """

    verdict: Verdict
    detector: str = ""
    guards: tuple[str, ...] = ()
    benchmark: str = ""
    orders: OrderAnswers | None = None
    fillers: FillerAnswers | None = None
    key: str = ""
    number: int = 0

    def contribution_to(self, row: DeclaredRow) -> Contribution:
        """What the harness collects of it for a row."""
        return Contribution(self._given_to(row), self.key, (self.benchmark, self.number))

    def _given_to(self, row: DeclaredRow) -> Verdict | OrderAnswers | FillerAnswers:
        """What a row is computed from; ELSEWHERE if this question is not part of the row, since the harness needs a
        value from each."""
        if row.questions == "orders":
            return self.orders or self.fillers or ELSEWHERE
        is_of_others = row.questions == ("unguarded" if self.guards else "guarded")
        return ELSEWHERE if is_of_others else self.verdict

    def own_value(self, name: str) -> float | None:
        """In the row of this name; None if only all questions together have one."""
        row = row_of(name)
        given = self._given_to(row)
        is_error = name != row.name
        return None if is_error or given is ELSEWHERE or row.per_question is None else row.per_question(given)


# ---------------------------------------------------------------------- the rows that statistics declare

_known: dict[str, tuple[DeclaredRow, tuple[Aggregation, ...]]] = {}


def known_rows() -> dict[str, Aggregation]:
    """The rows of all registered statistics and their standard errors, by name; registers them with the harness.

    Raises ValueError for an invalid row; if it is one of another distribution, that one's detectors are left out.
    """
    registered = [statistics.get(name) for name in statistics.names()]
    owners = {statistic: package_of(statistic) for statistic in registered}
    ours = [row for statistic, package in owners.items() if package is None for row in _declared(statistic)]
    for row in (*VERDICT_ROWS, *ours, SKIPPED):
        _make_known(row)
    for statistic, package in owners.items():
        if package is not None:
            try:
                for row in _declared(statistic):
                    _make_known(row)
            except Exception as error:
                unregister(package, error)
    return {made.__name__: made for _, aggregations in _known.values() for made in aggregations}


def metric_list(pipelines: Iterable[Mapping[str, Any]], *, with_verdict: bool = False) -> list[dict[str, Any]]:
    """The rows of a task with this `filter_list`, before them those of the verdict on the data set. The harness prints
    every row of a task for every pipeline; rows without a value there are removed afterwards."""
    rows = [*VERDICT_ROWS] if with_verdict else []
    for name in [entry["statistic"] for pipeline in pipelines for entry in pipeline["filter"] if "statistic" in entry]:
        if not (declared := _declared(statistics.get(name))):
            raise ValueError(
                f"the statistic {name!r} declares no rows, so nothing would be printed for it; give its class "
                "`rows`, such as EVIDENCE_ROWS of lm_eval_leakage.stats.pooling"
            )
        rows += declared
    return entries_of([*rows, SKIPPED])


def entries_of(rows: Sequence[DeclaredRow]) -> list[dict[str, Any]]:
    """The `metric_list` entries of these rows, without duplicates."""
    return [
        {"metric": name, "aggregation": name, "higher_is_better": row.higher_is_better}
        for row in dict.fromkeys(rows)
        for name in names_of(row)
    ]


def names_of(row: DeclaredRow) -> tuple[str, ...]:
    return (row.name,) if row.error is None else (row.name, f"{row.name}_stderr")


def row_of(name: str) -> DeclaredRow:
    """The row that has this name, or whose standard error has it."""
    return _known[name if name in _known else name.removesuffix("_stderr")][0]


def _declared(statistic: type[Statistic]) -> tuple[DeclaredRow, ...]:
    return getattr(statistic, "rows", ())


RESERVED = frozenset((*CORE, *OF_ORDERS, *OF_FILLERS, *OF_HARNESS)) - {NULL_RATE_ROW.name}  # keys of the samples log


def _make_known(row: DeclaredRow) -> None:
    if row.name in _known and _known[row.name][0] == row:
        return
    if taken := [name for name in names_of(row) if name in RESERVED or is_metric(name)]:
        raise ValueError(
            f"the row {taken[0]!r} has a name that the harness, the samples log or another row uses; give it another"
        )
    computed = zip(names_of(row), (row.compute, row.error), strict=False)
    _known[row.name] = row, tuple(_aggregation(row, name, compute) for name, compute in computed if compute)
    for aggregation in _known[row.name][1]:
        add_metric(aggregation.__name__, aggregation, row.higher_is_better)


# ---------------------------------------------------------------------- the end of a run

COPIES = "copies_left_out"
DETAILS = "leakage_details"  # section of the results with what the table has no room for
NO_ERROR = "N/A"  # what the harness enters as the standard error of every row whose error it does not compute itself


def finish(results: dict[str, Any]) -> None:
    """Changes only rows of our tasks and their groups; adds columns to other tasks audited in the same run."""
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
    """Samples, of which a loop gets copies: the harness puts other forms of requests and answers into each that it
    writes, which would take as much memory again."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(dict, super().__iter__())


def _details_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row that the table does not show, and everything about its verdict on the data set."""
    values = {key: value for key, value in row.items() if isinstance(value, RowValue)}
    of_verdict = [value.counted for key, value in values.items() if key.startswith(f"{VERDICT_ROWS[0].name},")]
    asked = next(iter(of_verdict), Counted())
    found = replace(verdict_on(asked.verdicts), n_copies=asked.n_copies)
    told: dict[str, Any] = {"verdict": details(found)} if found.basis else {}
    if n_copies := max((value.counted.n_copies for value in values.values()), default=0):
        told[COPIES] = n_copies
    hidden = {key: _plain(value) for key, value in values.items() if not value.in_table}
    return told | {key: value for key, value in hidden.items() if value is not None}


def _log_verdicts(results: Mapping[str, Any]) -> None:
    """The verdict on each audit in a sentence, for a group instead of its members; without a verdict, what was left
    out of its rows."""
    told = {}
    for name, own in (results.get(DETAILS) or {}).items():
        sentence = own["verdict"]["sentence"] if "verdict" in own else left_out_in_words(own.get(COPIES, 0))
        if sentence:
            told[name] = sentence
    groups = {name: own for name, own in (results.get("group_subtasks") or {}).items() if name in told}
    members = {name for group, own in groups.items() for name in own if name != group}
    for name, sentence in told.items():
        if name not in members:
            logger.warning("%s: %s", name, sentence)


def _is_shown(key: str, value: object, row: Mapping[str, Any]) -> bool:
    if isinstance(value, RowValue):
        return value.in_table
    return value != NO_ERROR or not isinstance(row.get(key.replace("_stderr,", ",")), RowValue)


def _plain(value: object) -> object:
    """A row's value as JSON has it: the words shown instead of a number, or None for NaN."""
    if not isinstance(value, RowValue):
        return value
    if value.words is not None:
        return int(value) if value.words.isdigit() else value.words
    return float(value) if math.isfinite(value) else None


def _is_judged(sample: Mapping[str, Any]) -> bool:
    responses = sample.get("filtered_resps")
    return isinstance(responses, list) and bool(responses) and isinstance(responses[0], JudgedQuestion)


def _finished_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample of one of our tasks in the form in which it is logged, with the verdict as flat scalars."""
    judged = sample["filtered_resps"][0]
    of_harness = {key: value for key, value in sample.items() if key not in sample["metrics"]}
    of_harness["filtered_resps"] = [response for (response,) in sample["resps"]]
    return of_harness | written_line(
        judged.verdict,
        benchmark=judged.benchmark,
        detector=judged.detector,
        guards=judged.guards,
        question_key=judged.key,
        contributions={name: judged.own_value(name) for name in sample["metrics"]},
        orders=judged.orders,
        fillers=judged.fillers,
    )


def add_columns(results: dict[str, Any], audits: Sequence[str]) -> None:
    """Adds to the return value of `evaluate`: each task and group that was audited in the same run gets the columns of
    `lm-eval-leakage annotate`, under the filter name `leakage`. Needs the samples (`--log_samples`)."""
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
    joining = Joining(audited_questions(verdicts, problems).found)
    run = Run("", "", {key: results.get(key) or {} for key in SECTIONS_KEPT})
    parts = []
    for task, lines in samples.items():
        if task not in audits:
            of_task = TaskRun(task, "", run, None, len(lines))
            of_task = replace(of_task, questions=joining.join(of_task, answers(enumerate(lines), problems)))
            parts.append(with_checked_metrics(of_task, problems))
    for row in rows_of("", parts, {}, {}, None, {}, problems):
        for section in ("results", "groups"):
            own = results.get(section, {}).get(row.task)
            if own is not None and row.n_joined and row.level != SUBJECT_LEVEL:
                own.update(keys_of(row))
    for problem in problems:
        logger.warning("%s", problem)
