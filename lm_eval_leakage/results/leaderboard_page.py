"""The leaderboard of many models on many benchmarks, as one HTML page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from lm_eval_leakage.results.charts import Axis, DotChart, Dots, dot_chart, share_axis
from lm_eval_leakage.results.columns import (
    ARM_COLUMNS,
    CONFUSION,
    FLAGGED,
    FLAGGED_UNGUARDED,
    MODEL,
    N_TESTED,
    NULL_RATE,
    OF_VERDICT,
    VERDICT,
    Column,
    badge_of,
)
from lm_eval_leakage.results.comparison import Comparison, common_basis, comparison
from lm_eval_leakage.results.data_verdict import WORDS
from lm_eval_leakage.results.formatting import EMPTY, Cell, count_cell, error_cell, text_cell, whole_percent
from lm_eval_leakage.results.html import render as render_template
from lm_eval_leakage.results.leaderboard import HOW_TO_READ, MORE_THAN, Board, Leaderboard, Standing, shortened
from lm_eval_leakage.results.page import FIRST, MODEL_AND_BENCHMARK, PageColumn, of_row, table_of_checked, tabulate
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.told_verdicts import sentence_to_copy

N_NAMED = 5  # models that are named for each verdict


@dataclass(frozen=True)
class Place:
    """A model's place on a board."""

    benchmark: str
    n_common: int
    standing: Standing

    @property
    def row(self) -> Row:
        return self.standing.row


def _of_place(column: Column[Any]) -> PageColumn[Place]:
    own = of_row(column)
    return PageColumn(own.title, lambda place: own.cell(place.row), own.meaning, own.is_text)


def _rank(standing: Standing) -> Cell:
    return Cell(standing.ranks, "", standing.first + standing.last) if standing.ranks else EMPTY


def _first(own: PageColumn[Row], place: Place) -> Cell:
    return own.cell(place.row)


FURTHER = (
    *(column for column in OF_VERDICT if column.heading and column is not VERDICT),
    FLAGGED_UNGUARDED,
    N_TESTED,
)
STANDINGS: tuple[PageColumn[Place], ...] = (
    PageColumn("model", lambda place: MODEL_AND_BENCHMARK.cell(place.row), is_text=True),
    *(PageColumn(own.title, partial(_first, own), own.meaning, own.is_text) for own in FIRST),
    PageColumn(
        "rank by flags",
        lambda place: _rank(place.standing),
        "1 means flagged most often; an interval from 1 + the number of models with significantly more flags, to the "
        "number of models minus those with significantly fewer",
    ),
)
ALL_STANDINGS: tuple[PageColumn[Place], ...] = (
    *STANDINGS,
    PageColumn(
        MORE_THAN,
        lambda place: text_cell("" if not place.standing.more_than else shortened(place.standing.more_than)),
        "models with significantly fewer flags (McNemar's exact test, adjusted for the number of pairs)",
        is_text=True,
    ),
    *(_of_place(column) for column in FURTHER),
    PageColumn(
        "common",
        lambda place: count_cell(place.n_common),
        "questions on which all models of the benchmark were tested",
    ),
)

CONFUSION_ARMS: tuple[PageColumn[Row], ...] = (
    of_row(MODEL),
    PageColumn("benchmark", lambda row: text_cell(row.task), is_text=True),
    PageColumn("original", lambda row: error_cell(ARM_COLUMNS["original"].of(row))),
    PageColumn("generalized", lambda row: error_cell(ARM_COLUMNS["generalized"].of(row))),
    PageColumn("difference", lambda row: _signed(CONFUSION.cell(row)), "generalized minus original"),
)


@dataclass(frozen=True)
class Judged:
    """The models with one verdict on a board, the first few by name; word: empty for those without a verdict"""

    word: str
    models: tuple[str, ...]

    @property
    def badge(self) -> str:
        return badge_of(self.word)


@dataclass(frozen=True)
class BoardShown:
    """flags: a sentence on who is flagged most and least; empty if no question of any model can be flagged"""

    benchmark: str
    judged: tuple[Judged, ...]
    flags: str
    comparison: Comparison | None


def render(leaderboard: Leaderboard) -> str:
    boards = leaderboard.boards
    rows = [standing.row for board in boards for standing in board.standings]
    axis = share_axis(FLAGGED.of(row) for row in rows)
    places = [place for board in boards for place in _places(board)]
    shown = [_shown(board) for board in boards]
    return render_template(
        "leaderboard.html.j2",
        leaderboard=leaderboard,
        boards=shown,
        on_top=shown[0].comparison if len(shown) == 1 else None,
        how_to_read=HOW_TO_READ,
        table=tabulate(places, STANDINGS, lambda place: place.benchmark),
        all_columns=tabulate(places, ALL_STANDINGS, lambda place: place.benchmark),
        charts=[_chart(board, axis) for board in boards if any(FLAGGED.of(one.row) for one in board.standings)],
        checked=table_of_checked(rows),
        citations=[sentence for row in rows if (sentence := sentence_to_copy(row))],
        confusion=tabulate(leaderboard.confused, CONFUSION_ARMS, lambda row: row.task),
        has_verdicts=any(row.verdict.word for row in rows),
        has_flags=any(FLAGGED.of(row) for row in rows),
    )


def _shown(board: Board) -> BoardShown:
    words = [*reversed(WORDS), ""]
    judged = [Judged(word, tuple(names)) for word in words if (names := _models(board, word))]
    rows = [standing.row for standing in board.standings]
    drawn = comparison(rows) if common_basis(rows) else None  # the flags have charts of their own
    return BoardShown(board.benchmark, tuple(judged), _flags(board), drawn)


def _places(board: Board) -> list[Place]:
    return [Place(board.benchmark, board.n_common, standing) for standing in board.standings]


def _models(board: Board, word: str) -> list[str]:
    """With this verdict; the first few by name."""
    names = [standing.row.model for standing in board.standings if standing.row.verdict.word == word]
    left = len(names) - N_NAMED
    return [*names[:N_NAMED], f"{left} more"] if left > 0 else names


def _flags(board: Board) -> str:
    tested = [standing.row for standing in board.standings if FLAGGED.of(standing.row)]
    if not tested:
        return ""
    most, least = (find(tested, key=lambda row: FLAGGED.of(row).value) for find in (max, min))
    chance = NULL_RATE.of(most)
    expected = "" if math.isnan(chance) else f" ({whole_percent(chance)} expected by chance)"
    highest, lowest = (whole_percent(FLAGGED.of(row).value) for row in (most, least))
    if most is least:
        return f"{highest} of questions flagged{expected}."
    return f"Flagged: {lowest} of questions for {least.model} to {highest} for {most.model}{expected}."


def _chart(board: Board, axis: Axis) -> DotChart:
    """Like Figure 3 of Ni et al. (2025); all boards have the same scale."""
    rows = [standing.row for standing in board.standings]
    dots = [Dots(row.model, {"flagged": FLAGGED.of(row)}, NULL_RATE.of(row), note=row.verdict.word) for row in rows]
    return dot_chart(board.benchmark, "share of questions flagged, 95 % interval", dots, axis)


def _signed(cell: Cell) -> Cell:
    is_gain = cell != EMPTY and cell.order is not None and cell.order > 0
    return Cell(f"+{cell.text}", cell.small, cell.order) if is_gain else cell
