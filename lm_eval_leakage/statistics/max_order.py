"""Max-order test: is the published order the one that the model finds most likely?

Null hypothesis: the orders of a question are exchangeable, so that each is the most likely one with
probability 1 / n_orders. Limits: a natural order of the options (ascending numbers, "all of the above") is
preferred without leakage, so that 15-20 % of unseen MMLU questions are flagged instead of 4.2 %. Source:
Ni et al., AAAI 2025 (arXiv 2409.01790), scenario a; corrected: only orders that read differently are compared,
and a tie counts against leakage.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lm_eval_leakage.records import Evidence
from lm_eval_leakage.statistics import statistics
from lm_eval_leakage.statistics.orders import OrderScores, OrderStatistic


@dataclass(frozen=True)
class MaxOrderEvidence(Evidence):
    """flagged: no other order is as likely as the published one

    pvalue: rank of the published order (1 = most likely; ties rank it lower) over the number of orders
    margin: nats by which the published order beats the best other one; negative where it does not
    best_order: index of the most likely order, 0 being the published one
    n_orders: how many orders were compared
    """

    margin: float
    best_order: int
    n_orders: int

    @property
    def statistic(self) -> float:
        return self.margin


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
            margin,
            torch.where(margin < 0, best_index + 1, 0),
            scores.n_orders,
        )
        return [
            MaxOrderEvidence(margin > 0, pvalue, null_rate, margin, best_order, n_orders)
            for pvalue, null_rate, margin, best_order, n_orders in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]
