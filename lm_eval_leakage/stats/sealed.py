"""The tests of a sealed benchmark together: one p-value, one e-value, and at least how many questions were seen; and
what hits say that have a known probability by chance.

A secret key drew which wording W of each question is public, then the order O of its options, then the order Q of the
questions in the file: all uniform and independent. Null hypothesis: the model is independent of all of them, as it is
if it never saw the published version, whatever else it knows; question i is then hit (its draw is guessed) with a
known probability at most, independently of the others.

Why the tests may be combined. The test of wordings scores texts in which neither options nor other questions occur, so
its p-value depends on the draws only by W. The test of option orders shows the public wording: it depends on W and O,
but given W every order is equally likely, so P(p <= u | W) <= u. The test of question order shows both: given W, O and
which questions are in a shard, every order of the shard is equally likely, so P(p <= u | W, O) <= u. Each p-value is
thus at most as small as a uniform one given all earlier ones, for which Fisher's -2 sum(log p) is at most as large as
chi-square with two degrees of freedom per test; and the mean of each e-value given all earlier ones is at most 1, so
that their product has a mean of at most 1, too. Two tests of one draw, as by log-likelihoods and by a chat of the same
option orders, are not independent: the first one of a draw counts.

Of texts without options, a key drew instead of wordings and orders which filler F stands in which text of a block. The
test of fillers scores texts one by one, each with every filler of its block. These scores depend neither on F nor on
Q, so that its p-value depends on the draws by F alone. The test of question order shows the texts with their fillers:
P(p <= u | F) <= u.

The ceiling: of several equally right options, a key drew the one that counts. A question with r of them is answered as
the key says with probability 1/r at most, however much the model knows, so a better score is evidence of having seen
the key. A model that is better at guessing what authors prefer gains nothing, since no author chose. It asks for
questions with several right options, which are few in most benchmarks; wrong answers hide what a model remembers, so
that finding nothing says little.

Limits: exact as long as the key is secret and its draws uniform; a p-value says nothing about when or where a version
was seen. Source: R. A. Fisher (1932); Vovk and Wang (arXiv 1912.06116); exact p-values by drawing what is published,
Zhang et al. (arXiv 2409.19798) and STAMP (arXiv 2504.13416); the ceiling after CapBencher (arXiv 2505.18102). The
exact tail for different rates and the bound on the number of seen questions are ours.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lm_eval_leakage.stats.order_power import Power
from lm_eval_leakage.stats.order_sum import log_evalue
from lm_eval_leakage.stats.pooling import NAN, poisson_binomial_tail

SEEN_LEVEL = 0.05  # error of the lower bound on the number of seen questions


def hits_pvalue(hits: Sequence[bool], rates: Sequence[float]) -> float:
    """Probability of at least so many hits by chance: the exact Poisson-binomial tail; 1 without questions."""
    return poisson_binomial_tail(sum(hits), rates) if rates else 1.0


def hits_log_evalue(hits: Sequence[bool], rates: Sequence[float]) -> float:
    """Logarithm of an e-value against "a share of the questions is hit for certain", averaged over shares; the mean of
    the e-value by chance is 1 at most. NaN without questions."""
    if not rates:
        return NAN
    hit_or_not = [np.array([1.0, 0.0] if hit else [0.0, 1.0]) for hit in hits]
    by_chance = [np.array([rate, 1 - rate]) for rate in rates]
    with np.errstate(divide="ignore"):  # one miss, and not all questions are hit for certain
        return log_evalue(hit_or_not, by_chance)


def fewest_seen(n_hits: int, rates: Sequence[float], level: float = SEEN_LEVEL) -> int:
    """The smallest number m of seen questions with P(m + hits by chance on the others >= n_hits) > level: a lower
    confidence bound of 1 - level on their number, whichever were seen and whatever is hit of them.

    The probability is the highest if the m questions with the lowest rates were seen, and if all of them are hit.
    """
    highest_first = sorted(rates, reverse=True)

    def is_plausible(n_seen: int) -> bool:
        others = highest_first[: len(rates) - n_seen]
        return n_seen >= n_hits or poisson_binomial_tail(n_hits - n_seen, others) > level

    return bisect_left(range(n_hits + 1), True, key=is_plausible)


WORDING_DRAW, ORDER_DRAW, PLACE_DRAW = "wordings", "option orders", "the order of questions"
FILLER_DRAW = "fillers"
COMBINED_DRAWS = (
    WORDING_DRAW,
    ORDER_DRAW,
    FILLER_DRAW,
    PLACE_DRAW,
)  # in the order in which they condition on each other
TOP_SIXTH = 1 / 6  # of the orders; of 24, a question that was seen once is in it in .52 of cases (`order_power`)


@dataclass(frozen=True)
class Hits:
    """Questions whose published version stands out by some rule.

    rule: in words
    n_hits: how many do
    null_rates: of each tested question, the probability (at most) that it does if it was not seen
    """

    rule: str
    n_hits: int
    null_rates: tuple[float, ...]


@dataclass(frozen=True)
class SealedTest:
    """One test of a sealed benchmark.

    name: as tables show it
    draw: which of the key's draws it tests, one of COMBINED_DRAWS; empty if it is shown and not combined
    n: how many `units` it tested
    effect: its size in `unit`, with its standard error; NaN if it was not run
    pvalue: exact under the null hypothesis; NaN if it was not run, with the `reason`
    is_bound: whether the p-value is an upper bound
    log_evalue: logarithm of an e-value; NaN if it has none
    power: by which the share of seen questions is bounded; None if that is not known
    left_out: how many questions were not tested, by reason
    places: of the tested questions in the public file
    hits: by which the number of seen questions can be bounded
    """

    name: str
    draw: str = ""
    n: int = 0
    units: str = "question"
    effect: float = NAN
    effect_error: float = NAN
    unit: str = ""
    pvalue: float = NAN
    is_bound: bool = False
    log_evalue: float = NAN
    reason: str = ""
    power: Power | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    places: frozenset[int] = frozenset()
    hits: tuple[Hits, ...] = ()

    @property
    def was_run(self) -> bool:
        return not math.isnan(self.pvalue)


@dataclass(frozen=True)
class Together:
    """What the tests of different draws say together.

    names: of the tests that it combines
    pvalue: Fisher's; NaN without a test
    log_evalue: of the product of the e-values; NaN without one
    """

    names: tuple[str, ...] = ()
    pvalue: float = NAN
    log_evalue: float = NAN


def of_hits(test: SealedTest, hits: Sequence[bool], rates: Sequence[float], unit: str) -> SealedTest:
    """A test with the result of questions of which each is hit by chance with a probability of at most its rate: the
    effect is the share of hits beyond those to expect."""
    n = len(hits)
    spread = math.fsum(rate * (1 - rate) for rate in rates)
    return replace(
        test,
        n=n,
        effect=(sum(hits) - math.fsum(rates)) / n,
        effect_error=math.sqrt(spread) / n,
        unit=unit,
        pvalue=hits_pvalue(hits, rates),
        log_evalue=hits_log_evalue(hits, rates),
    )


def together(tests: Iterable[SealedTest]) -> Together:
    """Combines the first test of each draw that was run."""
    run = [test for test in tests if test.was_run]
    chosen = [own[0] for draw in COMBINED_DRAWS if (own := [test for test in run if test.draw == draw])]
    if not chosen:
        return Together()
    evalues = [test.log_evalue for test in chosen if not math.isnan(test.log_evalue)]
    return Together(
        tuple(test.name for test in chosen),
        fisher([test.pvalue for test in chosen]),
        math.fsum(evalues) if evalues else NAN,
    )


def fisher(pvalues: Sequence[float]) -> float:
    """P(chi-square with 2k degrees of freedom >= -2 sum(log p)): a p-value if each of the k is one given the ones
    before it."""
    from scipy.stats import combine_pvalues

    return float(combine_pvalues([max(pvalue, sys.float_info.min) for pvalue in pvalues]).pvalue)


# ---------------------------------------------------------------------- how many were seen


@dataclass(frozen=True)
class SeenBound:
    """At least `n_seen` of `n` questions were seen, at the confidence 1 - level, by `rule`; 0 says nothing."""

    n_seen: int = 0
    n: int = 0
    rule: str = ""
    level: float = SEEN_LEVEL


def hits_of(rule: str, versions: Iterable[Sequence[float]], top: float = 0.0) -> Hits:
    """Which questions have their published version among the most likely ones.

    versions: of each question, the scores of all of its versions, the published one first
    top: among which share of the versions; at least the first

    Ties count against: of n versions at most r have at most r that are at least as likely, so that an unseen question
    is a hit with probability r / n or less.
    """
    n_hits, rates = 0, []
    for own in versions:
        n_first = max(1, math.floor(top * len(own) + 1e-9))
        n_hits += sum(score >= own[0] for score in own) <= n_first
        rates.append(n_first / len(own))
    return Hits(rule, n_hits, tuple(rates))


def best_bound(rules: Sequence[Hits], level: float = SEEN_LEVEL) -> SeenBound:
    """The highest of the rules' bounds, each at level / (number of rules), so that all of them hold together with
    probability 1 - level, however they depend on each other."""
    used = [hits for hits in rules if hits.null_rates]
    bounds = [
        SeenBound(fewest_seen(one.n_hits, one.null_rates, level / len(used)), len(one.null_rates), one.rule, level)
        for one in used
    ]
    return max(bounds, key=lambda bound: bound.n_seen, default=SeenBound(level=level))
