"""Computes how much an audit of option orders asks, before anything is known of a model's answers.

It asks so many questions that it probably finds what is to be found, or what finds most within a number of requests.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median_low

from lm_eval_leakage.harness.costs import ROWS_MEASURED
from lm_eval_leakage.harness.task_shelf import LoadedTask, PlacedRow, found_among
from lm_eval_leakage.harness.tasks.task import LeakageTask, drawn
from lm_eval_leakage.records import UntestableQuestion
from lm_eval_leakage.results.data_verdict import STAGES, usually_excluded, usually_found, usually_needed
from lm_eval_leakage.results.formatting import count, counted, rounded_up, whole_percent
from lm_eval_leakage.results.published_orders import OrderStatus, is_exact
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL, FEWEST_JUDGED, Basis
from lm_eval_leakage.stats.looks import share_alone
from lm_eval_leakage.stats.order_power import DETECT_TIMES, SEEN_ERROR
from lm_eval_leakage.stats.pooling import NAN

MANY_TOGETHER = 10  # verdicts of a plan that compares models, which share the level
ERROR_OF_FIRST_LOOK = SEEN_ERROR / STAGES * share_alone(1)  # of an upper bound of the share of seen questions
# Per question, among which those of a budget are chosen; not two, which a score only separates by its sign
ORDERS_WITHIN = (3, 4, 6, 8, 12, 24)


def level_of_first_look(*, compares_models: bool) -> float:
    """Return the level by which it is computed how many questions are enough."""
    return EVIDENCE_LEVEL * share_alone(1) / (MANY_TOGETHER if compares_models else 1)


@dataclass(frozen=True)
class Within:
    """The questions and orders that are asked within a budget.

    n_orders: per question; n: about so many questions
    share: of the questions, seen `DETECT_TIMES` times, the smallest that it usually finds; NaN if it would miss all
    n_for_all: how many requests would find all
    """

    n_orders: int
    n: int
    share: float = NAN
    n_for_all: float = math.inf

    def __str__(self) -> str:
        able = "would miss even a benchmark that was seen as a whole"
        if not math.isnan(self.share):
            able = f"usually finds {whole_percent(self.share)} of the questions seen {DETECT_TIMES} times"
        return f"{count(self.n_orders)} orders each {able}"


class AuditDesign:
    """The design of the audit of one benchmark's option orders, which is loaded with all of them.

    Numbers are the same in plans of other models and tasks, since these would have other draws.

    level: of the first look at it
    detect, budget, seed: as in the plan
    has_reference, has_unseen: whether it is compared with a reference model, and with unseen questions
    """

    def __init__(
        self,
        orders: LoadedTask,
        level: float,
        *,
        detect: float,
        budget: int | None,
        seed: int,
        has_reference: bool,
        has_unseen: bool,
    ) -> None:
        self._leaves, self._level, self._detect, self._seed = orders.leaves, level, detect, seed
        self._budget = budget or 0
        self._has_reference, self._has_unseen = has_reference, has_unseen
        self._rows = orders.rows
        self._sampled = drawn(self._rows, ROWS_MEASURED, 0)
        # whether its published orders are known to be drawn
        self.is_exact = all(is_exact(task.orders.status) for task in orders.leaves.values())

    @property
    def basis(self) -> Basis:
        if self.is_exact:
            return Basis.ORDERS
        return Basis.REFERENCE if self._has_reference else Basis.CONTROL

    @property
    def n_layouts(self) -> int:
        return max(len(task.probe.asked_layouts) for task in self._leaves.values())

    @cached_property
    def _known(self) -> list[PlacedRow]:
        """The rows of the sample that count in a verdict."""
        return [row for row in self._sampled if self._n_orders(row) > 1]

    @cached_property
    def n_orders(self) -> int:
        """The number of orders of a usual question that counts in a verdict; 0 if none does."""
        return median_low(map(self._n_orders, self._known)) if self._known else 0

    @cached_property
    def n_enough(self) -> int | None:
        """The number of questions that probably find what is to be found; None if no number does, or none counts."""
        if not self._known:
            return None
        n = usually_needed(self.basis, self.n_orders, self._detect, self._level, n_layouts=self.n_layouts)
        return None if n is None else rounded_up(n * len(self._sampled) / len(self._known))

    def may_exclude(self, n: int) -> bool:
        """Return whether so many questions may exclude what is to be found, if the model has not seen them."""
        n_counted, n_orders = n * len(self._known) // len(self._sampled), self.n_orders
        if self._budget:
            n_counted, n_orders = n, self.within.n_orders  # all that are asked count
        if n_counted < FEWEST_JUDGED:
            return False
        shares = usually_excluded(self.basis, n_orders, n_counted, ERROR_OF_FIRST_LOOK, n_layouts=self.n_layouts)
        return dict(shares)[DETECT_TIMES] <= self._detect

    def _n_orders(self, row: PlacedRow) -> int:
        """Return how many orders of a question count in a verdict; 0 if it does not."""
        audit: LeakageTask = self._leaves[row.task]
        doc = audit.eval_docs[row.index]
        try:
            question = audit.question(doc)
            if self.basis == Basis.ORDERS:
                return len(audit.probe.requests(question)) // self.n_layouts
            is_open = self._has_unseen or audit.orders.status != OrderStatus.PATTERNED
            return len(audit.probe.compared(question)) if is_open and not audit.guards(doc) else 0
        except UntestableQuestion:
            return 0

    # ------------------------------------------------------------------ within a budget

    @cached_property
    def within(self) -> Within:
        """The questions and orders that find most within the budget.

        Raises ValueError if no question counts, or if the budget is too small for a verdict.
        """
        budget = self._budget
        if not self._known:
            raise ValueError("none of its questions counts in a verdict, so that a budget would be spent for nothing")
        numbers = sorted({min(n, self.n_orders) for n in ORDERS_WITHIN})  # such as 2 with two options
        costs = {n: sum(self._cost(row, n) for row in self._known) / len(self._known) for n in numbers}
        able = [self._finding(n, cost) for n, cost in costs.items() if budget >= FEWEST_JUDGED * cost]
        if not able:
            least = rounded_up(math.ceil(FEWEST_JUDGED * min(costs.values())))
            raise ValueError(
                f"budget is {count(budget)}, but a verdict needs {counted(FEWEST_JUDGED)} and for these about "
                f"{counted(least, 'request')}; give at least so many"
            )
        return min(able, key=lambda option: (math.isnan(option.share), option.share, option.n_for_all))

    def _finding(self, n_orders: int, cost: float) -> Within:
        """Return what is found with `n_orders` orders per question, which takes `cost` requests."""
        n_there = len(self._rows) * len(self._known) // len(self._sampled)
        n = max(1, min(int(self._budget / cost), n_there))
        share = dict(usually_found(self.basis, n_orders, n, self._level, n_layouts=self.n_layouts))[DETECT_TIMES]
        n_for_all = usually_needed(self.basis, n_orders, 1.0, self._level, n_layouts=self.n_layouts)
        return Within(n_orders, n, share, cost * (n_for_all or math.inf))

    def _cost(self, row: PlacedRow, n_orders: int) -> int:
        """Return the number of requests that a question takes."""
        audit = self._leaves[row.task]
        question = audit.question(audit.eval_docs[row.index])
        probe = replace(audit.probe, orders=n_orders)
        return len(probe.requests(question)) + (0 if self.is_exact else len(probe.control(question)))

    def affordable(self, rows: Sequence[PlacedRow]) -> list[PlacedRow]:
        """Return the benchmark's rows that count, drawn at random until the budget is spent; in their order."""
        pairs = found_among(self._rows, rows)
        places = [*range(len(pairs))]
        random.Random(self._seed).shuffle(places)
        return [pairs[place][0] for place in sorted(self._paid([row for _, row in pairs], places))]

    def _paid(self, rows: Sequence[PlacedRow], places: Sequence[int]) -> Iterator[int]:
        left = self._budget
        for place in places:
            if self._n_orders(rows[place]) > 1:
                left -= self._cost(rows[place], self.within.n_orders)
                if left < 0:
                    return
                yield place
