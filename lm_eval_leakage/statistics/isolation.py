"""Exact isolation-forest score of a question's highest log-likelihood, in the limit of infinitely many trees.

Source of the score: isolation forest, Liu, Ting and Zhou, ICDM 2008, as scikit-learn implements it.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from lm_eval_leakage.statistics.orders import OrderScores, running_sums

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
