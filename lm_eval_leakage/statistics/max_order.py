"""Max-order test: is the published order the one that the model finds most likely?

Null hypothesis: the orders of a question are exchangeable, so that each is the most likely one with
probability 1 / n_orders. Limits: a natural order of the options (ascending numbers, "all of the above") is
preferred without leakage, so that 15-20 % of unseen MMLU questions are flagged instead of 4.2 %. Source:
Ni et al., AAAI 2025 (arXiv 2409.01790), scenario a; corrected: only orders that read differently are compared,
and a tie counts against leakage. `fixed_z`, by which questions are ranked, is ours: it uses all orders, of which those
that keep some options in their published place are remembered in part (docs/validity_ranking.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lm_eval_leakage.records import Evidence
from lm_eval_leakage.statistics import statistics
from lm_eval_leakage.statistics.orders import OrderScores, OrderStatistic, sums


@dataclass(frozen=True)
class MaxOrderEvidence(Evidence):
    """flagged: no other order is as likely as the published one

    pvalue: rank of the published order (1 = most likely; ties rank it lower) over the number of orders
    fixed_z: how much likelier the orders are that keep more options in their published place, see `fixed_z`
    margin: nats by which the published order beats the best other one; negative where it does not
    best_order: index of the most likely order, 0 being the published one
    n_orders: how many orders were compared
    """

    fixed_z: float
    margin: float
    best_order: int
    n_orders: int

    @property
    def statistic(self) -> float:
        return self.fixed_z


@statistics.register("max_order")
@dataclass(frozen=True)
class MaxOrder(OrderStatistic):
    def __call__(self, scores: OrderScores) -> list[MaxOrderEvidence]:
        published, others = scores.loglikelihoods[:, :1], scores.loglikelihoods[:, 1:]
        n_at_least_as_high = 1 + (others >= published).sum(dim=1)
        best_other, best_index = others.max(dim=1)
        margin = published[:, 0] - best_other
        columns = (
            n_at_least_as_high / scores.n_orders.double(),
            1 / scores.n_orders.double(),
            fixed_z(scores),
            margin,
            torch.where(margin < 0, best_index + 1, 0),
            scores.n_orders,
        )
        return [
            MaxOrderEvidence(margin > 0, pvalue, null_rate, ranked_by, margin, best_order, n_orders)
            for pvalue, null_rate, ranked_by, margin, best_order, n_orders in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]


def fixed_z(scores: OrderScores) -> Tensor:
    """Sum over a question's orders of (options in their published place) x (standardised log-likelihood), divided by
    its standard deviation if the orders are exchangeable; `(n_questions,)`.

    With f the number of options in their published place, centred over the m orders, and z the log-likelihoods
    standardised within the question: `sum(f z) / sqrt(sum(f^2) m / (m - 1))`, which is sqrt(m - 1) times the
    correlation of f and the log-likelihoods. Over all ways to assign the log-likelihoods to the orders it has mean 0
    and variance 1 for any number of options, drawn or held orders and repeated options, so that questions can be
    ranked together. An option that keeps its place in every order (`move=movable`) adds the same to every f and
    changes nothing; places count by what they read, so that repeated options may stand for each other. It is 0 if all
    orders are equally likely. With two orders only the sign would be left, and it is the margin instead, in nats.
    """
    published = scores.fixed_places
    if published is None:
        published = torch.zeros_like(scores.loglikelihoods)
        published[:, 0] = 1
    fixed, m = scores.centred(published), scores.n_orders
    spread = (sums(fixed.square()) * m / (m - 1)).sqrt()
    score = sums(fixed * scores.standardised()) / spread
    margin = scores.loglikelihoods[:, 0] - scores.loglikelihoods[:, 1]
    # rounded, so that neither padding nor the device changes a score or breaks a tie
    return torch.where(m == 2, margin, score.round(decimals=9))
