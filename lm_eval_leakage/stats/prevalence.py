"""Prevalence: what share of a benchmark has been seen, given how often a test flags seen and unseen questions? And the
gap: are flagged questions answered correctly more often than unflagged ones of the same difficulty?

Null hypothesis of a subject's p-value: none of its questions was seen. Limits: the rates of the test must hold for
this model and benchmark; if a test flags seen questions hardly more often than unseen ones, the interval is all of [0,
1]. Source: Rogan and Gladen (1978); Clopper and Pearson (1934); Benjamini and Hochberg (1995).

Flags favour short questions, natural orders and easy subjects, so flagged questions may be easier without any leakage.
The two groups are therefore compared within strata of similar difficulty (subject, length, whether another model
answers correctly), pooled by the weights of Mantel and Haenszel, which are those of a regression with one intercept
per stratum. Null hypothesis of the gap's p-value: within each stratum, being flagged and being answered correctly are
independent. Limits: a difference in difficulty within strata remains: where an easier question of the same stratum is
also flagged more often, there is a gap without leakage, which more questions make more certain. Strata by the answers
of reference models shrink it and do not remove it (docs/validity_sets.md). A stratum without flagged or without
unflagged questions is left out. Source: Mantel and Haenszel (1959); Sato, Greenland and Robins, Biometrics 45 (1989)
for the standard error; Fisher's exact test, stratified (Gart, 1970).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, betabinom, false_discovery_control, hypergeom

from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate

N_SIMULATED = 10_000
FEWEST_FOR_SHARE = 10  # tested, known-seen or known-unseen questions; fewer give no share and no interval


def rogan_gladen(
    n_flagged: int, n_tested: int, tpr: tuple[int, int], fpr: tuple[int, int], *, rng: np.random.Generator
) -> Estimate:
    """(flagged rate - FPR) / (TPR - FPR), cut to [0, 1].

    tpr, fpr: (flagged, tested) among known-seen and known-unseen questions

    The interval is that of a parametric bootstrap of all three rates, each drawn from its Beta posterior with
    Jeffreys' prior.
    """
    all_counts = ((n_flagged, n_tested), tpr, fpr)
    observed, sensitivity, false = (rng.beta(*_posterior(counts), N_SIMULATED) for counts in all_counts)
    gain = sensitivity - false
    shares = np.divide(observed - false, gain, out=rng.random(N_SIMULATED), where=gain > 0)
    low, high = np.quantile(np.clip(shares, 0, 1), (0.025, 0.975))
    own_gain = tpr[0] / tpr[1] - fpr[0] / fpr[1]
    if own_gain <= 0:
        return Estimate(low=0.0, high=1.0)
    share = float(np.clip((n_flagged / n_tested - fpr[0] / fpr[1]) / own_gain, 0, 1))
    return Estimate(share, low=float(low), high=float(high))


def exact_lower_bound(n_flagged: int, n_tested: int, null_rate: float) -> Estimate:
    """A lower bound on the share that was seen, from a test whose rate on unseen questions is known to be `null_rate`,
    such as max-order's 1 / n!: flags in excess of it are seen questions, however few of these the test finds.

    The lower end is exact at 97.5 % (Clopper-Pearson); the upper end is 1, since a seen question may not be flagged.
    """
    low = beta.ppf(0.025, n_flagged, n_tested - n_flagged + 1) if n_flagged else 0.0
    return Estimate(_in_excess(n_flagged / n_tested, null_rate), low=_in_excess(float(low), null_rate), high=1.0)


def calibrated_lower_bound(n_flagged: int, n_tested: int, fpr: tuple[int, int]) -> Estimate:
    """The same for a rate that is known only from unseen questions.

    fpr: (flagged, all) of the known-unseen questions

    The lower end is the smallest share of the tested questions that does not make this many flags improbable (2.5 %)
    if all seen questions are flagged and the number of others is beta-binomial, as in `calibrated_pvalue`.
    """
    n_seen = np.arange(n_flagged + 1)
    tail = betabinom.sf(n_flagged - n_seen - 1, n_tested - n_seen, *_posterior(fpr))
    low = int(np.argmax((tail > 0.025) | (n_seen == n_flagged)))
    return Estimate(_in_excess(n_flagged / n_tested, fpr[0] / fpr[1]), low=low / n_tested, high=1.0)


def _in_excess(rate: float, null_rate: float) -> float:
    return max(0.0, (rate - null_rate) / (1 - null_rate)) if null_rate < 1 else 0.0


def _posterior(flagged: tuple[int, int]) -> tuple[float, float]:
    """Parameters of the Beta posterior of a rate with Jeffreys' prior."""
    return flagged[0] + 0.5, flagged[1] - flagged[0] + 0.5


def calibrated_pvalue(flags: Sequence[bool], fpr: tuple[int, int]) -> float:
    """Probability, without leakage, of at least as many flags by a threshold with an empirical false-positive rate.

    fpr: (flagged, all) of the known-unseen questions

    The number of flagged unseen questions is beta-binomial: the rate has the Beta posterior with Jeffreys' prior,
    since it is known only from those questions.
    """
    return float(betabinom.sf(sum(flags) - 1, len(flags), *_posterior(fpr)))


def adjusted_by_subject(pvalues: Mapping[str, float]) -> dict[str, float]:
    """For the number of subjects (Benjamini-Hochberg), which are tested instead of questions because the p-value of a
    single question cannot be smaller than 1 / n!."""
    adjusted = false_discovery_control([*pvalues.values()]).tolist() if pvalues else []
    return dict(zip(pvalues, adjusted, strict=True))


def share_of(flags: Sequence[bool], tpr: tuple[int, int], fpr: tuple[int, int]) -> Estimate:
    """Prevalence from flags by a rule that flags these (flagged, all) of the known-seen and -unseen questions: an
    estimate, or a lower bound if too few seen questions are known."""
    if min(len(flags), fpr[1]) < FEWEST_FOR_SHARE:
        return UNKNOWN
    if tpr[1] < FEWEST_FOR_SHARE:  # a control has no seen questions, so its TPR is unknown
        return calibrated_lower_bound(sum(flags), len(flags), fpr)
    return rogan_gladen(sum(flags), len(flags), tpr, fpr, rng=np.random.default_rng(0))


@dataclass(frozen=True)
class Gap:
    """Accuracy on flagged minus accuracy on unflagged questions; NaN if no stratum has both.

    stderr: of the pooled difference
    pvalue: probability, by chance, of at least as many correct answers on flagged questions (one-sided, exact)
    """

    value: float
    stderr: float
    pvalue: float


def accuracy_gap(flagged: Sequence[bool], right: Sequence[bool], strata: Sequence[Hashable]) -> Gap:
    """All arguments are `(n_questions,)`; questions of one stratum have equal values in `strata`."""
    counts: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for flag, is_right, stratum in zip(flagged, right, strata, strict=True):
        counts[stratum][not flag] += 1
        counts[stratum][2 + (not flag)] += bool(is_right)
    compared = [tuple(own) for own in counts.values() if own[0] and own[1]]
    if not compared:
        return Gap(math.nan, math.nan, math.nan)
    weight = sum(n_flagged * n_others / (n_flagged + n_others) for n_flagged, n_others, _, _ in compared)
    gains = (
        (right_flagged * n_others - right_others * n_flagged) / (n_flagged + n_others)
        for n_flagged, n_others, right_flagged, right_others in compared
    )
    value = sum(gains) / weight
    variance = sum(_sato(value, *own) for own in compared) / weight**2
    stderr = math.sqrt(variance) if variance > 0 else math.nan  # 0 only if a few questions all agree
    return Gap(value, stderr, _exact_pvalue(compared))


def _sato(value: float, n_flagged: int, n_others: int, right_flagged: int, right_others: int) -> float:
    """A stratum's part of Sato's estimator of the variance, which is consistent for few large strata and for many
    small ones."""
    n, wrong_flagged, wrong_others = n_flagged + n_others, n_flagged - right_flagged, n_others - right_others
    between = n_flagged * n_others * (n_others - n_flagged) / 2
    p = (n_flagged**2 * right_others - n_others**2 * right_flagged + between) / n**2
    return value * p + (right_flagged * wrong_others + right_others * wrong_flagged) / (2 * n)


def _exact_pvalue(strata: Sequence[tuple[int, ...]]) -> float:
    """Given each stratum's numbers of flagged and of correct answers, their overlap is hypergeometric."""
    probabilities = np.ones(1)
    for n_flagged, n_others, right_flagged, right_others in strata:
        overlaps = np.arange(n_flagged + 1)
        right = right_flagged + right_others
        probabilities = np.convolve(probabilities, hypergeom.pmf(overlaps, n_flagged + n_others, right, n_flagged))
    return float(min(1.0, probabilities[sum(own[2] for own in strata) :].sum()))
