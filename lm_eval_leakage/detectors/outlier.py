"""Exact isolation-forest score of a question's highest log-likelihood, in the limit of infinitely many trees.

Source of the score: isolation forest, Liu, Ting and Zhou, ICDM 2008, as scikit-learn implements it.

Null distribution of the outlier test's isolation score: how often independent normal scores look like an outlier.

`outlier_null.npz` next to this file is made by

    python -m lm_eval_leakage.detectors.outlier

which draws DRAWS rows of independent standard normal scores for each number of orders (the isolation score
is invariant to shifting and scaling) and counts the rows at or below each point of a grid. A rate of 0.3 has a
standard error of 0.0007; linear interpolation between the points of the grid adds less than 0.001.

Outlier test: is one order, whichever it is, much more likely than all others?

Null hypothesis: the log-likelihoods of a question's orders are independent draws from one normal
distribution. Limits: the published thresholds flag 35 % of such draws with 24 orders and 48 % with 120;
`null_rate` gives the rate. With 2 orders the score is always 0, so such questions are skipped, and with 6
(3 options) the published thresholds flag almost nothing. Source: Ni et al., AAAI 2025 (arXiv 2409.01790),
scenario b (a model trained on shuffled options), there with scikit-learn's IsolationForest of 100 trees
fitted to each question; here the limit of infinitely many trees, which is deterministic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lm_eval_leakage.detectors import statistics
from lm_eval_leakage.detectors.option_orders import OrderScores, OrderStatistic, running_sums
from lm_eval_leakage.files import atomic_binary_file
from lm_eval_leakage.records import Evidence, Skipped
from lm_eval_leakage.stats.pooling import Floats

QUESTIONS_AT_ONCE = 2048  # a slice of 2,048 x 120 scores stays in a CPU's cache; whole data sets would not


def isolation_scores(scores: OrderScores) -> Tensor:
    """Exact isolation score of each question's most likely order, `(n_questions,)`, float64.

    The score that an isolation forest of infinitely many trees gives to the maximum of the row if every tree is grown
    on all points of the row (scikit-learn's default for up to 256 points). A tree splits the interval that its points
    span at a uniformly random place, down to depth ceil(log2 n). With points x_0 >= x_1 >= .., the node that holds the
    maximum always holds x_0 .. x_i for some i, so its expected path length follows from a recursion over i: the next
    node ends at j < i with probability (x_j - x_(j+1)) / (x_0 - x_i). A node of equal points, or at the last depth,
    counts as c(its size). A question's score is the same, to the last digit, whichever questions are scored with it.
    """
    slices = [torch.split(part, QUESTIONS_AT_ONCE) for part in (scores.loglikelihoods, scores.n_orders)]
    return torch.cat([_isolation_scores(rows, n_orders) for rows, n_orders in zip(*slices, strict=True)])


def _isolation_scores(rows: Tensor, n_orders: Tensor) -> Tensor:
    # The padding (-inf) sorts last; values computed from it stay in its columns, which are never read.
    ordered = rows.sort(dim=1, descending=True).values
    span = ordered[:, :1] - ordered
    gaps = ordered[:, :-1] - ordered[:, 1:]
    leaves, depths = (table.to(rows.device) for table in _tables(ordered.shape[1]))
    leaf, last_depth = leaves.expand_as(ordered), depths[n_orders - 1][:, None]
    expected = leaf
    for depth in reversed(range(int(last_depth.max()) if len(rows) else 0)):
        cut = torch.ones_like(ordered)
        cut[:, 1:] += running_sums(gaps * expected[:, :-1]) / span[:, 1:]
        expected = torch.where((span > 0) & (depth < last_depth), cut, leaf)
    whole = expected.gather(1, n_orders[:, None] - 1)[:, 0]
    # Powers by Python: torch rounds those at the end of a batch, which fill no vector instruction, in another way.
    powers = [2.0**exponent for exponent in (-whole / leaves[n_orders - 1]).tolist()]
    return 0.5 - torch.tensor(powers, dtype=torch.float64, device=rows.device)


@cache
def _tables(largest: int) -> tuple[Tensor, Tensor]:
    """c(n) and the last depth of trees of n points, for n from 1 to `largest`."""
    sizes = torch.arange(1, largest + 1)
    return path_length_of_leaf(sizes), torch.tensor([(size - 1).bit_length() for size in sizes.tolist()])


def path_length_of_leaf(size: Tensor) -> Tensor:
    """c(size): mean path length of an unsuccessful search in a binary search tree of `size` points."""
    return torch.tensor([_path_length(n) for n in size.tolist()], dtype=torch.float64)


def _path_length(n: int) -> float:
    return 2 * (math.log(n - 1) + np.euler_gamma) - 2 * (n - 1) / n if n > 2 else n - 1.0


TABLE = Path(__file__).with_name("outlier_null.npz")
DRAWS = 400_000
SEED = 20260101
N_ORDERS = (*range(2, 121), 144, 180, 240, 360, 480, 720, 1000)
GRID = np.linspace(-0.5, 0.0, 201)


@cache
def _table() -> tuple[Floats, Floats, Floats]:
    with np.load(TABLE) as stored:
        n_orders, grid = stored["n_orders"].astype(np.float64), stored["grid"].astype(np.float64)
        # The observed score counts as one more draw, so that no rate is 0 (Phipson and Smyth, 2010).
        return n_orders, grid, (stored["counts"] + 1.0) / (float(stored["draws"]) + 1.0)


def null_cdf(n_orders: int, score: float) -> float:
    """Probability that the highest of `n_orders` independent normal scores has an isolation score of at most
    `score` (on the scale of scikit-learn's `decision_function`). Interpolated between tabulated numbers of orders;
    above 1,000, the value for 1,000 is used. For scores above 0, where the grid ends, it is 1, which is conservative.
    """
    tabulated, grid, share = _table()
    if n_orders < tabulated[0]:
        raise ValueError(f"n_orders is {n_orders}; at least 2 are needed")
    above = min(int(np.searchsorted(tabulated, n_orders)), len(tabulated) - 1)
    below = above if tabulated[above] == n_orders else max(above - 1, 0)
    rates = [float(np.interp(score, grid, share[row], right=1.0)) for row in (below, above)]
    return float(np.interp(n_orders, tabulated[[below, above]], rates)) if below != above else rates[0]


def draw_counts(n_orders: int, draws: int, *, rng: torch.Generator, rows: int = 50_000) -> NDArray[np.int64]:
    """How many of `draws` rows of standard normal scores have an isolation score at or below each point of GRID."""
    counts = np.zeros(len(GRID), dtype=np.int64)
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        drawn = torch.randn(count, n_orders, generator=rng, dtype=torch.float64)
        scores = isolation_scores(OrderScores(drawn, torch.full((count,), n_orders)))
        counts += np.searchsorted(np.sort(scores.numpy()), GRID, side="right")
    return counts


def main() -> None:
    from tqdm import tqdm

    rng = torch.Generator().manual_seed(SEED)
    counts = np.stack([draw_counts(n, DRAWS, rng=rng) for n in tqdm(N_ORDERS, desc="null distribution")])
    with atomic_binary_file(TABLE) as file:
        np.savez_compressed(
            file, n_orders=np.array(N_ORDERS), grid=GRID, counts=counts.astype(np.uint32), draws=np.array(DRAWS)
        )


if __name__ == "__main__":
    main()


FOUR_OPTIONS_DELTA = -0.20  # Ni et al. (2025), Table 2; they also report -0.17 and -0.15
FIVE_OPTIONS_DELTA = -0.25  # Ni et al. (2025), 5 options
ORDERS_OF_PAPER = math.factorial(4)
TWO_ORDERS = Skipped("it has 2 orders, and neither can be an outlier; the outlier test needs at least 3")


@dataclass(frozen=True)
class OutlierEvidence(Evidence):
    """flagged: the most likely order's score is below delta

    outlier_score: isolation score of the most likely order, on the scale of scikit-learn's
        `decision_function`: 0.5 - 2 ** (-expected path length / c(n_orders)), lower = stands out more
    pvalue: probability under the null hypothesis of a score at most as high
    best_order: index of the most likely order, 0 being the published one
    n_orders: how many orders were compared
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
    """delta: questions with a score below this are flagged, between -0.5 and 0; None for the paper's value: that for 4
    options up to 24 orders, that for 5 options above"""

    delta: float | None = None

    def __post_init__(self) -> None:
        given = self.delta
        if given is not None and (not isinstance(given, (int, float)) or not -0.5 < given < 0):
            raise ValueError(
                f"delta is {given!r}; scores of an outlier lie between -0.5 and 0, so choose a value there, "
                f"such as {FOUR_OPTIONS_DELTA} (4 options) or {FIVE_OPTIONS_DELTA} (5 options)"
            )

    def threshold(self, n_orders: int) -> float:
        if self.delta is not None:
            return self.delta
        return FOUR_OPTIONS_DELTA if n_orders <= ORDERS_OF_PAPER else FIVE_OPTIONS_DELTA

    def __call__(self, scores: OrderScores) -> list[OutlierEvidence | Skipped]:
        n_orders = scores.n_orders.tolist()
        outlier_scores = isolation_scores(scores).tolist()
        best_orders = scores.loglikelihoods.argmax(dim=1).tolist()
        null_rates = {n: null_cdf(n, self.threshold(n)) for n in set(n_orders)}
        return [
            OutlierEvidence(score < self.threshold(n), null_cdf(n, score), null_rates[n], score, best, n)
            if n > 2
            else TWO_ORDERS
            for score, best, n in zip(outlier_scores, best_orders, n_orders, strict=True)
        ]
