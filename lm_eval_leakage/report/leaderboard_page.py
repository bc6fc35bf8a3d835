"""Many models on many benchmarks, as one HTML page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lm_eval_leakage.report.columns import P_MEANING, P_UNGUARDED_MEANING
from lm_eval_leakage.report.dots import DotChart, Dots, dot_chart, share_end
from lm_eval_leakage.report.environment import render as render_template
from lm_eval_leakage.report.formatting import counted, number, plus_minus
from lm_eval_leakage.report.table import (
    EMPTY,
    Cell,
    Column,
    bar_cell,
    count_cell,
    error_cell,
    interval_cell,
    number_cell,
    pvalue_cell,
    tabulate,
    text_cell,
)
from lm_eval_leakage.results.annotation import UNKNOWN, Row
from lm_eval_leakage.results.flags import P_UNGUARDED, P
from lm_eval_leakage.results.standings import Board, Leaderboard


@dataclass(frozen=True)
class Place:
    """A model's place on a board; is_shared: whether others hold it too."""

    benchmark: str
    n_common: int
    row: Row
    rank: int
    is_shared: bool


STANDINGS: tuple[Column[Place], ...] = (
    Column("model", lambda place: text_cell(place.row.model), is_text=True),
    Column("benchmark", lambda place: text_cell(place.benchmark), is_text=True),
    Column(
        "rank",
        lambda place: Cell(str(place.rank), "tied" if place.is_shared else "", place.rank),
        "1 + the number of models that are flagged significantly more often",
    ),
    Column(
        "flagged",
        lambda place: bar_cell(place.row.flagged, place.row.null_rate),
        "share of the tested questions that the main detector flags",
    ),
    Column("by chance", lambda place: number_cell(place.row.null_rate), "that share without any leakage"),
    Column(P, lambda place: pvalue_cell(place.row.pvalue), P_MEANING),
    Column(
        "flagged, no guard",
        lambda place: error_cell(place.row.flagged_unguarded),
        "the share flagged of the questions whose options have no natural order by their wording",
    ),
    Column(P_UNGUARDED, lambda place: pvalue_cell(place.row.pvalue_unguarded), P_UNGUARDED_MEANING),
    Column("accuracy", lambda place: error_cell(place.row.accuracy), "in the run, as the harness gave it"),
    Column("accuracy unflagged", lambda place: interval_cell(place.row.accuracy_unflagged), "on unflagged questions"),
    Column("tested", lambda place: count_cell(place.row.n_tested), "questions that the main detector tested"),
    Column("common", lambda place: count_cell(place.n_common), "questions that all models of the benchmark share"),
)

CONFUSION: tuple[Column[Row], ...] = (
    Column("model", lambda row: text_cell(row.model), is_text=True),
    Column("benchmark", lambda row: text_cell(row.task), is_text=True),
    Column("original", lambda row: error_cell(row.arms.get("original", UNKNOWN))),
    Column("generalized", lambda row: error_cell(row.arms.get("generalized", UNKNOWN))),
    Column("difference", lambda row: _signed(error_cell(row.confusion)), "generalized less original"),
)


def render(leaderboard: Leaderboard) -> str:
    end = share_end(standing.row.flagged for board in leaderboard.boards for standing in board.standings)
    places = [place for board in leaderboard.boards for place in _places(board)]
    return render_template(
        "leaderboard.html.j2",
        leaderboard=leaderboard,
        headlines=[_headline(board) for board in leaderboard.boards],
        table=tabulate(places, STANDINGS, lambda place: place.benchmark),
        charts=[_chart(board, end) for board in leaderboard.boards if board.standings],
        confusion=tabulate(leaderboard.confused, CONFUSION, lambda row: row.task),
    )


def _places(board: Board) -> list[Place]:
    holders = Counter(standing.rank for standing in board.standings)
    return [
        Place(board.benchmark, board.n_common, standing.row, standing.rank, holders[standing.rank] > 1)
        for standing in board.standings
    ]


def _headline(board: Board) -> str:
    models = counted(len(board.standings), "model")
    tested = [standing.row for standing in board.standings if standing.row.flagged]
    if not tested:
        return f"On {board.benchmark}, none of {models} has a tested question."
    most, least = (find(tested, key=lambda row: row.flagged.value) for find in (max, min))
    start = f"On {board.benchmark}, by {counted(board.n_common)} that all of {models} were tested on: "
    chance = "" if not most.null_rate >= 0 else f", by chance {number(most.null_rate)}"
    found = f"{most.model} is flagged on a share of {plus_minus(most.flagged)}{chance}"
    return f"{start}{found}{'' if most is least else f'; {least.model} on {plus_minus(least.flagged)}'}."


def _chart(board: Board, end: float) -> DotChart:
    """As Figure 3 of Ni et al. (2025); all boards on one scale."""
    rows = [standing.row for standing in board.standings]
    dots = [Dots(row.model, {"flagged": row.flagged}, row.null_rate) for row in rows]
    return dot_chart(board.benchmark, "share flagged, 95 % interval", dots, end)


def _signed(cell: Cell) -> Cell:
    is_gain = cell != EMPTY and cell.order is not None and cell.order > 0
    return Cell(f"+{cell.text}", cell.small, cell.order) if is_gain else cell
