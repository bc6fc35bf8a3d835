"""Records of the leaderboard: many models on many benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.results.result_types import Row


@dataclass(frozen=True)
class Standing:
    """One model on one benchmark.

    rank: 1 + number of models that are flagged significantly more often; models that cannot be told apart share a rank
    """

    row: Row
    rank: int


@dataclass(frozen=True)
class Board:
    """One benchmark: its models, the most suspicious verdict first, then the most flagged.

    n_common: questions on which all of the models were tested
    """

    benchmark: str
    standings: tuple[Standing, ...]
    n_common: int


@dataclass(frozen=True)
class Leaderboard:
    """confused: rows with choice confusion, also of models that are on no board
    detectors: ids of those whose flags the boards show; one if all models were audited alike
    """

    boards: tuple[Board, ...]
    confused: tuple[Row, ...] = ()
    detectors: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
