"""Exact isolation-forest score of a question's highest log-likelihood, in the limit of infinitely many trees.

Source of the score: isolation forest, Liu, Ting and Zhou, ICDM 2008, as scikit-learn implements it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lm_eval_leakage.statistics.orders import OrderScores

QUESTIONS_AT_ONCE = 2048  # a slice of 2,048 x 120 scores stays in a CPU's cache; whole data sets would not


def isolation_scores(scores: OrderScores) -> Tensor:
    """Exact isolation score of each question's most likely order, `(n_questions,)`, float64.

    The score that an isolation forest of infinitely many trees gives to the maximum of the row if every tree is grown
    on all points of the row (scikit-learn's default for up to 256 points). A tree splits the interval that its points
    span at a uniformly random place, down to depth ceil(log2 n). With points x_0 >= x_1 >= .., the node that holds the
    maximum always holds x_0 .. x_i for some i, so its expected path length follows from a recursion over i: the next
    node ends at j < i with probability (x_j - x_(j+1)) / (x_0 - x_i). A node of equal points, or at the last depth,
    counts as c(its size).
    """
    slices = [torch.split(part, QUESTIONS_AT_ONCE) for part in (scores.loglikelihoods, scores.n_orders)]
    return torch.cat([_isolation_scores(rows, n_orders) for rows, n_orders in zip(*slices, strict=True)])


def _isolation_scores(rows: Tensor, n_orders: Tensor) -> Tensor:
    # The padding (-inf) sorts last; values computed from it stay in its columns, which are never read.
    ordered = rows.sort(dim=1, descending=True).values
    span = ordered[:, :1] - ordered
    gaps = ordered[:, :-1] - ordered[:, 1:]
    leaf = path_length_of_leaf(torch.arange(1, ordered.shape[1] + 1, device=rows.device)).expand_as(ordered)
    last_depth = n_orders.double().log2().ceil()[:, None]
    expected = leaf
    for depth in reversed(range(int(last_depth.max()) if len(rows) else 0)):
        cut = torch.ones_like(ordered)
        cut[:, 1:] += (gaps * expected[:, :-1]).cumsum(dim=1) / span[:, 1:]
        expected = torch.where((span > 0) & (depth < last_depth), cut, leaf)
    whole = expected.gather(1, n_orders[:, None] - 1)[:, 0]
    return 0.5 - torch.exp2(-whole / path_length_of_leaf(n_orders))


def path_length_of_leaf(size: Tensor) -> Tensor:
    """c(size): mean path length of an unsuccessful search in a binary search tree of `size` points."""
    size = size.double()
    beyond = (size - 1).clamp(min=1)
    many = 2 * (beyond.log() + np.euler_gamma) - 2 * beyond / size
    return torch.where(size > 2, many, (size - 1).clamp(min=0))
