"""Tests a benchmark's questions alone, without a model: were their options published in a random order?

Null hypothesis: the author shuffled the options of each question uniformly, whatever they say. Eight tests look for
habits of people who write options down: numbers are sorted, similar options are neighbours, lengths rise or fall, the
alphabet or how usual an option is decides, the text names them in that order, the right option has a favourite place,
"none of the above" is last. Each is exact under the null hypothesis, conditional on the options (`stats.order_sum`).
Limit: a written order that shows none of these habits is not found.

It is here and not among the questions because it needs both their readings and `stats`, which are of one tier."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress

import numpy as np

from lm_eval_leakage.questions.families import distinct
from lm_eval_leakage.questions.guards import gives_up, guards_of, speaks_of_others
from lm_eval_leakage.questions.natural_orders import mentions, quantities
from lm_eval_leakage.records import Question
from lm_eval_leakage.stats.order_sum import (
    Places,
    adjusted_by_holm,
    both_tails,
    monte_carlo_error,
    orders_of,
    place_test,
    standard_scores,
    sum_test,
)
from lm_eval_leakage.stats.pooling import NAN, Floats, poisson_binomial_tail

GENERAL = ("likeness of neighbours", "length trend")  # the tests that act on almost any question of three options
LEVEL = 0.01  # one random benchmark in 100 is called written and loses an exact test, the cheaper of the two mistakes
POWER = 0.8
N_TESTS = 8  # among which Holm adjusts if all can act
FEWEST_TESTED = 20  # below, nothing is computed: a p-value of so few questions would be read as an answer
_WORDS = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]|[^\W_\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]+")
PIECE = 2  # characters of the pieces by which options are compared; in Chinese a piece is about a word


@dataclass(frozen=True)
class OrderTest:
    """One test of the published orders.

    name: what is looked at
    n_questions: number of questions on which the test could act; with none, all numbers are NaN
    measure: what `observed` and `expected` are: a share of the questions, "z" or "chi-square"
    expected: by chance, if orders are random
    pvalue: with its Monte Carlo error, 0 if it is exact
    adjusted: the p-value, adjusted for the number of tests that could act (Holm)
    """

    name: str
    n_questions: int
    measure: str
    observed: float = NAN
    expected: float = NAN
    pvalue: float = NAN
    pvalue_error: float = 0.0
    adjusted: float = NAN


@dataclass(frozen=True)
class OrderTests:
    """The tests of a benchmark's orders.

    n_questions: different questions with two options or more
    n_left_out: questions with fewer, and copies of questions
    tests: empty below `FEWEST_TESTED`
    pattern: the larger mean effect, in standard deviations, of likeness and length on a question without a guard
    """

    n_questions: int
    n_left_out: int
    tests: tuple[OrderTest, ...]
    pattern: float = 0.0


def order_tests(questions: Iterable[Question]) -> OrderTests:
    """Return all tests. Copies count once, since their orders are not independent."""
    given = list(questions)
    kept = [question for question in distinct(given) if len(question.options) > 1]
    n_left_out = len(given) - len(kept)
    if len(kept) < FEWEST_TESTED:
        return OrderTests(len(kept), n_left_out, ())
    rng = _rng(kept)
    orders = [orders_of(len(question.options), rng) for question in kept]
    sums = {
        "likeness of neighbours": neighbours_alike(kept, orders),
        "length trend": _trends([[len(option.strip()) for option in question.options] for question in kept], orders),
        "alphabetical trend": _trends(alphabet_places(kept), orders),
        "frequency trend": _trends(frequencies(kept), orders),
        "order of mention": _trends(places_of_mention(kept), orders),
    }
    of_sums = [_sum_test(name, values, rng) for name, values in sums.items()]
    tests = [sorted_quantities(kept), *of_sums, right_places(kept, rng), referring_last(kept)]
    free = [not guards_of(question) for question in kept]
    pattern = max(_effect(compress(sums[name], free)) for name in GENERAL)
    return OrderTests(len(kept), n_left_out, _adjusted(tests), pattern)


def _effect(values: Iterable[Floats]) -> float:
    """Return the mean of the published orders' standardised values, up to its sign; 0 where no question has any."""
    of_questions = [standard_scores(numbers) for numbers in values]
    published = [float(scores[0]) for scores in of_questions if scores is not None]
    return abs(math.fsum(published)) / len(published) if len(published) >= FEWEST_TESTED else 0.0


def _rng(questions: Sequence[Question]) -> np.random.Generator:
    """Return a generator seeded by all ids together: with a seed per question, two questions with one id would get the
    same draws."""
    digest = hashlib.sha256("\n".join(question.id for question in questions).encode("utf-8", "replace"))
    return np.random.default_rng(int.from_bytes(digest.digest(), "big"))


def _adjusted(tests: Sequence[OrderTest]) -> tuple[OrderTest, ...]:
    acting = [test for test in tests if test.n_questions]
    adjusted = dict(zip(acting, adjusted_by_holm([test.pvalue for test in acting]), strict=True))
    return tuple(replace(test, adjusted=adjusted.get(test, NAN)) for test in tests)


def sorted_quantities(questions: Sequence[Question]) -> OrderTest:
    """Are numbers, dates and quantities in rising or falling order more often than by chance?

    Null: of the m! orders of a question's m quantities, 2 x (product of the factorials of how often each occurs) are
    sorted; the number of sorted questions is Poisson-binomial, exactly. Options that refer to others or say that there
    is no answer are left out. One-sided: builders sort, none is known to avoid sorted orders. Limits: acts on three or
    more quantities in the same words, as `questions.natural_orders` reads them.
    """
    n_sorted, rates = 0, []
    for question in questions:
        values = quantities([option for option in question.options if not _refers(option)])
        different = set(values)
        if len(values) < 3 or len(different) < 2:
            continue
        same = math.prod(math.factorial(values.count(value)) for value in different)
        rate = 2 * same / math.factorial(len(values))
        if rate < 1:
            rates.append(rate)
            n_sorted += values in (sorted(values), sorted(values, reverse=True))
    return _share_test("numbers sorted", n_sorted, rates, poisson_binomial_tail)


def referring_last(questions: Sequence[Question]) -> OrderTest:
    """Is "none of the above", or an option like it, last more or less often than by chance?

    Null: if k of n options refer to others or say that there is no answer, the last one does with probability k/n; the
    number of such questions is Poisson-binomial, exactly. Two-sided: a builder may also keep them from being last.
    Limits: recognised by wording, in the languages that `questions.guards` knows.
    """
    n_last, rates = 0, []
    for question in questions:
        refer = [_refers(option) for option in question.options]
        if 0 < sum(refer) < len(refer):
            rates.append(sum(refer) / len(refer))
            n_last += refer[-1]
    return _share_test("“none of the above” last", n_last, rates, both_tails)


def _refers(option: str) -> bool:
    return speaks_of_others(option) or gives_up(option)


def _share_test(
    name: str, n_observed: int, rates: Sequence[float], tail: Callable[[int, Sequence[float]], float]
) -> OrderTest:
    if not rates:
        return OrderTest(name, 0, "share")
    n = len(rates)
    return OrderTest(name, n, "share", n_observed / n, math.fsum(rates) / n, tail(n_observed, rates))


def neighbours_alike(questions: Sequence[Question], orders: Sequence[Places]) -> list[Floats]:
    """Are neighbouring options more, or less, alike than in other orders of the same options?

    An order's value is the sum, over neighbours, of the share of two-character pieces that they have in common
    (Jaccard), standardised over the question's orders. Null: the published order's value is any of them. Two-sided:
    builders group similar options, but may also alternate between them. Limits: cannot act on two options, nor if all
    pairs of options are equally alike.
    """
    likeness = [_likeness(question.options) for question in questions]
    pairs = zip(likeness, orders, strict=True)
    return [alike[places[:, :-1], places[:, 1:]].sum(axis=1) for alike, places in pairs]


def _likeness(options: Sequence[str]) -> Floats:
    """Return, for each two options, the number of pieces in both over the number in either."""
    pieces = [_pieces(option) for option in options]
    alike = np.zeros((len(options), len(options)))
    for place, pieces_here in enumerate(pieces):
        for other in range(place):
            both = len(pieces_here & pieces[other])
            alike[place, other] = alike[other, place] = both / (len(pieces_here) + len(pieces[other]) - both)
    return alike


def _pieces(option: str) -> set[str]:
    """Return the option's pieces, with a space at both ends, so that every option has one."""
    text = f" {option.strip().casefold()} "
    return {text[start : start + PIECE] for start in range(len(text) - PIECE + 1)}


def alphabet_places(questions: Sequence[Question]) -> list[list[int]]:
    """Are options in alphabetical order, or against it, by the code points of their small letters?"""
    texts = [[option.strip().casefold() for option in question.options] for question in questions]
    return [[sorted(options).index(text) for text in options] for options in texts]


def frequencies(questions: Sequence[Question]) -> list[list[float]]:
    """Do options get rarer, or more usual, from the first to the last? By the mean logarithm of how often their words
    (in Chinese, Japanese and Thai: their characters) occur in all questions together."""
    words = [[_WORDS.findall(option.casefold()) for option in question.options] for question in questions]
    counts = Counter(chain.from_iterable(chain.from_iterable(words)))
    for question in questions:
        counts.update(_WORDS.findall(question.stem.casefold()))

    def usual(option: Sequence[str]) -> float:
        return math.fsum(math.log(counts[word]) for word in option) / len(option) if option else 0.0

    return [list(map(usual, options)) for options in words]


def places_of_mention(questions: Sequence[Question]) -> list[list[float]]:
    """Do options that the question's text names stand in the order in which it names them, or against it? Limits: acts
    on two or more named options, as `questions.natural_orders` reads them."""
    places = []
    for question in questions:
        mentioned = mentions(question.stem, question.options)
        named = sorted(place for place in mentioned if place is not None)
        middle = (len(named) - 1) / 2
        places.append([0.0 if place is None else named.index(place) - middle for place in mentioned])
    return places


def _trends(numbers: Iterable[Sequence[float]], orders: Sequence[Places]) -> list[Floats]:
    """Do the options' numbers (for the length trend, of their characters) rise, or fall, from the first option to the
    last more than in other orders?

    An order's value is the sum of place x number, standardised over the question's orders, that is their correlation
    up to a factor. Null: the published order's value is any of them. Two-sided. Cannot act where all are equal.
    """
    pairs = zip(numbers, orders, strict=True)
    return [np.asarray(values, dtype=float)[places] @ np.arange(len(values), dtype=float) for values, places in pairs]


def _sum_test(name: str, values: Iterable[Floats], rng: np.random.Generator) -> OrderTest:
    standard = [scores for scores in map(standard_scores, values) if scores is not None]
    if not standard:
        return OrderTest(name, 0, "z")
    z, pvalue = sum_test(standard, rng)
    return OrderTest(name, len(standard), "z", z, 0.0, pvalue, monte_carlo_error(pvalue))


def right_places(questions: Sequence[Question], rng: np.random.Generator) -> OrderTest:
    """Is the right option at each place equally often?

    Null: each place with probability 1/n, independently; chi-square with its Monte Carlo p-value. One-sided: a builder
    may balance the places on purpose, and that passes. Limits: needs the answers; leaves out questions whose right
    option is repeated, since any of the copies may be the one that is named.
    """
    places = []
    for question in questions:
        options, answer = question.options, question.answer
        if answer is not None and options.count(options[answer]) == 1:
            places.append((answer, len(options)))
    if not places:
        return OrderTest("place of the right option", 0, "chi-square")
    statistic, freedom, pvalue = place_test(places, rng)
    error = monte_carlo_error(pvalue)
    return OrderTest("place of the right option", len(places), "chi-square", statistic, float(freedom), pvalue, error)
