"""The leaderboard: one number per model, the best first; and models on each benchmark, the most suspicious verdict
first, and ranked by how many questions are flagged, where each rank is an interval. As Markdown, CSV, JSON records and
one HTML page. Models that were audited in different ways have separate boards, and separate groups.

Two models differ if McNemar's exact test over the questions on which both were tested, adjusted for the number of
pairs (Holm), is significant at 5 %. A model's rank is then at least 1 + the number of models that are flagged more
often, and at most the number of models minus those that are flagged less often; with probability 95 % that holds for
all models at once. A single rank would look like a difference between models that were never shown to differ.

Source: simultaneous intervals of ranks from pairwise tests, Al Mohamad, van Zwet, Solari and Goeman (2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import combinations
from typing import Any

from lm_eval_leakage.detectors.choice_confusion import accuracy_difference as difference_of_answers
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results import columns
from lm_eval_leakage.results.audit_settings import AuditSettings, settings_in_row, why_not_ranked
from lm_eval_leakage.results.charts import DotChart, Dots, ticks_of
from lm_eval_leakage.results.comparison import common_basis, comparison
from lm_eval_leakage.results.formatting import DASH, counted, whole_percent
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.html import render_template
from lm_eval_leakage.results.model_ranking import NUMBER_MEANING, RANKED, AuditedModel, ModelGroup, rank_models
from lm_eval_leakage.results.page_tables import CHECKED, FIRST, MODEL_AND_BENCHMARK, benchmark_table
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, flat_row
from lm_eval_leakage.results.tables import Suspicion, cells, suspicion
from lm_eval_leakage.results.tabulating import (
    COUNT,
    EMPTY,
    INTERVAL,
    INTERVALS_NAMED,
    NUMBER,
    TEXT,
    Cell,
    Column,
    csv_of,
    markdown_of,
    tabulate,
)
from lm_eval_leakage.results.verdict import VerdictWord
from lm_eval_leakage.results.verdict_numbers import badge_of
from lm_eval_leakage.results.verdict_texts import by_chance, sentence_to_copy
from lm_eval_leakage.results.verdict_words import aim_beside
from lm_eval_leakage.stats.order_sum import adjusted_by_holm
from lm_eval_leakage.texts import visible

RANK_LEVEL = 0.05
MORE_THAN = "flagged more often than"
HOW_TO_READ = (
    "A rank is an interval: models differ significantly only if one is listed as flagged more often than the other. "
    "Intervals and lists hold for all models at once with probability 95 %."
)
NAMES_SHOWN = 5
ENDINGS = ("", "_stderr", "_low", "_high")  # of the names of a column's parts in CSV
CONFUSION_ACCURACY = f"Accuracy on the original and on the generalized benchmark. {INTERVALS_NAMED}."
FURTHER = (
    *(column for column in columns.OF_VERDICT if column.heading and column is not columns.VERDICT),
    columns.FLAGGED_UNGUARDED,
    columns.N_TESTED,
)


@dataclass(frozen=True)
class Standing:
    """One model on one benchmark, among the models that were audited alike.

    first: 1 + number of models that are flagged significantly more often
    last: number of all models of the board, minus those that are flagged significantly less often
    n_common: questions on which all models of the board were tested
    more_than: the models that are flagged significantly less often
    settings: how the model was audited, like all models of its board

    With probability 95 %, the ranks of all models are within their intervals `first` to `last`, and all models in
    `more_than` are flagged less often.
    """

    row: Row
    first: int
    last: int
    n_common: int
    more_than: tuple[str, ...] = ()
    settings: AuditSettings | None = None

    @property
    def ranks(self) -> str:
        """Return the ranks as `2` or `2–4`; empty if no question was tested that can be flagged."""
        if not self.row.n_tested:
            return ""
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


Board = Sequence[Standing]


@dataclass(frozen=True)
class Leaderboard:
    """The boards of several models.

    boards: of each benchmark, the models that were audited alike, the most suspicious verdict first, then the highest
        ranks; a benchmark has several boards where models were audited in different ways
    models: one number per model, in groups of models that were audited alike
    confused: rows with choice confusion, also of models that are on no board
    detectors: ids of those whose flags the boards show; one if all models were audited alike
    """

    boards: tuple[Board, ...]
    models: tuple[ModelGroup, ...] = ()
    confused: tuple[Row, ...] = ()
    detectors: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def _signed(cell: Cell) -> Cell:
    is_gain = cell.order is not None and cell.order > 0
    return Cell(f"+{cell.text}", cell.small, cell.order) if is_gain else cell


CONFUSION_ARMS: Sequence[Column[Row]] = (
    columns.MODEL,
    Column("benchmark", TEXT, lambda row: row.task),
    Column("original", INTERVAL, columns.ARM_COLUMNS["original"].of),
    Column("generalized", INTERVAL, columns.ARM_COLUMNS["generalized"].of),
    Column("difference", INTERVAL, lambda row: _signed(columns.CONFUSION.cell(row)), "generalized minus original"),
)


def leaderboard(annotations: Sequence[Annotation]) -> Leaderboard:
    """Return the boards of every benchmark (a group, or a task outside groups) on which some model was audited."""
    rows: dict[str, dict[str, Row]] = {}
    settings: dict[tuple[str, str], AuditSettings] = {}
    for annotation in annotations:
        for row in annotation.rows:
            if row.level != SUBJECT_LEVEL and not row.group:
                rows.setdefault(row.task, {}).setdefault(annotation.model, row)  # the first metric
                settings.setdefault((row.task, annotation.model), settings_in_row(row, annotation.detector))
    boards = []
    for task, by_model in rows.items():
        audited = [row for row in by_model.values() if row.n_tested or row.verdict.word]
        alike = grouped(audited, lambda row: settings[row.task, row.model])
        of_task = sorted((_board(peers, how) for how, peers in alike.items()), key=len, reverse=True)
        boards += [(min(_place(board[0])[0] for board in of_task), task, of_task)] if of_task else []
    boards.sort(key=lambda entry: entry[:2])
    confused = [row for of_models in rows.values() for row in of_models.values() if columns.CONFUSION.of(row)]
    detectors = dict.fromkeys(annotation.detector for annotation in annotations if annotation.detector)
    problems = dict.fromkeys(problem for annotation in annotations for problem in annotation.problems)
    return Leaderboard(
        tuple(board for _, _, of_task in boards for board in of_task),
        rank_models(_audited_models(rows, settings)),
        tuple(confused),
        tuple(detectors),
        tuple(problems),
    )


def _audited_models(
    rows: Mapping[str, Mapping[str, Row]], settings: Mapping[tuple[str, str], AuditSettings]
) -> list[AuditedModel]:
    """Return the verdict words of each model that has one on some benchmark."""
    words: dict[str, dict[str, str]] = {}
    for task, by_model in rows.items():
        for model, row in by_model.items():
            if row.verdict.word:
                words.setdefault(model, {})[task] = row.verdict.word
    models = []
    for model, verdicts in words.items():
        judged = [task for task, word in verdicts.items() if word != VerdictWord.NO_VERDICT]
        models.append(AuditedModel(model, verdicts, {task: settings[task, model] for task in judged}))
    return models


def _board(rows: Sequence[Row], settings: AuditSettings) -> Board:
    apart = _apart(rows)
    n_common = len(set.intersection(*({*row.flags} for row in rows)))
    standings = []
    for index, row in enumerate(rows):
        n_above = sum(lower == index for _, lower in apart)
        below = tuple(sorted(rows[lower].model for higher, lower in apart if higher == index))
        standings.append(Standing(row, 1 + n_above, len(rows) - len(below), n_common, below, settings))
    return sorted(standings, key=_place)


def why_apart(board: Board, boards: Sequence[Board]) -> str:
    """Return why a board's models are not ranked with others on its benchmark; empty for its first board."""
    task = board[0].row.task
    first = next(other for other in boards if other[0].row.task == task)
    how, usual = board[0].settings, first[0].settings
    return why_not_ranked({task: how}, {task: usual}) if how and usual else ""


def _place(standing: Standing) -> tuple[Suspicion, int, int, float, str]:
    """Return a key that sorts the most suspicious verdict first; among equal ones the most flagged."""
    row, flagged = standing.row, columns.FLAGGED.of(standing.row)
    return suspicion(row.verdict), standing.first, standing.last, -flagged.value if flagged else 1.0, row.model


def _apart(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return pairs whose first model is flagged more often, by Holm's procedure."""
    pairs, pvalues = [], []
    for index, other in combinations(range(len(rows)), 2):
        common = [name for name in rows[index].flags if name in rows[other].flags]
        if common:
            first, second = ([rows[place].flags[name] for name in common] for place in (index, other))
            change = difference_of_answers(first, second)
            pairs.append((index, other) if change.value < 0 else (other, index))
            pvalues.append(change.pvalue)
    return [pair for pair, p in zip(pairs, adjusted_by_holm(pvalues), strict=True) if p <= RANK_LEVEL]


def leaderboard_as_markdown(board: Leaderboard, chosen: Sequence[str] = ()) -> str:
    """Return a table of the models, one per board, and choice confusion.

    chosen: keys of the columns of the boards' tables; the usual ones if empty
    """
    parts = [_models_as_markdown(board.models)] if board.models else []
    for standings in board.boards:
        n_models, tested = len(standings), counted(standings[0].n_common)
        models = "both models" if n_models == 2 else f"all {n_models} models"
        ending = f" that {models} were tested on. {HOW_TO_READ}" if n_models > 1 else "."
        text = f"{tested}{ending} {INTERVALS_NAMED}."
        text = "\n\n".join(filter(None, (why_apart(standings, board.boards), text)))
        parts.append(f"## {visible(standings[0].row.task)}\n\n{text}\n\n{_table_of(standings, chosen)}")
    if board.confused:
        table = markdown_of(tabulate(board.confused, CONFUSION_ARMS).cells)
        parts.append(f"## Choice confusion\n\n{CONFUSION_ACCURACY}\n\n{table}")
    return "\n\n".join(parts)


def _models_as_markdown(groups: Sequence[ModelGroup]) -> str:
    texts = [f"## Models\n\n{NUMBER_MEANING}"]
    for group in groups:
        texts += [*filter(None, [visible(group.apart)]), markdown_of(tabulate(group.models, RANKED).cells)]
    return "\n\n".join(texts)


def _table_of(board: Board, chosen: Sequence[str]) -> str:
    if chosen:
        return markdown_of(tabulate(board, [_of_standing(columns.MODEL), *chosen_columns(chosen)]).cells)
    head, *body = cells([standing.row for standing in board])
    lines = [
        [standing.ranks or DASH, *line, short_model_names(standing.more_than)]
        for standing, line in zip(board, body, strict=True)
    ]
    return markdown_of([["rank", *head, MORE_THAN], *lines])


def short_model_names(models: Sequence[str]) -> str:
    """Return the models' names; the number of the rest if they are many."""
    rest = len(models) - NAMES_SHOWN
    return ", ".join(models[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "") or DASH


def as_csv(board: Leaderboard, chosen: Sequence[str] = ()) -> str:
    """Return one line per model and benchmark.

    chosen: keys of the columns after benchmark and model; all if empty
    """
    every = records(board)
    if not chosen:
        return csv_of(every)
    chosen_columns(chosen)
    names = list(dict.fromkeys(name for record in every for name in record))
    kept = ["benchmark", "model"]
    kept += [name for key in chosen for name in names if name in {f"{key}{ending}" for ending in ENDINGS}]
    return csv_of([{name: record.get(name) for name in kept} for record in every])


def records(board: Leaderboard) -> list[Mapping[str, object]]:
    """Return one record per model and benchmark, every column by its key."""
    of_model: dict[str, dict[str, object]] = {}
    for number, group in enumerate(board.models, 1):
        for ranked in group.models:
            share = None if ranked.place is None else ranked.evidence_share
            of_model[ranked.model] = {"model_group": number, "model_place": ranked.place, "evidence_share": share}
    nothing = dict.fromkeys(("model_group", "model_place", "evidence_share"))
    lines: list[Mapping[str, object]] = [
        {
            "benchmark": standing.row.task,
            "rank_low": standing.first if standing.ranks else None,
            "rank_high": standing.last if standing.ranks else None,
            "more_than": ", ".join(standing.more_than),
            "n_common": standing.n_common,
            **of_model.get(standing.row.model, nothing),
            **flat_row(standing.row),
        }
        for standings in board.boards
        for standing in standings
    ]
    untested = [row for row in board.confused if not (row.n_tested or row.verdict.word)]
    without = dict.fromkeys(("rank_low", "rank_high", "more_than", "n_common"))
    for row in untested:
        lines.append({"benchmark": row.task, **without, **of_model.get(row.model, nothing), **flat_row(row)})
    return lines


# ---------------------------------------------------------------------- as a page


def _of_standing(column: Column[Row]) -> Column[Standing]:
    return Column(column.heading, column.kind, lambda standing: column.cell(standing.row), column.meaning)


def _rank(standing: Standing) -> Cell:
    return Cell(standing.ranks, "", standing.first + standing.last) if standing.ranks else EMPTY


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
ALL_STANDINGS: Sequence[Column[Standing]] = (
    *STANDINGS,
    Column(
        MORE_THAN,
        TEXT,
        lambda standing: short_model_names(standing.more_than) if standing.more_than else "",
        "models with significantly fewer flags (McNemar's exact test, adjusted for the number of pairs)",
    ),
    *map(_of_standing, FURTHER),
    Column(
        "common", COUNT, lambda standing: standing.n_common, "questions on which all models of the board were tested"
    ),
)
OF_BOARDS = {"rank": STANDINGS[-1], "more_than": ALL_STANDINGS[len(STANDINGS)], "n_common": ALL_STANDINGS[-1]}


def chosen_columns(names: Sequence[str]) -> list[Column[Standing]]:
    """Return the columns with these keys, with the key as heading where a column has none.

    Raises ValueError for a name that is no key.
    """
    by_key = OF_BOARDS | {column.key: _of_standing(column) for column in columns.recorded()}
    for name in names:
        if name not in by_key:
            close = get_close_matches(name, by_key, n=3)
            remedy = f"did you mean {' or '.join(close)}?" if close else "`--format csv` prints every column"
            raise ValueError(f"--columns has {name!r}, which is no column; {remedy}")
    return [replace(by_key[name], heading=by_key[name].heading or name) for name in names]


def as_page(leaderboard: Leaderboard, chosen: Sequence[str] = ()) -> str:
    """Return the page of a leaderboard.

    chosen: keys of the columns of its table of standings; the usual ones if empty
    """
    boards = leaderboard.boards
    standings = [standing for board in boards for standing in board]
    rows = [standing.row for standing in standings]
    ticks = ticks_of(columns.FLAGGED.of(row) for row in rows)  # one scale for all charts
    with_flags = [board for board in boards if any(columns.FLAGGED.of(standing.row) for standing in board)]
    citations = [sentence_to_copy(row) for row in rows]
    shown = [_shown(board) | {"apart": why_apart(board, boards)} for board in boards]
    shown_columns = [_of_standing(MODEL_AND_BENCHMARK), *chosen_columns(chosen)] if chosen else STANDINGS
    return render_template(
        "leaderboard.html.j2",
        leaderboard=leaderboard,
        boards=shown,
        on_top=shown[0]["comparison"] if len(shown) == 1 else None,
        how_to_read=HOW_TO_READ,
        intervals_named=INTERVALS_NAMED,
        confusion_accuracy=CONFUSION_ACCURACY,
        models=[(group.apart, tabulate(group.models, RANKED)) for group in leaderboard.models],
        number_meaning=NUMBER_MEANING,
        table=tabulate(standings, shown_columns, lambda standing: standing.row.task),
        all_columns=tabulate(standings, ALL_STANDINGS, lambda standing: standing.row.task),
        charts=[_chart(board, ticks) for board in with_flags],
        checked=benchmark_table(rows, CHECKED),
        citations=[citation for citation in citations if citation],
        confusion=tabulate(leaderboard.confused, CONFUSION_ARMS, lambda row: row.task),
        has_verdicts=any(row.verdict.word for row in rows),
        has_flags=any(columns.FLAGGED.of(row) for row in rows),
    )


def _shown(board: Board) -> dict[str, Any]:
    """Return what is on top of the page: the models by verdict, the first few by name; who is flagged most and least;
    a plot."""
    rows = [standing.row for standing in board]
    judged = []
    for word in reversed(VerdictWord):
        peers = grouped([row for row in rows if row.verdict.word == word], _aim)
        for aim, alike in peers.items():
            judged.append((word, badge_of(word), aim, short_model_names([row.model for row in alike])))
    drawn = comparison(rows) if common_basis(rows) else None  # the flags have charts of their own
    return {"benchmark": rows[0].task, "judged": judged, "flags": _flags(rows), "comparison": drawn}


def _aim(row: Row) -> str:
    return aim_beside(row.verdict.word, row.verdict.detect)


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
    """Return a chart like Figure 3 of Ni et al. (2025)."""
    rows = [standing.row for standing in board]
    dots = [
        Dots(row.model, {"flagged": columns.FLAGGED.of(row)}, columns.NULL_RATE.of(row), note=row.verdict.word)
        for row in rows
    ]
    return DotChart(rows[0].task, "share of questions flagged, 95 % interval", dots, ticks)
