"""Scores of one question from the log-likelihoods of all orders of its options: how far the published order is above
the others, and how far the most likely one.

Source of the isolation score: isolation forest, Liu, Ting and Zhou, ICDM 2008, as scikit-learn implements it; here in
the limit of infinitely many trees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from lm_eval_leakage.stats.order_sum import standard_scores
from lm_eval_leakage.stats.pooling import Floats


def order_z(loglikelihoods: Sequence[float]) -> float:
    """The published order's log-likelihood, the first one, standardised within the question.

    Over all orders of a question it has mean 0 and variance 1, so that questions of any length and number of options
    can be ranked together. It is 0 if all orders are equally likely. With two orders only the sign would be left, and
    it is the margin instead, in nats.
    """
    if len(loglikelihoods) == 2:
        return loglikelihoods[0] - loglikelihoods[1]
    standard = standard_scores(np.array(loglikelihoods))
    return 0.0 if standard is None else round(float(standard[0]), 9)


def isolation_scores(rows: Floats) -> Floats:
    """Exact isolation score of the most likely order of each row of `(n_questions, n_orders)`.

    The score that an isolation forest of infinitely many trees gives to the maximum of the row if every tree is grown
    on all points of the row (scikit-learn's default for up to 256 points). A tree splits the interval that its points
    span at a uniformly random place, down to depth ceil(log2 n). With points x_0 >= x_1 >= .., the node that holds the
    maximum always holds x_0 .. x_i for some i, so its expected path length follows from a recursion over i: the next
    node ends at j < i with probability (x_j - x_(j+1)) / (x_0 - x_i). A node of equal points, or at the last depth,
    counts as c(its size).
    """
    n_orders = rows.shape[1]
    leaves = _leaves(n_orders)
    ordered = np.sort(rows, axis=1)[:, ::-1]
    gaps, span = -np.diff(ordered), ordered[:, :1] - ordered[:, 1:]
    expected = np.tile(leaves, (len(rows), 1))
    for _ in range((n_orders - 1).bit_length()):
        below = np.cumsum(gaps * expected[:, :-1], axis=1)
        cut = 1 + np.divide(below, span, out=np.zeros_like(span), where=span > 0)
        expected[:, 1:] = np.where(span > 0, cut, leaves[1:])
    # powers by Python: numpy's differ in the last digit with the number of rows
    return np.array([0.5 - 2.0**exponent for exponent in (-expected[:, -1] / leaves[-1]).tolist()])


@cache
def _leaves(largest: int) -> Floats:
    """c(n) for n from 1 to `largest`."""
    return np.array([path_length_of_leaf(size) for size in range(1, largest + 1)])


def path_length_of_leaf(n: int) -> float:
    """c(n): mean path length of an unsuccessful search in a binary search tree of n points."""
    return 2 * (math.log(n - 1) + np.euler_gamma) - 2 * (n - 1) / n if n > 2 else n - 1.0
