"""Test whether a model finds the published order of a question's options more likely than every other order.

Each order is scored as one block of lettered lines. Null hypothesis: the orders of a question are exchangeable for a
model that has not seen it, so that each is the most likely one with probability 1 / n_orders. Limits: a natural order
of the options (ascending numbers, "all of the above", True before False) is preferred without any leakage, so that
15-20 % of unseen MMLU questions are flagged instead of 4.2 %; `guards` names such questions. Source: Ni et al., AAAI
2025 (arXiv 2409.01790), scenario a; corrected: only orders that read differently are compared, and a tie counts
against leakage. Drawing orders is the permutation-R of Hidayat et al., 2025 (arXiv 2505.24263).
docs/validity/ranking.md compares the values by which questions can be ranked.
"""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import factorial, prod
from typing import TYPE_CHECKING, ClassVar

from lm_eval_leakage.detectors import Probe, Statistic, check_choice, check_counts, is_count, probes, statistics
from lm_eval_leakage.questions.guards import anchored
from lm_eval_leakage.questions.rendering import AUDITED, CSV_ROW, LAYOUTS, in_orders, laid_out, option_format
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence, Question, Request, Skipped, UntestableQuestion
from lm_eval_leakage.stats.pooling import EVIDENCE_ROWS
from lm_eval_leakage.texts import in_capitals

if TYPE_CHECKING:
    from lm_eval_leakage.stats.order_scores import OrderScores  # needs torch

logger = logging.getLogger(__name__)
Order = tuple[int, ...]  # for each place, the index of the published option that stands there
MOVES = ("all", "movable")
PAPER, MIXED, EVERY = "paper", "mixed", "every"
LAYOUT_SETS = {AUDITED: (AUDITED,), MIXED: (AUDITED, CSV_ROW), EVERY: LAYOUTS}
ORDERS_IN_EVERY_LAYOUT = 15  # in each of four layouts: 2.5 times as many requests as 24 orders in one layout
CONTROL_CONTEXT = "Question:"
MOST_COMPARED = 12  # orders in each control form; twice as many detected no more (docs/validity.md)
USUAL_ORDERS = {AUDITED: 1.0, MIXED: MOST_COMPARED, EVERY: ORDERS_IN_EVERY_LAYOUT}  # as in `orders`: 1.0 is all
FOUR_OPTIONS_ORDERS = 24
PAPER_ORDERS = (0, 1, 2, 6, 9, 10, 12, 13, 18, 19, 20, 22)  # of 24, Hidayat et al. (2025), permutation-R at 50 %


@probes.register("option_orders")
@dataclass(frozen=True)
class OptionOrders(Probe):
    """Asks for the likelihood of each order of the options: the context is the question, the continuation its options.

    Request 0 has the published order. Orders that read the same (because of a repeated option) are scored once. All n!
    orders are scored up to `max_orders`, by default 120, so up to 5 options; above that, orders are drawn without
    replacement, with the question's id as seed.

    max_orders: maximum number of orders per question
    orders: a smaller number of orders: a count (12), a share of the distinct orders (0.5), or "paper", the 12 of 24
        orders that Hidayat et al. list, and half of the orders for other numbers of options; None for all
    move: which options change place: "all", or only "movable" ones: options that refer to others ("all of the above")
        or that are named by letter keep their place, so that every order makes sense
    layouts: "audited", or several layouts in which each order is scored, to average the scores: "mixed", the audited
        one and a CSV row, in up to 12 orders; "every", these, a JSON row and one line, in up to 15; unless `orders`
        says otherwise
    format: "usual" ("A. ", as the harness renders options) or "papers" ("question:" and "A:", Ni et al.); None for
        the benchmark's own prompt if it shows the options, else the usual one
    """

    max_orders: int = 120
    orders: int | float | str | None = None
    move: str = "all"
    layouts: str = AUDITED
    format: str | None = None

    def __post_init__(self) -> None:
        option_format(self.format)
        check_choice("move", self.move, MOVES)
        check_choice("layouts", self.layouts, LAYOUT_SETS)
        if self.orders == PAPER and self.layouts != AUDITED:
            raise ValueError(
                f"layouts is {self.layouts!r} and orders is {PAPER!r}, which are scored as in the paper; leave one out"
            )
        check_counts(2, max_orders=self.max_orders)
        share = isinstance(self.orders, float) and 0 < self.orders <= 1
        if not (self.orders in (None, PAPER) or share or is_count(self.orders, 2)):
            raise ValueError(
                f"orders is {self.orders!r}; give a whole number of at least 2, a share in (0, 1], {PAPER!r}, or "
                "leave it out"
            )

    def requests(self, question: Question) -> tuple[Request, ...]:
        """Return one request per order to score, layout after layout, the published order first in each."""
        orders = self.chosen_orders(question)
        requests = list[Request]()
        for layout in self.asked_layouts:
            frame, options = laid_out(question, layout, self.format)
            requests += [Request(frame.before, block) for block in in_orders(frame.markers, options, orders)]
        return tuple(requests)

    @property
    def asked_layouts(self) -> tuple[str, ...]:
        return LAYOUT_SETS[self.layouts]

    def in_brief(self) -> OptionOrders:
        """Return the probe for questions that count in no verdict: in the audited layout alone."""
        return replace(self, layouts=AUDITED, orders=self.orders or USUAL_ORDERS[self.layouts])

    @property
    def asks_orders(self) -> bool:
        """Return whether a verdict on the data set can be computed from the orders.

        It cannot from the paper's 12 orders, which are a fixed choice around the published one: if another of them had
        been published, the 12 would be other orders.
        """
        return self.orders != PAPER

    def compared(self, question: Question) -> tuple[int, ...]:
        """Return which of the chosen orders are in the control forms, as indices of `chosen_orders`.

        These are all of them if they are few, else the published one and others, drawn with the question's id as seed.
        """
        n = len(self.chosen_orders(question))
        if n <= MOST_COMPARED:
            return tuple(range(n))
        return (0, *sorted(random.Random(f"{question.id} compared").sample(range(1, n), MOST_COMPARED - 1)))

    def right_places(self, question: Question) -> tuple[int, ...]:
        """Return the place of the right option in each of the chosen orders; empty if the right option is unknown."""
        options, right = _as_read(question.options), question.answer
        if right is None:
            return ()
        orders = self.chosen_orders(question)
        return tuple([[options[source] for source in order].index(options[right]) for order in orders])

    def control(self, question: Question) -> tuple[Request, ...]:
        """Return the requests for the compared orders in two control forms, the second in each layout.

        The first form has no question, and its options in a line, "first ..., then ...". It keeps an order that is
        natural in the options alone, such as one by time or size. The second form has the question, in capitals. It
        keeps an order that is natural beside the question, such as that in which it names the options. Neither form is
        the published text. There are none if capitals change nothing, since that would be the published text.
        """
        orders, options = self.chosen_orders(question), question.options
        texts = [laid_out(question, layout, self.format) for layout in self.asked_layouts]
        compared = [orders[place] for place in self.compared(question)]
        if len(compared) < 2 or all(in_capitals(text) == text for text in (texts[0][0].before, *options)):
            return ()
        in_words = [" first ", *[", then "] * (len(options) - 1)]
        alone = [Request(CONTROL_CONTEXT, line) for line in in_orders(in_words, options, compared)]
        with_question = list[Request]()
        for frame, shown in texts:
            blocks = in_orders([*map(in_capitals, frame.markers)], [*map(in_capitals, shown)], compared)
            with_question += [Request(in_capitals(frame.before), block) for block in blocks]
        return (*alone, *with_question)

    def chosen_orders(self, question: Question) -> list[Order]:
        """Return the orders to score, the published one first; raises UntestableQuestion if all orders read the same.

        Options that may not change place are held in theirs; only the others are put in order.
        """
        options = _as_read(question.options)
        held = anchored(options) if self.move == "movable" else set()
        moved = tuple([place for place in range(len(options)) if place not in held])
        texts = [options[place] for place in moved]
        pattern = _pattern(texts)
        n_distinct = _n_distinct(pattern)
        if n_distinct == 1:
            alike = f"all orders of its {len(options)} option(s) read the same, of which {len(moved)} can change place"
            raise UntestableQuestion(f"{alike}; at least 2 different ones are needed")
        n_orders = self._n_scored(n_distinct)
        if self.orders == PAPER and n_distinct == FOUR_OPTIONS_ORDERS:
            every = _every_order(pattern, moved, len(options))
            return [order for index, order in enumerate(every) if index in PAPER_ORDERS]
        if n_orders < n_distinct:
            drawn = drawn_orders(texts, n_orders, rng=random.Random(question.id))  # of the moved options
            return [_with_held_places(order, moved, len(options)) for order in drawn]
        return list(_every_order(pattern, moved, len(options)))

    def _n_scored(self, n_distinct: int) -> int:
        """Return how many of a question's distinct orders are scored."""
        wanted = USUAL_ORDERS[self.layouts] if self.orders is None else self.orders
        if isinstance(wanted, str):  # PAPER, for a number of options that the paper does not have
            wanted = 0.5
        if isinstance(wanted, float):
            wanted = max(2, round(wanted * n_distinct))
        return min(wanted, n_distinct, self.max_orders)


def _as_read(options: Sequence[str]) -> list[str]:
    """Return the options as they read: without the white space around them."""
    return [option.strip() for option in options]


def _pattern(texts: Sequence[str]) -> Order:
    """Return, for each text, the place of the first equal text. It decides which orders read differently."""
    return tuple([texts.index(text) for text in texts])


@cache
def _n_distinct(pattern: Order) -> int:
    """Return how many orders of the texts of a pattern read differently."""
    return factorial(len(pattern)) // prod(map(factorial, Counter(pattern).values()))


@lru_cache(maxsize=64)
def _every_order(pattern: Order, moved: Order, n_options: int) -> tuple[Order, ...]:
    """Return all orders of `n_options` options that read differently.

    pattern: of the options that change place
    moved: the places of these options
    """
    return tuple(_with_held_places(order, moved, n_options) for order in distinct_orders(pattern))


def _with_held_places(order: Order, moved: Sequence[int], n_options: int) -> Order:
    """Return an order of all options, in which those that are not moved keep their places.

    order: an order of the moved options, as indices of `moved`
    moved: the places of these options
    """
    places = list(range(n_options))
    for place, source in zip(moved, order, strict=True):
        places[place] = moved[source]
    return tuple(places)


def distinct_orders(options: Sequence[object]) -> Iterator[Order]:
    """Yield each order of `options` that reads differently, in lexicographic order of the indices."""

    def extend(chosen: Order, left: Order) -> Iterator[Order]:
        if not left:
            yield chosen
        tried: set[object] = set()
        for i in left:
            if options[i] not in tried:
                tried.add(options[i])
                yield from extend((*chosen, i), tuple(j for j in left if j != i))

    return extend((), tuple(range(len(options))))


def drawn_orders(options: Sequence[str], n_orders: int, *, rng: random.Random) -> list[Order]:
    """Return the published order and `n_orders` - 1 others that read differently, uniformly, without replacement."""
    indices = list(range(len(options)))
    drawn: dict[tuple[str, ...], Order] = {tuple(options): tuple(indices)}
    while len(drawn) < n_orders:
        rng.shuffle(indices)
        drawn.setdefault(tuple(options[i] for i in indices), tuple(indices))
    return list(drawn.values())


class OrderStatistic(Statistic, ABC):
    """A statistic that judges questions by the log-likelihoods of their orders, many questions at once."""

    probe: ClassVar[str] = "option_orders"
    rows: ClassVar[tuple[DeclaredRow, ...]] = EVIDENCE_ROWS

    @abstractmethod
    def __call__(self, scores: OrderScores) -> Sequence[Evidence | Skipped]:
        """Return one verdict per question of the batch, in its order."""

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> Sequence[Evidence | Skipped]:
        """Return verdicts on answers.

        They are computed on the CPU if the device fails: the model may have left no memory there, and its answers may
        have taken hours.
        """
        from lm_eval_leakage.stats.order_scores import OrderScores, find_device

        rows = [question.answers for question in answered]
        try:
            return self(OrderScores.from_rows(rows, device))
        except RuntimeError as error:
            if find_device(device).type == "cpu":
                raise
            logger.warning("%s is computed on the CPU, since the device failed: %s", self, error)
            return self(OrderScores.from_rows(rows, "cpu"))


@dataclass(frozen=True)
class MaxOrderEvidence(Evidence):
    """The verdict on one question: whether the published order is the most likely one.

    flagged: no other order is as likely as the published one
    pvalue: rank of the published order (1 = most likely; ties rank it lower) over the number of orders
    order_z: how many standard deviations of the question's orders the published one is above their mean, see `order_z`
    margin: nats by which the published order beats the best other one; negative where it does not
    best_order: index of the most likely order, 0 being the published one
    n_orders: number of compared orders
    """

    ranked_by: ClassVar[str] = "order_z"
    order_z: float
    margin: float
    best_order: int
    n_orders: int


@statistics.register("max_order")
@dataclass(frozen=True)
class MaxOrder(OrderStatistic):
    """Flags a question if its published order is more likely than every other."""

    def __call__(self, scores: OrderScores) -> list[MaxOrderEvidence]:
        from lm_eval_leakage.stats.order_scores import order_z

        published, others = scores.loglikelihoods[:, :1], scores.loglikelihoods[:, 1:]
        n_orders = scores.n_orders.double()
        best_other, best_index = others.max(dim=1)
        margin = published[:, 0] - best_other
        columns = {
            "flagged": margin > 0,
            "pvalue": (1 + (others >= published).sum(dim=1)) / n_orders,
            "null_rate": 1 / n_orders,
            "order_z": order_z(scores),
            "margin": margin,
            "best_order": (best_index + 1) * (margin < 0),
            "n_orders": scores.n_orders,
        }
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [MaxOrderEvidence(**dict(zip(columns, row, strict=True))) for row in rows]
