"""The report on runs joined with audits, as one HTML page: verdicts, tables, charts, and the flagged questions as
JSON, as many as a budget of bytes allows, the highest scores first.

What `load_run` returns: a record per question, and their verdicts as a table for notebooks.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from lm_eval_leakage.logs.audit_line import Scalar, benchmark_of
from lm_eval_leakage.results import columns
from lm_eval_leakage.results.charts import DotChart, Dots, margin_histogram, rank, rank_histograms, round_ticks
from lm_eval_leakage.results.comparison import Plot, comparison, comparison_plot
from lm_eval_leakage.results.formatting import (
    COUNT,
    DASH,
    EMPTY,
    NUMBER,
    PERCENT,
    TEXT,
    WITH_ERROR,
    Cell,
    Column,
    Table,
    count,
    counted,
    number,
    percent,
    tabulate,
    whole_percent,
)
from lm_eval_leakage.results.html import render as render_template
from lm_eval_leakage.results.result_types import Annotation, AuditedQuestion, DetectorValue, Row, grouped, merged
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, TASK_LEVEL, flat_question, same_columns
from lm_eval_leakage.results.tables import LEAST, Suspicion, benchmarks, by_suspicion, suspicion
from lm_eval_leakage.results.told_verdicts import (
    FEWEST_FLAGGED,
    NOT_WRITTEN_DOWN,
    has_enough_flagged,
    n_flagged,
    told_verdict,
)
from lm_eval_leakage.results.verdict_words import pvalue_parts, ratio_parts
from lm_eval_leakage.stats.pooling import Estimate
from lm_eval_leakage.texts import visible

if TYPE_CHECKING:
    from pandas import DataFrame


def benchmark_table(rows: Sequence[Row], further: Sequence[Column[Row]]) -> Table:
    """A line for each model and benchmark."""
    is_one = len({row.model for row in rows}) < 2
    return tabulate(rows, [BENCHMARK if is_one else MODEL_AND_BENCHMARK, *further], lambda row: row.name)


def deciding_cell(row: Row) -> Cell:
    """The p-value, sorted by the adjusted one; where none holds, the order ratio, which sorts after all p-values."""
    verdict, ratio = row.verdict, row.verdict.ratio
    if not math.isnan(verdict.deciding_pvalue):
        return Cell(*pvalue_parts(verdict), order=verdict.deciding_pvalue)
    if math.isnan(ratio.value):
        return EMPTY
    value, bound = ratio_parts(ratio)
    return Cell(f"ratio {value}", bound, 1 + 1 / (1 + ratio.low))


def _flagged(row: Row) -> Cell:
    rate: Estimate = columns.FLAGGED.of(row)
    if not rate:
        return EMPTY
    return Cell(whole_percent(rate.value), f"{count(n_flagged(row))} of {count(row.n_tested)}", rate.value)


def _accuracy(row: Row) -> Cell:
    cell = columns.ACCURACY.cell(row)
    metric = row.metric.partition(",")[0]
    return cell if metric in ("acc", "") or cell == EMPTY else Cell(cell.text, metric, cell.order)


def _questions(row: Row) -> Cell:
    n = row.verdict.n_asked or row.n
    if not n:
        return EMPTY
    return Cell(counted(n), "" if row.provenance.seed is None else f"drawn with seed {row.provenance.seed}", n)


BENCHMARK: Column[Row] = Column("benchmark", TEXT, lambda row: row.name)
MODEL_AND_BENCHMARK: Column[Row] = Column("model", TEXT, lambda row: Cell(row.model, row.name))
FIRST: Sequence[Column[Row]] = (  # what a reader needs first
    columns.VERDICT,
    Column("flagged", NUMBER, _flagged, columns.FLAGGED.meaning),
    replace(columns.NULL_RATE, heading="expected", kind=PERCENT),
    Column(
        "p or ratio",
        NUMBER,
        deciding_cell,
        "the verdict's p-value and, where several verdicts are shown together or it is a later look, the adjusted "
        "one, which decides; where none holds, how many times as often as by chance the published order is the most "
        "likely one",
    ),
    Column("accuracy", NUMBER, _accuracy, columns.ACCURACY.meaning),
    replace(columns.ACCURACY_CLEAN, heading="accuracy without leakage"),
)
CHECKED: Sequence[Column[Row]] = (  # what a verdict rests on
    Column("which model", TEXT, lambda row: row.provenance.revision or NOT_WRITTEN_DOWN),
    Column("asked as", TEXT, lambda row: row.provenance.asked_as),
    Column("questions", NUMBER, _questions),
    Column("date", TEXT, lambda row: row.provenance.date),
    Column("lm_eval", TEXT, lambda row: row.provenance.lm_eval),
)


# ---------------------------------------------------------------------- flagged questions

LONGEST_QUESTION = 100_000  # bytes; one huge question must not crowd out all others


@dataclass(frozen=True)
class Listed:
    """data: a JSON array that is safe within a script element
    n_flagged: flagged questions of the model, listed or not
    """

    data: Markup
    n_listed: int
    n_flagged: int


def n_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def listed(annotation: Annotation, budget: int) -> Listed:
    """The flagged questions that fit into `budget` bytes, the highest scores first."""
    flagged = sorted((found for found in annotation.audited_questions if found.flagged), key=_by_score)
    answers = _answers(annotation)
    lines: list[str] = []
    used = 2
    for audited in flagged:
        entry = _entry(audited, answers.get(audited.doc_hash, ()))
        line = htmlsafe_json_dumps(entry, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = n_bytes(line) + 1
        if size <= LONGEST_QUESTION and used + size <= budget:
            lines.append(line)
            used += size
    return Listed(Markup(f"[{','.join(lines)}]"), len(lines), len(flagged))


def _by_score(audited: AuditedQuestion) -> tuple[float, str]:
    is_known = audited.score is not None and math.isfinite(audited.score)
    return -(audited.score or 0.0) if is_known else math.inf, audited.doc_hash


def _entry(audited: AuditedQuestion, answers: Iterable[str]) -> dict[str, Any]:
    """The keys are short because they are repeated for every question; `page.js` reads them."""
    subject = benchmark_of(audited.subject)  # the audit's name without subjects
    is_whole = subject in ("", audited.benchmark)
    return {
        "b": audited.benchmark if is_whole else f"{audited.benchmark}/{subject}",
        "z": _rounded(audited.score, 3),
        "r": list(answers),
        "q": audited.question,
        "o": audited.options,
        "a": audited.answer,
        "g": audited.guards,
        "m": _rounded(audited.margin),
        "l": [_rounded(value) for value in audited.loglikelihoods],
    }


def _rounded(value: float | None, decimals: int = 2) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, decimals)


def _answers(annotation: Annotation) -> Mapping[str, Iterable[str]]:
    """How each question was answered in the tasks of the run, each answer once, by the hash of its audited row."""
    first_metrics = {row.task: row.metric for row in reversed(annotation.rows) if row.level == TASK_LEVEL}
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for question in annotation.questions:
        if question.audited is not None:
            score = question.scores.get(first_metrics.get(question.task, ""), math.nan)
            known = "not scored" if math.isnan(score) else f"scored {number(score)}"
            answer = {1.0: "answered correctly", 0.0: "answered incorrectly"}.get(score, known)
            shots = "" if question.n_shot in {"", "0"} else f" ({question.n_shot}-shot)"
            found[question.audited.doc_hash][f"{answer} in {question.task}{shots}"] = None
    return found


# ---------------------------------------------------------------------- the page

LARGEST_PAGE = 4_900_000  # bytes; a page stays below 5 MB
LARGEST_DATA = 4_000_000  # bytes of it for flagged questions
N_DRAWN = 8  # benchmarks of a model whose ranks and margins are drawn
N_TOLD = 8  # verdicts that are shown at once; the others are folded
OF_FLAGGED_ANSWERS = (columns.ACCURACY_FLAGGED, columns.GAP, columns.GAP_ADJUSTED, columns.GAP_PVALUE, columns.STRONG)


EARLIER: Sequence[Column[Any]] = (
    Column("told at", TEXT, attrgetter("time")),
    Column("model", TEXT, attrgetter("model")),
    Column("task", TEXT, attrgetter("task")),
    Column("verdict", TEXT, attrgetter("verdict")),
    Column("why", TEXT, attrgetter("summary")),
)


def render(annotations: Sequence[Annotation], earlier: Sequence[Any] = ()) -> str:
    """One page for all models, the most suspicious verdicts first; flagged questions are left out as needed to keep it
    below 5 MB.

    annotations: one per model, or one for each of its benchmarks
    earlier: verdicts of earlier checks, with the attributes of EARLIER, which are shown apart
    """
    models = sorted(grouped(annotations, lambda one: one.model).values(), key=lambda own: min(map(_suspicion, own)))
    annotations = [*map(merged, models)]
    rows = [row for annotation in annotations for row in annotation.rows]
    first = benchmarks(rows)
    told = [*map(told_verdict, first)]
    sections = [_section(whole, own) for whole, own in zip(annotations, models, strict=True)]
    further = Counter(one.word or "without a verdict" for one in told[N_TOLD:])

    def page(budget: int) -> str:
        return render_template(
            "page.html.j2",
            models=list(zip(sections, _lists(annotations, budget), strict=True)),
            verdicts=told[:N_TOLD],
            further=told[N_TOLD:],
            further_words=", ".join(f"{count(n)} {word}" for word, n in further.items()),
            comparison=comparison(first) if len(first) > 1 else None,
            table=benchmark_table(first, FIRST),
            checked=benchmark_table(first, CHECKED),
            all_rows=rows_table(by_suspicion(rows)),
            has_verdicts=any(one.word for one in told),
            has_flags=any(section["n_tested"] for section in sections),
            earlier=tabulate(earlier, EARLIER),
        )

    return page(min(LARGEST_DATA, LARGEST_PAGE - n_bytes(page(0))))


def _suspicion(annotation: Annotation) -> Suspicion:
    """Of the model's most suspicious benchmark."""
    return min((suspicion(row.verdict) for row in benchmarks(annotation.rows)), default=LEAST)


def _lists(annotations: Sequence[Annotation], budget: int) -> list[Listed]:
    """An equal share of the budget per model; what one does not need goes to those that need more."""
    n_flagged = [sum(bool(found.flagged) for found in annotation.audited_questions) for annotation in annotations]
    lists: dict[int, Listed] = {}
    for place in sorted(range(len(annotations)), key=n_flagged.__getitem__):
        lists[place] = listed(annotations[place], budget // (len(annotations) - len(lists)))
        budget -= n_bytes(lists[place].data)
    return [lists[place] for place in range(len(annotations))]


def _section(annotation: Annotation, parts: Sequence[Annotation]) -> dict[str, Any]:
    """What the page shows about the audits of one model, except its flagged questions: the charts of each benchmark,
    since questions of several are never counted together, the most suspicious first.

    parts: that the annotation is merged from; a question may be in several
    """
    audited = annotation.audited_questions
    by_benchmark = [(name, own) for part in sorted(parts, key=_suspicion) for name, own in _by_benchmark(part).items()]
    charts = [_charts(name, own) for name, own in by_benchmark]
    charts = [one for one in charts if one["ranks"] or one["margins"]]
    drawn = charts[:N_DRAWN]
    ranks = [chart for one in drawn for chart in one["ranks"]]
    n_asked = sum(found.flagged is not None or found.pvalue is not None for found in audited)
    n_tested = sum(found.flagged is not None for found in audited)
    arms, others = _arms(annotation.rows), _other_detectors(annotation.rows)
    return {
        "annotation": annotation,
        "is_empty": not (ranks or n_tested or arms or others),
        "n_tested": n_tested,
        "arms": arms,
        "others": others,
        "benchmarks": drawn,
        "not_drawn": [one["name"] for one in charts[N_DRAWN:]],
        "n_unranked": n_asked - sum(rank(found) is not None for found in audited),
        "has_ranks": bool(ranks),
        "has_margins": any(one["margins"] for one in drawn),
        "is_compared": any(chart.compared_with for chart in ranks),
    }


def _by_benchmark(annotation: Annotation) -> dict[str, list[AuditedQuestion]]:
    """The audited questions of each benchmark, a group or a task in no group, the most suspicious first."""
    groups = {row.task: row.group for row in annotation.rows if row.group}
    found: dict[str, list[AuditedQuestion]] = {row.task: [] for row in benchmarks(annotation.rows)}
    for audited in annotation.audited_questions:
        found.setdefault(groups.get(audited.benchmark, audited.benchmark), []).append(audited)
    return {name: own for name, own in found.items() if own}


def _charts(name: str, audited_questions: Sequence[AuditedQuestion]) -> dict[str, Any]:
    has_enough = sum(bool(found.flagged) for found in audited_questions) >= FEWEST_FLAGGED
    ranks, undrawn = rank_histograms(audited_questions)
    margins = margin_histogram(audited_questions) if has_enough else None
    return {"name": name, "ranks": ranks, "undrawn": undrawn, "margins": margins}


def rows_table(rows: Sequence[Row]) -> Table:
    """All columns with a heading: the task, the model if there are several, those of the first table, the others."""
    is_one = len({row.model for row in rows}) < 2
    verdicts = [column for column in columns.OF_VERDICT if column.heading and column is not columns.VERDICT]
    first = [
        *([] if is_one else [columns.MODEL]),
        columns.VERDICT,
        columns.FLAGGED,
        columns.NULL_RATE,
        *verdicts,
        columns.ACCURACY,
        columns.ACCURACY_CLEAN,
    ]
    others = [
        _with_enough_flagged(column)
        for column in columns.displayed()
        if column not in (columns.TASK, columns.MODEL, *first)
    ]
    task = replace(columns.TASK, of=lambda row: Cell(row.task, f"{row.level} {_place(row)}".rstrip()))
    return tabulate(rows, [task, *first, *others], lambda row: row.level)


def _place(row: Row) -> str:
    """The group that a row is part of, since its task may also stand there by itself."""
    return f"in {row.group}" if row.group else ""


def _with_enough_flagged(column: Column[Row]) -> Column[Row]:
    """Empty for rows with fewer flagged questions than allow a claim about their answers."""
    if column not in OF_FLAGGED_ANSWERS:
        return column
    return replace(column, shown=lambda row: column.cell(row) if has_enough_flagged(row) else EMPTY)


def _arms(rows: Sequence[Row]) -> dict[str, Any] | None:
    """A chart of the benchmarks and a table of all rows with choice confusion."""
    asked = [row for row in rows if any(arm.of(row) for arm in columns.ARM_COLUMNS.values())]
    if not asked:
        return None
    first = [row for row in benchmarks(rows) if row in asked] or asked[:1]
    arms = {
        columns.ARMS_IN_WORDS[name]: arm
        for name, arm in columns.ARM_COLUMNS.items()
        if any(arm.of(row) for row in asked)
    }
    dots = [Dots(row.task, {name: arm.of(row) for name, arm in arms.items()}) for row in first]
    by_arm = [replace(arm, heading=name, meaning="") for name, arm in arms.items()]
    chart = DotChart("Accuracy by arm", "accuracy, 95 % interval", dots, round_ticks(0.0, 1.0))
    task = replace(columns.TASK, of=lambda row: Cell(row.task, _place(row)), meaning="")
    return {"chart": chart, "table": tabulate(asked, [task, *by_arm])}


def _other_detectors(rows: Sequence[Row]) -> Table | None:
    """Values of detectors that have no column of their own: a line per group or task, detector and value."""
    # not for each metric of the run
    once = {(row.group, row.name): row for row in reversed(rows) if row.level != SUBJECT_LEVEL}
    found = [(row, value) for row in reversed(once.values()) for value in row.others]
    shown: list[Column[tuple[Row, DetectorValue]]] = [
        Column(columns.TASK.heading, TEXT, lambda line: Cell(line[0].name, _place(line[0]))),
        Column("detector", TEXT, lambda line: line[1].detector),
        Column("value", TEXT, lambda line: line[1].name),
        Column("questions", COUNT, lambda line: line[1].n),
        Column("mean", WITH_ERROR, lambda line: line[1].estimate),
        Column(columns.NULL_RATE.heading, NUMBER, lambda line: line[1].null_rate),
    ]
    return tabulate(found, shown) if found else None


# ---------------------------------------------------------------------- in Python

IN_NOTEBOOKS: Sequence[Column[Row]] = (
    columns.MODEL,
    Column("task", TEXT, lambda row: row.name),
    Column("questions", TEXT, lambda row: count(row.n)),
    Column("verdict", TEXT, lambda row: row.verdict.word),
    Column("flagged", TEXT, lambda row: percent(columns.FLAGGED.of(row).value) if row.n_tested else DASH),
)


class LoadedRun(list[dict[str, Scalar]]):
    """One record per question; in a notebook, a table of the verdicts, the most suspicious first.

    annotations: what the records are made from, one per model: rows, questions and problems
    """

    def __init__(self, annotations: Sequence[Annotation]) -> None:
        found = ((one.model, question) for one in annotations for question in one.questions)
        super().__init__(same_columns([{"model": model, **flat_question(question)} for model, question in found]))
        self.annotations = tuple(annotations)

    def to_pandas(self) -> DataFrame:
        """One row per question."""
        import pandas

        return pandas.DataFrame(list(self))

    def plot(self) -> Plot:
        """The plot that compares models and benchmarks, which a notebook shows; `plot().save("plot.svg")` keeps it.

        Raises ValueError if no audit has anything to draw.
        """
        return comparison_plot(self.annotations)

    def __repr__(self) -> str:
        models = ", ".join(visible(annotation.model) for annotation in self.annotations)
        return f"<LoadedRun: {counted(len(self))}, {counted(len(self.annotations), 'model')}: {models}>"

    def _repr_html_(self) -> str:
        rows = benchmarks(row for annotation in self.annotations for row in annotation.rows)
        return render_template("notebook.html.j2", table=tabulate(rows, IN_NOTEBOOKS))
