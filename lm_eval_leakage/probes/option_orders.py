"""Every order of a question's options, each scored as one block of lettered lines.

Null hypothesis of the statistics on it: the orders are exchangeable; a model that has not seen the question
prefers none of them. Limits: options with a natural order (ascending numbers, "all of the above", True
before False) break it without any leakage; `guards` names such questions. Source: Ni et al., AAAI 2025
(arXiv 2409.01790); drawing orders is the permutation-R of Hidayat et al., 2025 (arXiv 2505.24263).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import factorial, prod

from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.questions.guards import anchored
from lm_eval_leakage.questions.rendering import context_and_markers, in_orders, option_format
from lm_eval_leakage.records import Question, Request, UntestableQuestion
from lm_eval_leakage.texts import brief, in_capitals

Order = tuple[int, ...]
MOVES = ("all", "movable")
PAPER = "paper"
CONTROL_CONTEXT = "Question:"
MOST_COMPARED = 12  # orders in each control form; twice as many found no more (docs/validity.md)
FOUR_OPTIONS_ORDERS = 24
PAPER_ORDERS = (0, 1, 2, 6, 9, 10, 12, 13, 18, 19, 20, 22)  # of 24, Hidayat et al. (2025), permutation-R at 50 %


@probes.register("option_orders")
@dataclass(frozen=True)
class OptionOrders(Probe):
    """Context = the question, continuation = its options in one order; order 0 is the published one.

    Orders that read the same (because of a repeated option) are scored once. All n! orders are scored up to
    `max_orders`, by default 120, so up to 5 options; above that, orders are drawn without replacement, with the
    question's id as seed.

    max_orders: maximum number of orders per question
    orders: a smaller number of orders: a count (12), a share of the distinct orders (0.5), or "paper", the 12 of 24
        orders that Hidayat et al. list, and half of the orders for other numbers of options; None for all
    move: which options change place: "all", or only "movable" ones: options that refer to others ("all of the above")
        or that are named by letter keep their place, so that every order makes sense
    format: "usual" ("A. ", as the harness renders options) or "papers" ("question:" and "A:", Ni et al.); None for
        the benchmark's own prompt if it shows the options, else the usual one
    """

    max_orders: int = 120
    orders: int | float | str | None = None
    move: str = "all"
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            option_format(self.format)
        if self.move not in MOVES:
            raise ValueError(f"move is {self.move!r}; choose one of: {', '.join(MOVES)}")
        if not _is_count(self.max_orders):
            raise ValueError(f"max_orders is {self.max_orders!r}; it must be a whole number of at least 2")
        share = isinstance(self.orders, float) and 0 < self.orders <= 1
        if not (self.orders in (None, PAPER) or share or _is_count(self.orders)):
            raise ValueError(
                f"orders is {self.orders!r}; give a whole number of at least 2, a share in (0, 1], {PAPER!r}, or "
                "leave it out"
            )

    def requests(self, question: Question) -> tuple[Request, ...]:
        context, markers = context_and_markers(question, self.format)
        blocks = in_orders(markers, question.options, self.chosen_orders(question))
        return tuple([Request(context, block) for block in blocks])

    def fixed_places(self, question: Question) -> tuple[int, ...]:
        return _fixed_places(_pattern(_read(question.options)), tuple(self.chosen_orders(question)))

    @property
    def asks_orders(self) -> bool:
        """Not of the paper's 12 orders, a fixed choice around the published one: from another one of them, the 12
        would be other orders."""
        return self.orders != PAPER

    def compared(self, question: Question) -> tuple[int, ...]:
        """The published order and others, drawn with the question's id as seed; all, where there are few."""
        n = len(self.chosen_orders(question))
        if n <= MOST_COMPARED:
            return tuple(range(n))
        return (0, *sorted(random.Random(f"{question.id} compared").sample(range(1, n), MOST_COMPARED - 1)))

    def right_places(self, question: Question) -> tuple[int, ...]:
        options, right = _read(question.options), question.answer
        if right is None:
            return ()
        orders = self.chosen_orders(question)
        return tuple([[options[source] for source in order].index(options[right]) for order in orders])

    def control(self, question: Question) -> tuple[Request, ...]:
        """The compared orders in two forms. Without the question, in one line as "first ..., then ...", what is
        natural in the options alone stays: an order by time or size. With the question, but in capitals, what is
        natural beside it stays: the order in which it names them. Neither is the published text; empty if capitals
        change nothing."""
        context, markers = context_and_markers(question, self.format)
        orders, options = self.chosen_orders(question), question.options
        compared = [orders[place] for place in self.compared(question)]
        if len(compared) < 2 or all(in_capitals(text) == text for text in (context, *options)):
            return ()
        in_words = [" first ", *[", then "] * (len(options) - 1)]
        alone = [Request(CONTROL_CONTEXT, line) for line in in_orders(in_words, options, compared)]
        capitals = [*map(in_capitals, options)]
        with_question = [
            Request(in_capitals(context), block)
            for block in in_orders([*map(in_capitals, markers)], capitals, compared)
        ]
        return (*alone, *with_question)

    def chosen_orders(self, question: Question) -> list[Order]:
        """The orders to score, as indices of the published options, the published order first."""
        options = _read(question.options)
        held = anchored(options) if self.move == "movable" else set()
        moved = tuple([place for place in range(len(options)) if place not in held])
        texts = [options[place] for place in moved]
        pattern = _pattern(texts)
        n_distinct = _n_distinct(pattern)
        if n_distinct == 1:
            raise UntestableQuestion(f"{_why_fixed(options, texts)}; at least 2 different options are needed")
        n_orders = self._wanted(n_distinct)
        if self.orders == PAPER and n_distinct == FOUR_OPTIONS_ORDERS:
            every = _every_order(pattern, moved, len(options))
            return [order for index, order in enumerate(every) if index in PAPER_ORDERS]
        if n_orders < n_distinct:
            drawn = drawn_orders(texts, n_orders, rng=random.Random(question.id))
            return [_with_held(order, moved, len(options)) for order in drawn]
        return list(_every_order(pattern, moved, len(options)))

    def _wanted(self, n_distinct: int) -> int:
        wanted: int | float = n_distinct
        if self.orders is not None:
            wanted = 0.5 if isinstance(self.orders, str) else self.orders
        if isinstance(wanted, float):
            wanted = max(2, round(wanted * n_distinct))
        return min(wanted, n_distinct, self.max_orders)


def _read(options: Sequence[str]) -> list[str]:
    """Options that differ only in surrounding white space read the same."""
    return [option.strip() for option in options]


def _pattern(texts: Sequence[str]) -> Order:
    """For each text, the first place of an equal one; which orders read differently depends on nothing else."""
    return tuple([texts.index(text) for text in texts])


@cache
def _n_distinct(pattern: Order) -> int:
    return factorial(len(pattern)) // prod(map(factorial, Counter(pattern).values()))


@lru_cache(maxsize=64)
def _every_order(pattern: Order, moved: Order, n_options: int) -> tuple[Order, ...]:
    return tuple(_with_held(order, moved, n_options) for order in distinct_orders(pattern))


@lru_cache(maxsize=64)
def _fixed_places(pattern: Order, orders: tuple[Order, ...]) -> tuple[int, ...]:
    return tuple(sum(pattern[source] == own for source, own in zip(order, pattern, strict=True)) for order in orders)


def _why_fixed(options: Sequence[str], moved: Sequence[str]) -> str:
    if len(options) == 1:
        return "it has one option"
    if len(moved) == len(options):
        return f"its {len(options)} options are identical ({brief(options[0])})"
    return f"{len(options) - len(moved)} of its {len(options)} options keep their place, as they refer to others"


def _with_held(order: Order, moved: Sequence[int], n_options: int) -> Order:
    """Extends an order of the places `moved` to all options; the other options keep their places."""
    places = list(range(n_options))
    for place, source in zip(moved, order, strict=True):
        places[place] = moved[source]
    return tuple(places)


def distinct_orders(options: Sequence[object]) -> Iterator[Order]:
    """Each order of `options` that reads differently, in lexicographic order of the indices."""

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
    """The published order and `n_orders` - 1 others that read differently, uniformly, without replacement."""
    indices = list(range(len(options)))
    drawn: dict[tuple[str, ...], Order] = {tuple(options): tuple(indices)}
    while len(drawn) < n_orders:
        rng.shuffle(indices)
        drawn.setdefault(tuple(options[i] for i in indices), tuple(indices))
    return list(drawn.values())


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 2
