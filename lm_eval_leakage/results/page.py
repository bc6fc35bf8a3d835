"""The report on runs joined with audits, as one HTML page: verdicts, tables, charts, flagged questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from lm_eval_leakage.results import columns
from lm_eval_leakage.results.charts import DotChart, Dots, margin_histogram, rank, rank_histograms, round_ticks
from lm_eval_leakage.results.comparison import comparison
from lm_eval_leakage.results.flagged_questions import FlaggedList, list_flagged, n_bytes
from lm_eval_leakage.results.formatting import count
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.html import render_template
from lm_eval_leakage.results.page_tables import CHECKED, FIRST, benchmark_table, other_detectors, place_of, rows_table
from lm_eval_leakage.results.result_types import Annotation, AuditedQuestion, Row, merged
from lm_eval_leakage.results.tables import LEAST, Suspicion, benchmarks, by_suspicion, suspicion
from lm_eval_leakage.results.tabulating import INTERVALS_NAMED, TEXT, Cell, Column, tabulate
from lm_eval_leakage.results.verdict_texts import FEWEST_FLAGGED, summarise_verdict
from lm_eval_leakage.results.verdict_words import word_with_aim

LARGEST_PAGE = 4_900_000  # bytes; a page stays below 5 MB
LARGEST_DATA = 4_000_000  # bytes of it for flagged questions
N_DRAWN = 8  # benchmarks of a model whose ranks and margins are drawn
N_UNFOLDED = 8  # verdicts that are shown at once; the others are folded
# Columns of verdicts of earlier checks (`jobs`), which the page shows apart
EARLIER: Sequence[Column[Any]] = (
    Column("concluded at", TEXT, attrgetter("time")),
    Column("model", TEXT, attrgetter("model")),
    Column("task", TEXT, attrgetter("task")),
    Column("verdict", TEXT, lambda verdict: word_with_aim(verdict.verdict, verdict.detect)),
    Column("why", TEXT, attrgetter("summary")),
)


def render_page(annotations: Sequence[Annotation], earlier: Sequence[Any] = ()) -> str:
    """Return one page for all models, the most suspicious verdicts first.

    As many flagged questions are left out as needed to keep it below 5 MB.

    annotations: one per model, or one for each of its benchmarks
    earlier: verdicts of earlier checks; they have the attributes that EARLIER reads
    """
    models = sorted(
        grouped(annotations, lambda annotation: annotation.model).values(),
        key=lambda parts: min(map(_suspicion, parts)),
    )
    annotations = [*map(merged, models)]
    rows = [row for annotation in annotations for row in annotation.rows]
    benchmark_rows = benchmarks(rows)
    verdicts = [*map(summarise_verdict, benchmark_rows)]
    sections = [_section(whole, parts) for whole, parts in zip(annotations, models, strict=True)]
    further = Counter(verdict.word or "without a verdict" for verdict in verdicts[N_UNFOLDED:])

    def page_with(budget: int) -> str:  # bytes for flagged questions
        return render_template(
            "page.html.j2",
            models=list(zip(sections, _lists(annotations, budget), strict=True)),
            verdicts=verdicts[:N_UNFOLDED],
            further=verdicts[N_UNFOLDED:],
            further_words=", ".join(f"{count(n)} {word}" for word, n in further.items()),
            comparison=comparison(benchmark_rows) if len(benchmark_rows) > 1 else None,
            table=benchmark_table(benchmark_rows, FIRST),
            checked=benchmark_table(benchmark_rows, CHECKED),
            all_rows=rows_table(by_suspicion(rows)),
            has_verdicts=any(verdict.word for verdict in verdicts),
            has_flags=any(section["n_tested"] for section in sections),
            earlier=tabulate(earlier, EARLIER),
            intervals_named=INTERVALS_NAMED,
        )

    return page_with(min(LARGEST_DATA, LARGEST_PAGE - n_bytes(page_with(0))))


def _suspicion(annotation: Annotation) -> Suspicion:
    """Return the suspicion of the model's most suspicious benchmark."""
    return min((suspicion(row.verdict) for row in benchmarks(annotation.rows)), default=LEAST)


def _lists(annotations: Sequence[Annotation], budget: int) -> list[FlaggedList]:
    """Return each model's flagged questions. Each model gets an equal share of the budget; what one does not need goes
    to those that need more.
    """
    n_flagged = [
        sum(bool(question.flagged) for question in annotation.audited_questions) for annotation in annotations
    ]
    lists: dict[int, FlaggedList] = {}
    for place in sorted(range(len(annotations)), key=n_flagged.__getitem__):
        lists[place] = list_flagged(annotations[place], budget // (len(annotations) - len(lists)))
        budget -= n_bytes(lists[place].data)
    return [lists[place] for place in range(len(annotations))]


def _section(annotation: Annotation, parts: Sequence[Annotation]) -> dict[str, Any]:
    """Return what the page's template needs to show the audits of one model, except its flagged questions.

    Each benchmark has its own charts, since questions of several are never counted together. The most suspicious
    benchmark comes first.

    parts: the annotations that `annotation` is merged from; each has its own verdicts, and may share questions
    """
    audited = annotation.audited_questions
    by_benchmark = [
        (name, questions) for part in sorted(parts, key=_suspicion) for name, questions in _by_benchmark(part).items()
    ]
    charts = [_charts(name, questions) for name, questions in by_benchmark]
    charts = [benchmark for benchmark in charts if benchmark["ranks"] or benchmark["margins"]]
    drawn = charts[:N_DRAWN]
    ranks = [chart for benchmark in drawn for chart in benchmark["ranks"]]
    n_asked = sum(question.flagged is not None or question.pvalue is not None for question in audited)
    n_tested = sum(question.flagged is not None for question in audited)
    arms, others = _arms(annotation.rows), other_detectors(annotation.rows)
    return {
        "annotation": annotation,
        "is_empty": not (ranks or n_tested or arms or others),
        "n_tested": n_tested,
        "arms": arms,
        "others": others,
        "benchmarks": drawn,
        "not_drawn": [benchmark["name"] for benchmark in charts[N_DRAWN:]],
        "n_unranked": n_asked - sum(rank(question) is not None for question in audited),
        "has_ranks": bool(ranks),
        "has_margins": any(benchmark["margins"] for benchmark in drawn),
        "is_compared": any(chart.compared_with for chart in ranks),
    }


def _by_benchmark(annotation: Annotation) -> dict[str, list[AuditedQuestion]]:
    """Return the audited questions of each benchmark, a group or a task in no group, the most suspicious first."""
    groups = {row.task: row.group for row in annotation.rows if row.group}
    by_benchmark: dict[str, list[AuditedQuestion]] = {row.task: [] for row in benchmarks(annotation.rows)}
    for audited in annotation.audited_questions:
        by_benchmark.setdefault(groups.get(audited.benchmark, audited.benchmark), []).append(audited)
    return {name: questions for name, questions in by_benchmark.items() if questions}


def _charts(name: str, audited_questions: Sequence[AuditedQuestion]) -> dict[str, Any]:
    """Return the charts of one benchmark: of ranks, and of margins if enough questions are flagged."""
    has_enough = sum(bool(question.flagged) for question in audited_questions) >= FEWEST_FLAGGED
    ranks, undrawn = rank_histograms(audited_questions)
    margins = margin_histogram(audited_questions) if has_enough else None
    return {"name": name, "ranks": ranks, "undrawn": undrawn, "margins": margins}


def _arms(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return a chart of the benchmarks and a table of all rows with choice confusion; None if no row has it."""
    compared = [row for row in rows if any(arm.of(row) for arm in columns.ARM_COLUMNS.values())]
    if not compared:
        return None
    first = [row for row in benchmarks(rows) if row in compared] or compared[:1]
    arms = {
        columns.ARMS_IN_WORDS[name]: arm
        for name, arm in columns.ARM_COLUMNS.items()
        if any(arm.of(row) for row in compared)
    }
    dots = [Dots(row.task, {name: arm.of(row) for name, arm in arms.items()}) for row in first]
    by_arm = [replace(arm, heading=name, meaning="") for name, arm in arms.items()]
    chart = DotChart("Accuracy by arm", "accuracy, 95 % interval", dots, round_ticks(0.0, 1.0))
    task = replace(columns.TASK, of=lambda row: Cell(row.task, place_of(row)), meaning="")
    return {"chart": chart, "table": tabulate(compared, [task, *by_arm])}
