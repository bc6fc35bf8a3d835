"""Outlier test: is one order of the options, whichever it is, much more likely than all others?

The score is that of an isolation forest for the most likely order (`stats.order_scores`). Null hypothesis: the
log-likelihoods of a question's orders are independent draws from one normal distribution; `outlier_null.npz` holds how
often such draws have at most some score, counted by `benchmarks/outlier_null.py`. Limits: the published thresholds
flag 35 % of such draws with 24 orders and 48 % with 120; `null_rate` gives the rate. With 2 orders the score is always
0, so such questions are skipped, and with 6 (3 options) the published thresholds flag almost nothing. Source: Ni et
al., AAAI 2025 (arXiv 2409.01790), scenario b (a model trained on shuffled options), there with scikit-learn's
IsolationForest of 100 trees fitted to each question; here the limit of infinitely many trees, which is deterministic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_leakage.detectors import statistics
from lm_eval_leakage.detectors.option_orders import OrderStatistic
from lm_eval_leakage.records import Evidence, Skipped
from lm_eval_leakage.stats.pooling import Floats

if TYPE_CHECKING:
    from lm_eval_leakage.stats.order_scores import OrderScores  # needs torch

TABLE = Path(__file__).with_name("outlier_null.npz")
FOUR_OPTIONS_DELTA = -0.20  # Ni et al. (2025), Table 2; they also report -0.17 and -0.15
FIVE_OPTIONS_DELTA = -0.25  # Ni et al. (2025), 5 options
ORDERS_OF_PAPER = math.factorial(4)
TWO_ORDERS = Skipped("it has 2 orders, and neither can be an outlier; the outlier test needs at least 3")


@cache
def _table() -> tuple[Floats, Floats, Floats]:
    """Return the tabulated numbers of orders, the grid of scores, and the null distribution at both."""
    with np.load(TABLE) as stored:
        n_orders, grid = stored["n_orders"].astype(np.float64), stored["grid"].astype(np.float64)
        # The observed score counts as one more draw, so that no rate is 0 (Phipson and Smyth, 2010).
        return n_orders, grid, (stored["counts"] + 1.0) / (float(stored["draws"]) + 1.0)


def null_cdf(n_orders: int, score: float) -> float:
    """Return the probability that the highest of `n_orders` independent normal scores has an isolation score of at
    most `score` (on the scale of scikit-learn's `decision_function`).

    It is interpolated between tabulated numbers of orders; above 1,000, the value for 1,000 is used. For scores above
    0, where the grid ends, it is 1, which is conservative.
    """
    tabulated, grid, share = _table()
    above = min(int(np.searchsorted(tabulated, n_orders)), len(tabulated) - 1)
    below = above if tabulated[above] == n_orders else max(above - 1, 0)
    rates = [float(np.interp(score, grid, share[row], right=1.0)) for row in (below, above)]
    return float(np.interp(n_orders, tabulated[[below, above]], rates)) if below != above else rates[0]


@dataclass(frozen=True)
class OutlierEvidence(Evidence):
    """Records whether the most likely order is an outlier.

    flagged: the most likely order's score is below delta
    outlier_score: isolation score of the most likely order, on the scale of scikit-learn's
        `decision_function`: 0.5 - 2 ** (-expected path length / c(n_orders)), lower = stands out more
    pvalue: probability under the null hypothesis of a score at most as high
    best_order: index of the most likely order, 0 being the published one
    n_orders: number of compared orders
    """

    outlier_score: float
    best_order: int
    n_orders: int

    @property
    def statistic(self) -> float:
        return -self.outlier_score


@statistics.register("outlier")
@dataclass(frozen=True)
class Outlier(OrderStatistic):
    """Flags a question if one of its orders is much more likely than all others.

    delta: questions with a score below this are flagged, between -0.5 and 0; None for the paper's value: that for 4
        options up to 24 orders, that for 5 options above
    """

    delta: float | None = None

    def __post_init__(self) -> None:
        delta = self.delta
        if delta is not None and (not isinstance(delta, (int, float)) or not -0.5 < delta < 0):
            raise ValueError(
                f"delta is {delta!r}; scores of an outlier lie between -0.5 and 0, so choose a value there, "
                f"such as {FOUR_OPTIONS_DELTA} (4 options) or {FIVE_OPTIONS_DELTA} (5 options)"
            )

    def threshold(self, n_orders: int) -> float:
        """Return the score below which a question with so many orders is flagged."""
        if self.delta is not None:
            return self.delta
        return FOUR_OPTIONS_DELTA if n_orders <= ORDERS_OF_PAPER else FIVE_OPTIONS_DELTA

    def __call__(self, scores: OrderScores) -> list[OutlierEvidence | Skipped]:
        from lm_eval_leakage.stats.order_scores import isolation_scores

        n_orders = scores.n_orders.tolist()
        outlier_scores = isolation_scores(scores).tolist()
        best_orders = scores.loglikelihoods.argmax(dim=1).tolist()
        null_rates = {n: null_cdf(n, self.threshold(n)) for n in set(n_orders)}
        verdicts: list[OutlierEvidence | Skipped] = []
        for score, best, n in zip(outlier_scores, best_orders, n_orders, strict=True):
            if n > 2:
                flagged = score < self.threshold(n)
                verdicts.append(OutlierEvidence(flagged, null_cdf(n, score), null_rates[n], score, best, n))
            else:
                verdicts.append(TWO_ORDERS)
        return verdicts
