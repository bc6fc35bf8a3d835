"""The leaderboard: models on each benchmark, the most suspicious verdict first, and ranked by how many questions are
flagged; each rank is an interval. As Markdown, CSV, JSON records and one HTML page.

Two models differ if McNemar's exact test over the questions on which both were tested, adjusted for the number of
pairs (Holm), is significant at 5 %. A model's rank is then at least 1 + the number of models that are flagged more
often, and at most the number of models minus those that are flagged less often; with probability 95 % that holds for
all models at once. A single rank would look like a difference between models that were never shown to differ.

Source: simultaneous intervals of ranks from pairwise tests, Al Mohamad, van Zwet, Solari and Goeman (2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from lm_eval_leakage.detectors.choice_confusion import difference
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results import columns
from lm_eval_leakage.results.charts import DotChart, Dots, ticks_of
from lm_eval_leakage.results.comparison import common_basis, comparison
from lm_eval_leakage.results.formatting import (
    COUNT,
    DASH,
    EMPTY,
    NUMBER,
    TEXT,
    WITH_ERROR,
    Cell,
    Column,
    csv_of,
    markdown_of,
    tabulate,
    whole_percent,
)
from lm_eval_leakage.results.html import render
from lm_eval_leakage.results.page import CHECKED, FIRST, MODEL_AND_BENCHMARK, benchmark_table
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, flat_row
from lm_eval_leakage.results.tables import Suspicion, cells, suspicion
from lm_eval_leakage.results.told_verdicts import by_chance, sentence_to_copy
from lm_eval_leakage.results.verdict import VerdictWord
from lm_eval_leakage.results.verdict_numbers import badge_of
from lm_eval_leakage.stats.order_sum import adjusted_by_holm
from lm_eval_leakage.texts import visible


@dataclass(frozen=True)
class Standing:
    """One model on one benchmark.

    first: 1 + number of models that are flagged significantly more often
    last: number of all models, minus those that are flagged significantly less often
    n_common: questions on which all models of the benchmark were tested
    more_than: the models that are flagged significantly less often

    With probability 95 %, the ranks of all models are within their intervals `first` to `last`, and all models in
    `more_than` are flagged less often.
    """

    row: Row
    first: int
    last: int
    n_common: int
    more_than: tuple[str, ...] = ()

    @property
    def ranks(self) -> str:
        """`2`, or `2–4`; empty if no question was tested that can be flagged."""
        if not self.row.n_tested:
            return ""
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


Board = Sequence[Standing]


@dataclass(frozen=True)
class Leaderboard:
    """boards: of each benchmark, its models, the most suspicious verdict first, then the highest ranks
    confused: rows with choice confusion, also of models that are on no board
    detectors: ids of those whose flags the boards show; one if all models were audited alike
    """

    boards: tuple[Board, ...]
    confused: tuple[Row, ...] = ()
    detectors: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


RANK_LEVEL = 0.05
MORE_THAN = "flagged more often than"
HOW_TO_READ = (
    "A rank is an interval: models differ significantly only if one is listed as flagged more often than the other. "
    "Intervals and lists hold for all models at once with probability 95 %."
)
NAMES_SHOWN = 5
CONFUSION_ACCURACY = "Accuracy on the original and on the generalized benchmark, ± standard errors."


def _signed(cell: Cell) -> Cell:
    is_gain = cell.order is not None and cell.order > 0
    return Cell(f"+{cell.text}", cell.small, cell.order) if is_gain else cell


CONFUSION_ARMS: Sequence[Column[Row]] = (
    columns.MODEL,
    Column("benchmark", TEXT, lambda row: row.task),
    Column("original", WITH_ERROR, columns.ARM_COLUMNS["original"].of),
    Column("generalized", WITH_ERROR, columns.ARM_COLUMNS["generalized"].of),
    Column("difference", WITH_ERROR, lambda row: _signed(columns.CONFUSION.cell(row)), "generalized minus original"),
)


def leaderboard(annotations: Sequence[Annotation]) -> Leaderboard:
    """Of every benchmark (a group, or a task outside groups) on which some model was audited."""
    rows: dict[str, dict[str, Row]] = {}
    for annotation in annotations:
        for row in annotation.rows:
            if row.level != SUBJECT_LEVEL and not row.group:
                rows.setdefault(row.task, {}).setdefault(annotation.model, row)  # the first metric
    tested = {task: [row for row in own.values() if row.n_tested or row.verdict.word] for task, own in rows.items()}
    boards = sorted(map(_board, filter(None, tested.values())), key=lambda board: _place(board[0])[0])
    confused = [row for own in rows.values() for row in own.values() if columns.CONFUSION.of(row)]
    detectors = dict.fromkeys(annotation.detector for annotation in annotations if annotation.detector)
    problems = dict.fromkeys(problem for annotation in annotations for problem in annotation.problems)
    return Leaderboard(tuple(boards), tuple(confused), tuple(detectors), tuple(problems))


def _board(rows: Sequence[Row]) -> Board:
    apart = _apart(rows)
    n_common = len(set.intersection(*({*row.flags} for row in rows)))
    standings = []
    for index, row in enumerate(rows):
        n_above = sum(lower == index for _, lower in apart)
        below = tuple(sorted(rows[lower].model for higher, lower in apart if higher == index))
        standings.append(Standing(row, 1 + n_above, len(rows) - len(below), n_common, below))
    return sorted(standings, key=_place)


def _place(standing: Standing) -> tuple[Suspicion, int, int, float, str]:
    """The most suspicious verdict first; among equal ones the most flagged."""
    row, flagged = standing.row, columns.FLAGGED.of(standing.row)
    return suspicion(row.verdict), standing.first, standing.last, -flagged.value if flagged else 1.0, row.model


def _apart(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Pairs whose first model is flagged more often, by Holm's procedure."""
    pairs, pvalues = [], []
    for one, other in combinations(range(len(rows)), 2):
        common = [name for name in rows[one].flags if name in rows[other].flags]
        if common:
            first, second = ([rows[place].flags[name] for name in common] for place in (one, other))
            change = difference(first, second)
            pairs.append((one, other) if change.value < 0 else (other, one))
            pvalues.append(change.pvalue)
    return [pair for pair, p in zip(pairs, adjusted_by_holm(pvalues), strict=True) if p <= RANK_LEVEL]


def as_markdown(board: Leaderboard) -> str:
    """A table per benchmark, and choice confusion."""
    parts = []
    for own in board.boards:
        head, *body = cells([standing.row for standing in own])
        lines = [[one.ranks or DASH, *line, shortened(one.more_than)] for one, line in zip(own, body, strict=True)]
        table = markdown_of([["rank", *head, MORE_THAN], *lines])
        text = f"{own[0].n_common} questions that all {len(own)} models were tested on. {HOW_TO_READ}"
        parts.append(f"## {visible(own[0].row.task)}\n\n{text}\n\n{table}")
    if board.confused:
        table = markdown_of(tabulate(board.confused, CONFUSION_ARMS).cells)
        parts.append(f"## Choice confusion\n\n{CONFUSION_ACCURACY}\n\n{table}")
    return "\n\n".join(parts)


def shortened(models: Sequence[str]) -> str:
    """The models' names; the number of the rest if they are many."""
    rest = len(models) - NAMES_SHOWN
    return ", ".join(models[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "") or DASH


def as_csv(board: Leaderboard) -> str:
    """One line per model and benchmark."""
    return csv_of(records(board))


def records(board: Leaderboard) -> list[Mapping[str, object]]:
    """One per model and benchmark, every column by its key."""
    found: list[Mapping[str, object]] = [
        {
            "benchmark": standing.row.task,
            "rank_low": standing.first if standing.ranks else None,
            "rank_high": standing.last if standing.ranks else None,
            "more_than": ", ".join(standing.more_than),
            "n_common": standing.n_common,
            **flat_row(standing.row),
        }
        for own in board.boards
        for standing in own
    ]
    untested = [row for row in board.confused if not (row.n_tested or row.verdict.word)]
    nothing = dict.fromkeys(("rank_low", "rank_high", "more_than", "n_common"))
    found += [{"benchmark": row.task, **nothing, **flat_row(row)} for row in untested]
    return found


# ---------------------------------------------------------------------- as a page


def _of_standing(column: Column[Row]) -> Column[Standing]:
    return Column(column.heading, column.kind, lambda one: column.cell(one.row), column.meaning)


def _rank(one: Standing) -> Cell:
    return Cell(one.ranks, "", one.first + one.last) if one.ranks else EMPTY


STANDINGS: Sequence[Column[Standing]] = (
    *map(_of_standing, (MODEL_AND_BENCHMARK, *FIRST)),
    Column(
        "rank by flags",
        NUMBER,
        _rank,
        "1 means flagged most often; an interval from 1 + the number of models with significantly more flags, to the "
        "number of models minus those with significantly fewer",
    ),
)
FURTHER = (
    *(one for one in columns.OF_VERDICT if one.heading and one is not columns.VERDICT),
    columns.FLAGGED_UNGUARDED,
    columns.N_TESTED,
)
ALL_STANDINGS: Sequence[Column[Standing]] = (
    *STANDINGS,
    Column(
        MORE_THAN,
        TEXT,
        lambda one: shortened(one.more_than) if one.more_than else "",
        "models with significantly fewer flags (McNemar's exact test, adjusted for the number of pairs)",
    ),
    *map(_of_standing, FURTHER),
    Column("common", COUNT, lambda one: one.n_common, "questions on which all models of the benchmark were tested"),
)


def as_page(leaderboard: Leaderboard) -> str:
    boards = leaderboard.boards
    standings = [one for board in boards for one in board]
    rows = [one.row for one in standings]
    ticks = ticks_of(columns.FLAGGED.of(row) for row in rows)  # one scale for all charts
    shown = [_shown(board) for board in boards]
    return render(
        "leaderboard.html.j2",
        leaderboard=leaderboard,
        boards=shown,
        on_top=shown[0]["comparison"] if len(shown) == 1 else None,
        how_to_read=HOW_TO_READ,
        confusion_accuracy=CONFUSION_ACCURACY,
        table=tabulate(standings, STANDINGS, lambda one: one.row.task),
        all_columns=tabulate(standings, ALL_STANDINGS, lambda one: one.row.task),
        charts=[_chart(board, ticks) for board in boards if any(columns.FLAGGED.of(one.row) for one in board)],
        checked=benchmark_table(rows, CHECKED),
        citations=[sentence for row in rows if (sentence := sentence_to_copy(row))],
        confusion=tabulate(leaderboard.confused, CONFUSION_ARMS, lambda row: row.task),
        has_verdicts=any(row.verdict.word for row in rows),
        has_flags=any(columns.FLAGGED.of(row) for row in rows),
    )


def _shown(board: Board) -> dict[str, Any]:
    """On top of the page: the models by verdict, the first few by name; who is flagged most and least; a plot."""
    rows = [standing.row for standing in board]
    judged = []
    for word in reversed(VerdictWord):
        names = [row.model for row in rows if row.verdict.word == word]
        if names:
            judged.append((word, badge_of(word), shortened(names)))
    drawn = comparison(rows) if common_basis(rows) else None  # the flags have charts of their own
    return {"benchmark": rows[0].task, "judged": judged, "flags": _flags(rows), "comparison": drawn}


def _flags(rows: Sequence[Row]) -> str:
    tested = [row for row in rows if columns.FLAGGED.of(row)]
    if not tested:
        return ""
    most, least = (find(tested, key=lambda row: columns.FLAGGED.of(row).value) for find in (max, min))
    highest, lowest = (whole_percent(columns.FLAGGED.of(row).value) for row in (most, least))
    if most is least:
        return f"{highest} of questions flagged{by_chance(most)}."
    return f"Flagged: {lowest} of questions for {least.model} to {highest} for {most.model}{by_chance(most)}."


def _chart(board: Board, ticks: Sequence[float]) -> DotChart:
    """Like Figure 3 of Ni et al. (2025)."""
    rows = [standing.row for standing in board]
    dots = [
        Dots(row.model, {"flagged": columns.FLAGGED.of(row)}, columns.NULL_RATE.of(row), note=row.verdict.word)
        for row in rows
    ]
    return DotChart(rows[0].task, "share of questions flagged, 95 % interval", dots, ticks)
