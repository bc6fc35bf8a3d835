"""Sets of questions by conformal p-values: which has the model seen, at a target false discovery rate; at most how
many of those ranked highest are mistakes; and which can be kept as clean for several models at once.

Null hypothesis of a question's p-value: it is exchangeable with the known-unseen questions, so that its score is as
likely as any of theirs to be the highest (of a kept question: with the known-seen questions of at least one model; the
highest p-value over the models is valid whichever of them has seen it, and however their scores depend on each other).
Limits: questions that differ in style, length or topic from the known ones violate it, which
`known_scores.exchangeability` tests but cannot rule out. A question that a model saw less often than the known-seen
ones looks unseen and is kept; no rule that reads scores can prevent that, and scores of unseen questions cannot
replace known-seen ones: they tell how many questions were flagged by mistake, never how many were missed.

Sets: Benjamini-Hochberg on the p-values, scaled by an estimate of the share of questions for which the null hypothesis
holds: for unseen questions Storey's; for seen ones the count above a threshold over the share of a uniform
distribution above it, since few clean questions have high p-values. That threshold goes down from 1 for as long as
that lowers the estimate, so that it depends only on p-values above it.

Mistakes, for every cut at once, so that the cut may be chosen after looking at them: p-values of exchangeable
questions depend on each other only through the known ones: without ties, each number of them between two known scores
is that of a Polya urn, whatever the scores' distribution; ties can only lower the counts. Urns are drawn, and an
envelope is taken that the counts at or below every threshold stay in with the requested probability. If there were k
exchangeable questions, more than k - envelope(t) would have p-values above t; the numbers k that the p-values exclude
in this way are dropped within the same event, at no cost. Numbers between two sizes of a grid count as the greater
one.

Source: PTDI (arXiv 2510.09717); Storey, Taylor and Siegmund (2004); Bates et al. (2023); for several models jointly,
Bonferroni over models, and joint envelope conformal selection, Zeng, Wei and Liu (arXiv 2605.21543), known to us by
its abstract, so that the details are ours; everywhere valid bounds, Song, Jin and Candès (arXiv 2605.20726); the urn,
Marandon et al. (2024); counts of sets that are no cut, Goeman and Solari (2011). The shape of the envelope and the
refinement are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc
from scipy.stats import false_discovery_control

from lm_eval_leakage.stats.pooling import Floats

FEWEST_TO_NAME = 10  # questions; a set is not chosen from fewer
STOREY = 0.5  # Storey's lambda: p-values above it are taken to be those of unseen questions


@dataclass(frozen=True)
class Identified:
    """flagged: whether each question is in the set, in which at most a share `level` is expected to be unseen
    pvalues: conformal p-value of each question
    unseen_share: estimated share of unseen questions
    level: the target false discovery rate
    """

    flagged: tuple[bool, ...]
    pvalues: tuple[float, ...]
    unseen_share: float
    level: float


def conformal_pvalues(scores: Sequence[float], unseen: Sequence[float]) -> Floats:
    """(1 + known-unseen questions that score at least as high) / (1 + known-unseen questions), for each score."""
    if not len(unseen):
        raise ValueError("there are no known-unseen questions; a conformal p-value needs at least one")
    ordered = np.sort(np.asarray(unseen, dtype=float))
    at_least_as_high = len(ordered) - np.searchsorted(ordered, np.asarray(scores, dtype=float), side="left")
    pvalues: Floats = (1 + at_least_as_high) / (1 + len(ordered))
    return pvalues


def unseen_share(pvalues: Sequence[float]) -> float:
    """Storey's estimate, biased upwards: only unseen questions have p-values above 1/2, and half of them do."""
    above = sum(pvalue > STOREY for pvalue in pvalues)
    return min(1.0, (1 + above) / (len(pvalues) * (1 - STOREY))) if len(pvalues) else 1.0


def joint(pvalues: Sequence[Sequence[float] | Floats]) -> Floats:
    """Of each question, the smallest p-value over the models times their number (Bonferroni), which is valid however
    the models depend on each other.

    pvalues: `(n_models, n_questions)`
    """
    each = np.asarray(pvalues, dtype=float)
    least: Floats = np.minimum(1.0, len(each) * each.min(axis=0))
    return least


def from_pvalues(pvalues: Floats, level: float) -> Identified:
    """The questions that stand out from the known-unseen ones, by the Benjamini-Hochberg procedure, whose p-values are
    scaled by the estimated share of unseen questions.

    level: target false discovery rate, the expected share of unseen questions among the flagged
    """
    if isinstance(level, bool) or not 0 < level < 1:
        raise ValueError(f"level is {level!r}; the target false discovery rate must be above 0 and below 1")
    share = unseen_share(pvalues.tolist())
    return Identified(tuple(_rejected(pvalues, share, level).tolist()), tuple(pvalues.tolist()), share, level)


def _rejected(pvalues: Floats, share: float, level: float) -> NDArray[np.bool_]:
    """By Benjamini and Hochberg's procedure, with p-values scaled by the share of those that are true."""
    adjusted = false_discovery_control(pvalues) * share if len(pvalues) else pvalues
    return np.asarray(adjusted <= level)


Ints = NDArray[np.int64]

CONFIDENCE = 0.95
N_URNS = 3000  # per envelope
URN_MARGIN = 2  # standard errors by which fewer drawn urns are outside than the level allows, as these are a sample
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


def false_bound(pvalues: Floats, n_known: int, level: float) -> FalseBound:
    """The bound for p-values of questions that were all compared with the same `n_known` scores.

    level: probability that it fails somewhere
    """
    ranks = _ranks(n_known)
    thresholds = (ranks + 0.5) / (n_known + 1)  # between two possible p-values
    n_above = len(pvalues) - np.searchsorted(np.sort(pvalues), thresholds, side="right")
    most, n_null = np.zeros(len(ranks), dtype=np.int64), 0
    sizes = _sizes(len(pvalues))
    for size, greatest_below in zip(sizes, [*sizes[1:], 0], strict=True):
        envelope = null_envelope(size, n_known, level)
        n_possible = min(size, int((n_above + envelope).min()))
        if n_possible > greatest_below:  # some number in this step of the grid is possible
            most, n_null = np.maximum(most, envelope), max(n_null, n_possible)
    return FalseBound(thresholds, most, n_null)


@lru_cache(maxsize=4096)
def null_envelope(n_null: int, n_known: int, level: float) -> Ints:
    """For each rank j of `_ranks(n_known)`, a number that the p-values of `n_null` exchangeable questions at or below
    j / (n_known + 1) exceed for no j, with probability 1 - `level` or more."""
    ranks = _ranks(n_known)
    gaps = np.diff(ranks, prepend=0, append=n_known + 1)
    rng = np.random.default_rng(0)
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


def most_false(pvalues: Floats, parts: Sequence[ComparedClass], confidence: float = CONFIDENCE) -> Ints:
    """Of each question, at most how many of the questions with a p-value no higher than its own are mistakes: a bound
    that holds for all questions at once with probability `confidence`.

    pvalues: by which the questions are ranked
    parts: comparisons that together contain every question; a question that several contain, of several models, counts
        in the one where its p-value is lowest
    """
    lowest = np.full(len(pvalues), np.inf)
    counted_in = np.full(len(pvalues), -1)
    for place, part in enumerate(parts):
        lower = part.questions[part.pvalues < lowest[part.questions]]
        np.minimum.at(lowest, part.questions, part.pvalues)
        counted_in[lower] = place
    total = np.zeros(len(pvalues), dtype=np.int64)
    n_up_to = np.searchsorted(np.sort(pvalues), pvalues, side="right")
    order = np.argsort(pvalues, kind="stable")
    for place, part in enumerate(parts):
        bound = false_bound(part.pvalues, part.n_known, (1 - confidence) / len(parts))
        n_own = np.concatenate([[0], np.cumsum(counted_in[order] == place)])
        total += bound.of_cuts(np.sort(lowest[counted_in == place]))[n_own[n_up_to]]
    return total


FEWEST_SEEN = 19  # known-seen questions of a model; with fewer, no p-value reaches 5 %
THRESHOLDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True)
class KeptQuestions:
    """kept: whether each question is in the set
    pvalues: of each question, that some model has seen it
    most_seen: at most how many of the kept were seen by some model, with probability CONFIDENCE
    target_rate: expected rate of those among the kept, at most
    """

    kept: tuple[bool, ...]
    pvalues: tuple[float, ...]
    most_seen: int
    target_rate: float

    @property
    def n_kept(self) -> int:
        return sum(self.kept)


def keep(by_model: Sequence[Floats], n_seen: Sequence[int], target_rate: float) -> KeptQuestions:
    """The largest set that is clean for all models at the target rate; empty if the scores are too weak for one.

    by_model: `seen_pvalues` of the same questions by each model
    n_seen: number of known-seen questions of each model
    """
    pvalues: Floats = np.max(by_model, axis=0)
    rate = target_rate + 1e-9  # one that is reached exactly is not exceeded
    kept = _rejected(pvalues, seen_share(pvalues), rate)
    level = (1 - CONFIDENCE) / len(by_model)
    most_seen = sum(false_bound(own, n, level).among(own[kept]) for own, n in zip(by_model, n_seen, strict=True))
    most_seen = min(most_seen, int(kept.sum()))
    return KeptQuestions(tuple(kept.tolist()), tuple(pvalues.tolist()), most_seen, target_rate)


def check_target_rate(target_rate: float) -> None:
    if isinstance(target_rate, bool) or not 0 < target_rate < 1:
        raise ValueError(
            f"target_rate is {target_rate!r}; the target rate of contaminated questions among the kept must be above "
            "0 and below 1, such as 0.1"
        )


def seen_pvalues(scores: Floats | Sequence[float], seen: Sequence[float]) -> Floats:
    """(1 + known-seen questions that score at least as low) / (1 + known-seen questions), for each score."""
    return conformal_pvalues((-np.asarray(scores, dtype=float)).tolist(), (-np.asarray(seen, dtype=float)).tolist())


def seen_share(pvalues: Floats) -> float:
    """Upper estimate of the share of questions that some model has seen, from the highest p-values."""
    lowest = np.inf
    for threshold in THRESHOLDS:
        estimate = float((1 + (pvalues > threshold).sum()) / (len(pvalues) * (1 - threshold)))
        if estimate >= lowest:
            break  # this threshold is the chosen one: what is below it has not been looked at
        lowest = estimate
    return min(1.0, estimate)
