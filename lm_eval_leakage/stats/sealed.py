"""Combines the tests of a sealed benchmark: one p-value, one e-value, and a lower bound of the number of seen
questions. It also tests hits that have a known probability by chance.

A secret key drew which wording W of each question is public, then the order O of its options, then the order Q of the
questions in the file: all uniform and independent. Null hypothesis: the model is independent of all of them, as it is
if it never saw the published version, whatever else it knows; question i is then hit (its draw is guessed) with a
known probability at most, independently of the others.

Why the tests may be combined: the test of wordings scores texts without options and other questions, so its p-value
depends on the draws only by W. The test of option orders shows the public wording: it depends on W and O, but given W
every order is equally likely, so P(p <= u | W) <= u. The test of question order shows both: given W, O and which
questions are in a shard, every order of the shard is equally likely, so P(p <= u | W, O) <= u. Each p-value is thus at
most as small as a uniform one given all earlier ones, for which Fisher's -2 sum(log p) is at most as large as
chi-square with two degrees of freedom per test; and the mean of each e-value given all earlier ones is at most 1, so
that their product has a mean of at most 1 as well. Two tests of one draw, such as those of option orders by
log-likelihoods and in a chat, are not independent: only the first test of a draw counts.

For texts without options, the key drew instead which filler F stands in which text of a block. The test of fillers
scores texts one by one, each with every filler of its block. These scores depend neither on F nor on Q, so its p-value
depends on the draws by F alone. The test of question order shows the texts with their fillers: P(p <= u | F) <= u.

The ceiling: of several equally right options, the key drew the one that counts. A question with r of them is answered
as the key says with probability 1/r at most, however much the model knows. A better score is evidence of having seen
the published answers. A model that is better at guessing what authors prefer gains nothing, since no author chose. The
test needs questions with several right options, of which most benchmarks have few. Wrong answers hide what a model
remembers, so a test without a rejection says little.

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
from lm_eval_leakage.stats.order_sum import mixture_log_evalue
from lm_eval_leakage.stats.pooling import NAN, poisson_binomial_tail

SEEN_LEVEL = 0.05  # error of the lower bound on the number of seen questions
WORDING_DRAW, ORDER_DRAW, PLACE_DRAW = "wordings", "option orders", "the order of questions"
FILLER_DRAW = "fillers"
COMBINED_DRAWS = (WORDING_DRAW, ORDER_DRAW, FILLER_DRAW, PLACE_DRAW)  # each test is given the draws before its own
TOP_SIXTH = 1 / 6  # of the orders; of 24, a question that was seen once is in it in .52 of cases (`order_power`)


def hits_pvalue(hits: Sequence[bool], rates: Sequence[float]) -> float:
    """Return the exact probability of at least so many hits by chance; 1 without questions."""
    return poisson_binomial_tail(sum(hits), rates) if rates else 1.0


def hits_log_evalue(hits: Sequence[bool], rates: Sequence[float]) -> float:
    """Return the logarithm of an e-value for hits; NaN without questions.

    The alternative, averaged over shares, is that a share of the questions is hit for certain. By chance, the mean of
    the e-value is 1 at most.
    """
    if not rates:
        return NAN
    hit_or_not = [np.array([1.0, 0.0] if hit else [0.0, 1.0]) for hit in hits]
    by_chance = [np.array([rate, 1 - rate]) for rate in rates]
    with np.errstate(divide="ignore"):  # one miss, and not all questions are hit for certain
        return mixture_log_evalue(hit_or_not, by_chance)


def fewest_seen(n_hits: int, rates: Sequence[float], level: float = SEEN_LEVEL) -> int:
    """Return a lower confidence bound of 1 - level on the number of seen questions.

    It is the smallest number m with P(m + hits by chance on the others >= n_hits) > level. It holds whichever
    questions were seen, and however many of them are hit: the probability is the highest if the m questions with the
    lowest rates were seen, and if all of them are hit.
    """
    highest_first = sorted(rates, reverse=True)

    def is_plausible(n_seen: int) -> bool:
        others = highest_first[: len(rates) - n_seen]
        return n_seen >= n_hits or poisson_binomial_tail(n_hits - n_seen, others) > level

    return bisect_left(range(n_hits + 1), True, key=is_plausible)


@dataclass(frozen=True)
class Hits:
    """The counts of questions whose published version stands out by a rule.

    rule: the rule in words
    n_hits: number of questions that stand out
    null_rates: for each tested question, an upper bound of the probability that it stands out if it is unseen
    """

    rule: str
    n_hits: int
    null_rates: tuple[float, ...]


@dataclass(frozen=True)
class SealedTest:
    """A test of a sealed benchmark; its result is undefined if it was not run.

    name: its name in tables
    draw: the draw of the key that it tests, one of COMBINED_DRAWS; empty if it is shown but not combined
    n: number of tested `units`
    effect, effect_error: size of the effect in `unit`, and its standard error; NaN if it was not run
    pvalue: exact under the null hypothesis; NaN if it was not run, with the `reason`
    is_bound: whether the p-value is an upper bound
    log_evalue: logarithm of an e-value; NaN if it has none
    power: bounds the share of seen questions; None if that is unknown
    left_out: number of questions that were not tested, by reason
    places: places of the tested questions in the public file
    hits: counts that bound the number of seen questions
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
class CombinedTest:
    """The result of several tests of different draws; it combines their p-values and e-values.

    names: names of the combined tests
    pvalue: Fisher's p-value; NaN without a test
    log_evalue: logarithm of the product of the e-values; NaN without one
    """

    names: tuple[str, ...] = ()
    pvalue: float = NAN
    log_evalue: float = NAN


def of_hits(test: SealedTest, hits: Sequence[bool], rates: Sequence[float], unit: str) -> SealedTest:
    """Return a test with the result of its hits. The effect is the share of hits beyond the expected ones.

    rates: for each question, an upper bound of the probability of a hit by chance
    unit: the unit of the effect, in words
    """
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


def combined_test(tests: Iterable[SealedTest]) -> CombinedTest:
    """Return the combination of the first test of each draw that was run."""
    first: dict[str, SealedTest] = {}
    for test in tests:
        if test.was_run:
            first.setdefault(test.draw, test)
    chosen = [first[draw] for draw in COMBINED_DRAWS if draw in first]
    if not chosen:
        return CombinedTest()
    evalues = [test.log_evalue for test in chosen if not math.isnan(test.log_evalue)]
    return CombinedTest(
        tuple(test.name for test in chosen),
        fisher([test.pvalue for test in chosen]),
        math.fsum(evalues) if evalues else NAN,
    )


def fisher(pvalues: Sequence[float]) -> float:
    """Return P(chi-square with 2k degrees of freedom >= -2 sum(log p)). It is a p-value if each of the k p-values is
    one given those before it."""
    from scipy.stats import combine_pvalues

    return float(combine_pvalues([max(pvalue, sys.float_info.min) for pvalue in pvalues]).pvalue)


# ---------------------------------------------------------------------- how many were seen


@dataclass(frozen=True)
class SeenBound:
    """A lower bound of the number of seen questions; 0 says nothing.

    n_seen, n: at least `n_seen` of `n` questions were seen, with confidence 1 - `level`
    rule: the rule of the hits, in words
    """

    n_seen: int = 0
    n: int = 0
    rule: str = ""
    level: float = SEEN_LEVEL


def hits_of(rule: str, versions: Iterable[Sequence[float]], top: float = 0.0) -> Hits:
    """Count the questions whose published version is among the most likely ones.

    versions: for each question, the scores of all of its versions, the published one first
    top: the share of versions that count as most likely; at least the first one counts

    A tie is no hit: of n versions, at most r have at most r that are at least as likely. An unseen question is
    therefore a hit with probability r / n or less.
    """
    n_hits, rates = 0, []
    for scores in versions:
        n_first = max(1, math.floor(top * len(scores) + 1e-9))
        n_hits += sum(score >= scores[0] for score in scores) <= n_first
        rates.append(n_first / len(scores))
    return Hits(rule, n_hits, tuple(rates))


def best_bound(rules: Sequence[Hits], level: float = SEEN_LEVEL) -> SeenBound:
    """Return the highest bound of several rules.

    Each is at level / (number of rules), so that all hold at once with probability 1 - level, however they depend on
    each other.
    """
    used = [hits for hits in rules if hits.null_rates]
    bounds = []
    for hits in used:
        n_seen = fewest_seen(hits.n_hits, hits.null_rates, level / len(used))
        bounds.append(SeenBound(n_seen, len(hits.null_rates), hits.rule, level))
    return max(bounds, key=lambda bound: bound.n_seen, default=SeenBound(level=level))
