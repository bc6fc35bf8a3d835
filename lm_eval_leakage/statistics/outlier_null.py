"""Null distribution of the outlier test's isolation score: how often independent normal scores look like an outlier.

`outlier_null.npz` next to this file is made by

    python -m lm_eval_leakage.statistics.outlier_null

which draws DRAWS rows of independent standard normal scores for each number of orders (the isolation score
is invariant to shifting and scaling) and counts the rows at or below each point of a grid. A rate of 0.3 has a
standard error of 0.0007; linear interpolation between the points of the grid adds less than 0.001.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lm_eval_leakage.files import atomic_binary_file
from lm_eval_leakage.inference.pooling import Floats
from lm_eval_leakage.statistics.isolation import isolation_scores
from lm_eval_leakage.statistics.orders import OrderScores

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
