"""The isolation score of a maximum in closed form: an isolation forest of infinitely many trees, without trees.

Source of the score: Liu, Ting and Zhou, ICDM 2008 (isolation forest), as scikit-learn implements it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lm_eval_leakage.statistics.orders import OrderScores


def isolation_scores(scores: OrderScores) -> Tensor:
    """Exact isolation score of each question's most likely order, `(n_questions,)`, float64.

    What an isolation forest of infinitely many trees would give when every tree is grown on all points of
    the row (scikit-learn's default up to 256 points) and asked for their maximum. A tree cuts the interval
    that its points span at a uniform place, down to depth ceil(log2 n). The node that holds the maximum of
    sorted points x_0 <= .. <= x_(n-1) always holds a suffix x_i .. x_(n-1), so the expected path length
    follows from a recursion over suffixes: the next suffix begins at j > i with probability
    (x_j - x_(j-1)) / (x_(n-1) - x_i). A node of equal points, or at the last depth, counts as c(its size).
    """
    # Ascending, so that the padding (-inf) comes first and every row's maximum is in the last column.
    ordered = scores.loglikelihoods.sort(dim=1).values
    width = ordered.shape[1]
    smallest = (width - scores.n_orders)[:, None]
    columns = torch.arange(width, device=ordered.device)
    ordered = torch.where(columns >= smallest, ordered, ordered.gather(1, smallest))
    span = ordered[:, -1:] - ordered
    gaps = ordered.diff(dim=1)
    leaf = path_length_of_leaf(width - columns)
    last_depth = scores.n_orders.double().log2().ceil()[:, None]
    expected = leaf.expand_as(ordered)
    for depth in reversed(range(int(last_depth.max()) if len(ordered) else 0)):
        ahead = torch.zeros_like(ordered)
        ahead[:, :-1] = (gaps * expected[:, 1:]).flip(1).cumsum(1).flip(1)
        cut = 1 + ahead / span
        expected = torch.where((span > 0) & (depth < last_depth), cut, leaf)
    whole = expected.gather(1, smallest)[:, 0]
    return 0.5 - torch.exp2(-whole / path_length_of_leaf(scores.n_orders))


def path_length_of_leaf(size: Tensor) -> Tensor:
    """c(size): mean path length of an unsuccessful search in a binary search tree of `size` points."""
    size = size.double()
    beyond = (size - 1).clamp(min=1)
    many = 2 * (beyond.log() + np.euler_gamma) - 2 * beyond / size
    return torch.where(size > 2, many, (size - 1).clamp(min=0))
