"""The leaderboard of many models on many benchmarks, as one HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lm_eval_leakage.report.dots import DotChart, Dots, dot_chart, share_end
from lm_eval_leakage.report.environment import render as render_template
from lm_eval_leakage.report.headline import Headline
from lm_eval_leakage.report.page_tables import PageColumn, of_row, tabulate
from lm_eval_leakage.results.cells import EMPTY, Cell, bar_cell, count_cell, error_cell, text_cell
from lm_eval_leakage.results.column import Column
from lm_eval_leakage.results.column_registry import (
    ACCURACY,
    ACCURACY_UNFLAGGED,
    ARM_COLUMNS,
    CONFUSION,
    FLAGGED,
    FLAGGED_UNGUARDED,
    MODEL,
    N_TESTED,
    NULL_RATE,
)
from lm_eval_leakage.results.data_verdict import WORDS
from lm_eval_leakage.results.formatting import counted, number, plus_minus
from lm_eval_leakage.results.leaderboard import HOW_TO_READ, MORE_THAN, shortened
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.standings import Board, Leaderboard, Standing
from lm_eval_leakage.results.verdict_columns import OF_VERDICT

N_NAMED = 5  # models that a headline names for each verdict


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


STANDINGS: tuple[PageColumn[Place], ...] = (
    _of_place(MODEL),
    PageColumn("benchmark", lambda place: text_cell(place.benchmark), is_text=True),
    *(_of_place(column) for column in OF_VERDICT if column.heading),
    PageColumn(
        "rank",
        lambda place: _rank(place.standing),
        "by flags: from 1 + the number of models with significantly more flags, to the number of models minus those "
        "with significantly fewer",
    ),
    PageColumn(
        FLAGGED.heading,
        lambda place: bar_cell(FLAGGED.of(place.row), NULL_RATE.of(place.row)),
        FLAGGED.meaning,
    ),
    PageColumn(
        MORE_THAN,
        lambda place: text_cell(shortened(place.standing.more_than)),
        "models with significantly fewer flags (McNemar's exact test, adjusted for the number of pairs)",
        is_text=True,
    ),
    _of_place(NULL_RATE),
    _of_place(FLAGGED_UNGUARDED),
    _of_place(ACCURACY),
    _of_place(ACCURACY_UNFLAGGED),
    _of_place(N_TESTED),
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


def render(leaderboard: Leaderboard) -> str:
    boards = leaderboard.boards
    end = share_end(FLAGGED.of(standing.row) for board in boards for standing in board.standings)
    places = [place for board in boards for place in _places(board)]
    return render_template(
        "leaderboard.html.j2",
        leaderboard=leaderboard,
        headlines=[_headline(board) for board in boards],
        how_to_read=HOW_TO_READ,
        table=tabulate(places, STANDINGS, lambda place: place.benchmark),
        charts=[_chart(board, end) for board in boards if any(FLAGGED.of(one.row) for one in board.standings)],
        confusion=tabulate(leaderboard.confused, CONFUSION_ARMS, lambda row: row.task),
    )


def _places(board: Board) -> list[Place]:
    return [Place(board.benchmark, board.n_common, standing) for standing in board.standings]


def _headline(board: Board) -> Headline:
    """The verdicts, and who is flagged most and least."""
    word = max((standing.row.verdict.word for standing in board.standings), key=["", *WORDS].index, default="")
    verdicts = [f"{each} for {', '.join(names)}" for each in reversed(WORDS) if (names := _models(board, each))]
    parts = [f"{'; '.join(verdicts)}."] if verdicts else []
    if not verdicts or any(FLAGGED.of(standing.row) for standing in board.standings):
        flags = _flags(board)
        parts.append(f"{flags[0].upper()}{flags[1:]}" if verdicts else flags)
    return Headline(f"On {board.benchmark}{': ' if verdicts else ', '}{' '.join(parts)}", word)


def _models(board: Board, word: str) -> list[str]:
    """With this verdict; the first few by name."""
    names = [standing.row.model for standing in board.standings if standing.row.verdict.word == word]
    left = len(names) - N_NAMED
    return [*names[:N_NAMED], f"{left} more"] if left > 0 else names


def _flags(board: Board) -> str:
    models = counted(len(board.standings), "model")
    tested = [standing.row for standing in board.standings if FLAGGED.of(standing.row)]
    if not tested:
        return f"none of {models} has a tested question."
    most, least = (find(tested, key=lambda row: FLAGGED.of(row).value) for find in (max, min))
    chance = f", by chance {number(NULL_RATE.of(most))}" if NULL_RATE.of(most) >= 0 else ""
    found = f"{most.model} is flagged on a share of {plus_minus(FLAGGED.of(most))}{chance}"
    start = f"by {counted(board.n_common)} that all of {models} were tested on: "
    return f"{start}{found}{'' if most is least else f'; {least.model} on {plus_minus(FLAGGED.of(least))}'}."


def _chart(board: Board, end: float) -> DotChart:
    """Like Figure 3 of Ni et al. (2025); all boards have the same scale."""
    rows = [standing.row for standing in board.standings]
    dots = [Dots(row.model, {FLAGGED.heading: FLAGGED.of(row)}, NULL_RATE.of(row)) for row in rows]
    return dot_chart(board.benchmark, "share flagged, 95 % interval", dots, end)


def _signed(cell: Cell) -> Cell:
    is_gain = cell != EMPTY and cell.order is not None and cell.order > 0
    return Cell(f"+{cell.text}", cell.small, cell.order) if is_gain else cell
