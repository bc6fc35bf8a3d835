"""Records of the leaderboard: many models on many benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.results.result_types import Row


@dataclass(frozen=True)
class Standing:
    """One model on one benchmark.

    first: 1 + number of models that are flagged significantly more often
    last: number of all models, minus those that are flagged significantly less often

    more_than: the models that are flagged significantly less often

    With probability 95 %, the ranks of all models are within their intervals `first` to `last`, and all models in
    `more_than` are flagged less often.
    """

    row: Row
    first: int
    last: int
    more_than: tuple[str, ...] = ()

    @property
    def ranks(self) -> str:
        """`2`, or `2–4`; empty if no question was tested that can be flagged."""
        if not self.row.n_tested:
            return ""
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True)
class Board:
    """One benchmark: its models, the most suspicious verdict first, then the highest ranks.

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
