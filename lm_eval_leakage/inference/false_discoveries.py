"""At most how many of the questions ranked highest are mistakes? Bounds for every cut at once, so that the cut may be
chosen after looking at them.

Null hypothesis of a mistake: the question is exchangeable with the known questions that it was compared with. The
p-values of such questions then depend on each other only through those known questions: without ties, each number of
them between two known scores is that of a Polya urn, whatever the scores' distribution. Ties raise p-values, which
can only lower the counts.

The bound: draw the urn, and take an envelope that the counts of p-values at or below every threshold stay in with the
requested probability. How many questions are exchangeable is unknown. If there were k of them, more than
k - envelope(t) would have p-values above t; the numbers k that the p-values exclude in this way are dropped within the
same event, so that the refinement costs nothing. Numbers between two sizes of a grid count as the greater one, since
more exchangeable questions can only add p-values below t.

Limits: as for the p-values, exchangeability is assumed. Source: everywhere valid bounds, Song, Jin and Candès (arXiv
2605.20726); the urn, Marandon et al. (2024); counts of sets that are no cut, Goeman and Solari (2011). The shape of
the envelope and the refinement are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from lm_eval_leakage.inference.pooling import Floats

Ints = NDArray[np.int64]

CONFIDENCE = 0.95
N_URNS = 3000  # per envelope
URN_MARGIN = (
    2  # standard errors by which fewer of the drawn urns are outside than the level allows, as these are a sample
)
N_THRESHOLDS = 12  # more of them cost power
FINE, COARSE = 1.05, 1.5  # ratios of neighbouring sizes of the grid: down to a tenth of the questions, and below


@dataclass(frozen=True)
class ComparedClass:
    """Questions that were compared with the same known scores.

    questions: their numbers
    pvalues: conformal p-value of each of them
    n_known: number of the known scores
    """

    questions: Ints
    pvalues: Floats
    n_known: int


@dataclass(frozen=True)
class FalseBound:
    """With the requested probability, at most `most[j]` exchangeable questions have a p-value of `thresholds[j]` or
    less, for all j, and there are at most `n_null` of them."""

    thresholds: Floats
    most: Ints
    n_null: int

    def among(self, pvalues: Floats) -> int:
        """Bound on the exchangeable questions of any subset of those compared, given by its p-values."""
        return int(self.of_cuts(np.sort(pvalues))[-1])

    def of_cuts(self, ascending: Floats) -> Ints:
        """The same for the first 0, 1, 2, ... of some questions, in the order of their p-values."""
        n_chosen = np.arange(len(ascending) + 1)
        n_below = np.searchsorted(ascending, self.thresholds, side="right")
        above = np.maximum(0, n_chosen[:, None] - n_below)
        bound: Ints = np.minimum(np.minimum(n_chosen, self.n_null), (self.most + above).min(axis=1))
        return bound


def false_bound(pvalues: Floats, n_known: int, level: float, *, seed: int = 0) -> FalseBound:
    """The bound for p-values of questions that were all compared with the same `n_known` scores.

    level: probability that it fails somewhere
    """
    ranks = _ranks(n_known)
    thresholds = (ranks + 0.5) / (n_known + 1)  # between two possible p-values
    if not len(pvalues):
        return FalseBound(thresholds, np.zeros(len(ranks), dtype=np.int64), 0)
    n_above = len(pvalues) - np.searchsorted(np.sort(pvalues), thresholds, side="right")
    most, n_null = np.zeros(len(ranks), dtype=np.int64), 0
    sizes = _sizes(len(pvalues))
    for size, greatest_below in zip(sizes, [*sizes[1:], 0], strict=True):
        envelope = null_envelope(size, n_known, level, seed)
        n_possible = min(size, int((n_above + envelope).min()))
        if n_possible > greatest_below:  # some number in this step of the grid is possible
            most, n_null = np.maximum(most, envelope), max(n_null, n_possible)
    return FalseBound(thresholds, most, n_null)


@lru_cache(maxsize=4096)
def null_envelope(n_null: int, n_known: int, level: float, seed: int = 0) -> Ints:
    """For each rank j of `_ranks(n_known)`, a number that the p-values of `n_null` exchangeable questions at or below
    j / (n_known + 1) exceed for no j, with probability 1 - `level` or more."""
    ranks = _ranks(n_known)
    gaps = np.diff(ranks, prepend=0, append=n_known + 1)
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(gaps, N_URNS)
    counts = rng.multinomial(n_null, shares).cumsum(axis=1)[:, :-1]
    extremes = _tail(counts, ranks, n_null, n_known).min(axis=1)
    n_outside = int(level * (N_URNS + 1) - URN_MARGIN * (N_URNS * level * (1 - level)) ** 0.5)
    if n_outside < 1:
        return np.full(len(ranks), n_null)
    least = np.sort(extremes)[n_outside - 1]
    envelope, too_high = np.zeros(len(ranks), dtype=np.int64), np.full(len(ranks), n_null + 1)
    while (too_high - envelope > 1).any():  # by bisection, since the tail falls with the count
        middle = (envelope + too_high) // 2
        inside = _tail(middle, ranks, n_null, n_known) >= least
        envelope, too_high = np.where(inside, middle, envelope), np.where(inside, too_high, middle)
    return envelope


def _tail(counts: Ints, ranks: Ints, n_null: int, n_known: int) -> Floats:
    """How extreme a count at or below each rank is: a Beta tail with the mean and variance of the urn's share.

    Any function that falls with the count gives a valid envelope; this one is about equally strict at all ranks.
    """
    mean = ranks / (n_known + 1)
    precision = n_null * (n_known + 2) / (n_null + n_known + 1)
    tail: Floats = betainc((1 - mean) * precision, mean * precision, np.clip(1 - (counts - 0.5) / n_null, 0, 1))
    return tail


def _ranks(n_known: int) -> Ints:
    """Ranks at which p-values are counted: all if there are few, else denser among the small ones."""
    spread = np.geomspace(1, n_known, N_THRESHOLDS) if n_known > N_THRESHOLDS else np.arange(1, n_known + 1)
    return np.unique(np.rint(spread).astype(np.int64))


def _sizes(n: int) -> list[int]:
    """n, and smaller sizes down to 1."""
    sizes = [n]
    while sizes[-1] > 1:
        ratio = FINE if sizes[-1] > n / 10 else COARSE
        sizes.append(min(sizes[-1] - 1, int(sizes[-1] / ratio)))
    return sizes


def most_false(
    pvalues: Floats, parts: Sequence[ComparedClass], confidence: float = CONFIDENCE, *, seed: int = 0
) -> Ints:
    """Of each question, at most how many of the questions with a p-value no higher than its own are mistakes: a bound
    that holds for all questions at once with probability `confidence`.

    pvalues: by which the questions are ranked
    parts: comparisons that together contain every question; a question that several contain, of several models, counts
        in the one where its p-value is lowest
    """
    lowest = np.full(len(pvalues), np.inf)
    for part in parts:
        np.minimum.at(lowest, part.questions, part.pvalues)
    taken = np.zeros(len(pvalues), dtype=bool)
    total = np.zeros(len(pvalues), dtype=np.int64)
    n_up_to = np.searchsorted(np.sort(pvalues), pvalues, side="right")
    order = np.argsort(pvalues, kind="stable")
    for part in parts:
        bound = false_bound(part.pvalues, part.n_known, (1 - confidence) / len(parts), seed=seed)
        own = (part.pvalues <= lowest[part.questions]) & ~taken[part.questions]
        taken[part.questions[own]] = True
        in_part = np.zeros(len(pvalues), dtype=bool)
        in_part[part.questions[own]] = True
        n_own = np.concatenate([[0], np.cumsum(in_part[order])])
        total += bound.of_cuts(np.sort(part.pvalues[own]))[n_own[n_up_to]]
    return total
