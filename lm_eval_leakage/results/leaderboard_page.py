"""The leaderboard of many models on many benchmarks, as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
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
    badge_of,
)
from lm_eval_leakage.results.comparison import common_basis, comparison
from lm_eval_leakage.results.data_verdict import WORDS
from lm_eval_leakage.results.formatting import (
    COUNT,
    EMPTY,
    NUMBER,
    TEXT,
    WITH_ERROR,
    Cell,
    Column,
    tabulate,
    whole_percent,
)
from lm_eval_leakage.results.html import render as render_template
from lm_eval_leakage.results.leaderboard import HOW_TO_READ, MORE_THAN, Board, Leaderboard, Standing, shortened
from lm_eval_leakage.results.page import CHECKED, FIRST, MODEL_AND_BENCHMARK, benchmark_table
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.told_verdicts import by_chance, sentence_to_copy

N_NAMED = 5  # models that are named for each verdict


Place = tuple[Board, Standing]


def _of_place(column: Column[Row]) -> Column[Place]:
    return Column(column.heading, column.kind, lambda place: column.cell(place[1].row), column.meaning)


def _rank(place: Place) -> Cell:
    one = place[1]
    return Cell(one.ranks, "", one.first + one.last) if one.ranks else EMPTY


FURTHER = (
    *(column for column in OF_VERDICT if column.heading and column is not VERDICT),
    FLAGGED_UNGUARDED,
    N_TESTED,
)
STANDINGS: Sequence[Column[Place]] = (
    *map(_of_place, (MODEL_AND_BENCHMARK, *FIRST)),
    Column(
        "rank by flags",
        NUMBER,
        _rank,
        "1 means flagged most often; an interval from 1 + the number of models with significantly more flags, to the "
        "number of models minus those with significantly fewer",
    ),
)
ALL_STANDINGS: Sequence[Column[Place]] = (
    *STANDINGS,
    Column(
        MORE_THAN,
        TEXT,
        lambda place: shortened(place[1].more_than) if place[1].more_than else "",
        "models with significantly fewer flags (McNemar's exact test, adjusted for the number of pairs)",
    ),
    *map(_of_place, FURTHER),
    Column(
        "common", COUNT, lambda place: place[0].n_common, "questions on which all models of the benchmark were tested"
    ),
)
CONFUSION_ARMS: Sequence[Column[Row]] = (
    MODEL,
    Column("benchmark", TEXT, lambda row: row.task),
    Column("original", WITH_ERROR, ARM_COLUMNS["original"].of),
    Column("generalized", WITH_ERROR, ARM_COLUMNS["generalized"].of),
    Column("difference", WITH_ERROR, lambda row: _signed(CONFUSION.cell(row)), "generalized minus original"),
)


def render(leaderboard: Leaderboard) -> str:
    boards = leaderboard.boards
    rows = [one.row for board in boards for one in board.standings]
    axis = share_axis(FLAGGED.of(row) for row in rows)
    places = [(board, one) for board in boards for one in board.standings]
    shown = [_shown(board) for board in boards]
    return render_template(
        "leaderboard.html.j2",
        leaderboard=leaderboard,
        boards=shown,
        on_top=shown[0]["comparison"] if len(shown) == 1 else None,
        how_to_read=HOW_TO_READ,
        table=tabulate(places, STANDINGS, lambda place: place[0].benchmark),
        all_columns=tabulate(places, ALL_STANDINGS, lambda place: place[0].benchmark),
        charts=[_chart(board, axis) for board in boards if any(FLAGGED.of(one.row) for one in board.standings)],
        checked=benchmark_table(rows, CHECKED),
        citations=[sentence for row in rows if (sentence := sentence_to_copy(row))],
        confusion=tabulate(leaderboard.confused, CONFUSION_ARMS, lambda row: row.task),
        has_verdicts=any(row.verdict.word for row in rows),
        has_flags=any(FLAGGED.of(row) for row in rows),
    )


def _shown(board: Board) -> dict[str, Any]:
    """On top of the page: the models by verdict, the first few by name; who is flagged most and least; a plot."""
    judged = [(word, badge_of(word), names) for word in reversed(WORDS) if (names := _models(board, word))]
    rows = [standing.row for standing in board.standings]
    drawn = comparison(rows) if common_basis(rows) else None  # the flags have charts of their own
    return {"benchmark": board.benchmark, "judged": judged, "flags": _flags(board), "comparison": drawn}


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
    expected = by_chance(most)
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
