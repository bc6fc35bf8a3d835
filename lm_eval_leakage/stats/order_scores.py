"""Holds the log-likelihoods of all option orders of many questions as one padded batch on one device, and computes
scores from them. It is the only module of statistics that needs torch.

A question's numbers are the same, to the last digit, whichever other questions are in the batch.

Source of the isolation score: isolation forest, Liu, Ting and Zhou, ICDM 2008, as scikit-learn implements it; here in
the limit of infinitely many trees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def find_device(name: str = "auto") -> torch.device:
    """Return the named device; "auto" is the current accelerator if it supports float64, else the CPU."""
    if name != "auto":
        return torch.device(name)
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if accelerator is None or accelerator.type == "mps" else accelerator


@dataclass(frozen=True)
class OrderScores:
    """The log-likelihoods of every order of every question, which all statistics of orders share.

    loglikelihoods: nats, float64, `(n_questions, n_orders)`; column 0 is the published order; a question with
        fewer orders is padded with -inf at the end of its row
    n_orders: `(n_questions,)`, number of columns of each row that are not padding
    """

    loglikelihoods: Tensor
    n_orders: Tensor

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[float]], device: str = "auto") -> OrderScores:
        """Return a batch on `device` from one sequence of two or more finite log-likelihoods per question."""
        each = [torch.tensor(row, dtype=torch.float64) for row in rows]
        padded = pad_sequence(each, batch_first=True, padding_value=-math.inf)
        where = find_device(device)
        return cls(padded.to(where), torch.tensor([*map(len, rows)]).to(where))

    @property
    def is_order(self) -> Tensor:
        """Return a mask of the entries that are not padding, `(n_questions, n_orders)`."""
        return torch.arange(self.loglikelihoods.shape[1], device=self.n_orders.device) < self.n_orders[:, None]

    def standardised(self) -> Tensor:
        """Return log-likelihoods minus their mean over the question's orders, divided by their (population) standard
        deviation. They are 0 in the padding, and for a question whose orders are all equally likely."""
        values = torch.where(self.is_order, self.loglikelihoods, 0.0)
        centred = torch.where(self.is_order, values - (sums(values) / self.n_orders)[:, None], 0.0)
        lowest = torch.where(self.is_order, self.loglikelihoods, torch.inf).amin(dim=1, keepdim=True)
        deviation = (sums(centred.square()) / self.n_orders).sqrt()[:, None]
        # compared directly, since the mean of equal numbers may be off by a bit
        varies = self.loglikelihoods.amax(dim=1, keepdim=True) > lowest
        return torch.where(varies & (deviation > 0), centred / deviation, 0.0)


def running_sums(rows: Tensor) -> Tensor:
    """Return the sums of the first 1, 2, .. numbers of each row. They are added one after the other, so that neither
    other rows nor padding with zeros change a sum in its last digit."""
    if rows.device.type == "cpu":
        return rows.cumsum(dim=1)
    return rows.T.contiguous().cumsum(dim=0).T  # accelerators divide a scan along rows, depending on their number


def sums(rows: Tensor) -> Tensor:
    """Return the sum of each row, added as in `running_sums`."""
    return running_sums(rows)[:, -1]


def order_z(scores: OrderScores) -> Tensor:
    """Return the published order's log-likelihood, standardised within the question, `(n_questions,)`.

    Over all orders of a question it has mean 0 and variance 1, so that questions of any length and number of options
    can be ranked together. It is 0 if all orders are equally likely. With two orders only the sign would be left, and
    it is the margin instead, in nats.
    """
    margin = scores.loglikelihoods[:, 0] - scores.loglikelihoods[:, 1]
    # rounded, so that neither padding nor the device changes a score or breaks a tie
    return torch.where(scores.n_orders == 2, margin, scores.standardised()[:, 0].round(decimals=9))


def isolation_scores(scores: OrderScores) -> Tensor:
    """Return the exact isolation score of each question's most likely order, `(n_questions,)`, float64.

    It is the score that an isolation forest of infinitely many trees gives to the maximum of the row if every tree is
    grown on all points of the row (scikit-learn's default for up to 256 points). A tree splits the interval that its
    points span at a uniformly random place, down to depth ceil(log2 n). With points x_0 >= x_1 >= .., the node that
    holds the maximum always holds x_0 .. x_i for some i, so its expected path length follows from a recursion over i:
    the next node ends at j < i with probability (x_j - x_(j+1)) / (x_0 - x_i). A node of equal points, or at the last
    depth, counts as c(its size). A question's score is the same, to the last digit, whichever questions are scored
    with it.
    """
    rows, n_orders = scores.loglikelihoods, scores.n_orders
    # The padding (-inf) sorts last; values computed from it stay in its columns, which are never read.
    ordered = rows.sort(dim=1, descending=True).values
    span = ordered[:, :1] - ordered
    gaps = ordered[:, :-1] - ordered[:, 1:]
    leaves, depths = (table.to(rows.device) for table in _tables(ordered.shape[1]))
    leaf, last_depth = leaves.expand_as(ordered), depths[n_orders - 1][:, None]
    expected = leaf
    for depth in reversed(range(int(last_depth.max()))):
        cut = torch.ones_like(ordered)
        cut[:, 1:] += running_sums(gaps * expected[:, :-1]) / span[:, 1:]
        expected = torch.where((span > 0) & (depth < last_depth), cut, leaf)
    whole = expected.gather(1, n_orders[:, None] - 1)[:, 0]
    # Powers by Python: torch rounds those at the end of a batch, which fill no vector instruction, in another way.
    powers = [2.0**exponent for exponent in (-whole / leaves[n_orders - 1]).tolist()]
    return 0.5 - torch.tensor(powers, dtype=torch.float64, device=rows.device)


@cache
def _tables(largest: int) -> tuple[Tensor, Tensor]:
    """Return c(n) and the last depth of trees of n points, for n from 1 to `largest`."""
    sizes = range(1, largest + 1)
    leaves = torch.tensor([path_length_of_leaf(size) for size in sizes], dtype=torch.float64)
    return leaves, torch.tensor([(size - 1).bit_length() for size in sizes])


def path_length_of_leaf(n: int) -> float:
    """Return c(n), the mean path length of an unsuccessful search in a binary search tree of n points."""
    return 2 * (math.log(n - 1) + np.euler_gamma) - 2 * (n - 1) / n if n > 2 else n - 1.0
