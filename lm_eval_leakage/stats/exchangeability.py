"""Tests whether questions that a model cannot have seen are of the same kind as those of a benchmark.

Null hypothesis: both groups are random draws from one pool, so that every split of them into two groups of these sizes
is equally likely. Each property is tested by the Kolmogorov-Smirnov distance between both groups, whose p-value is its
rank among random splits; the p-values are adjusted for the number of properties. Limits: with few questions a
difference may go unnoticed; equal properties do not prove that a model finds both equally difficult.
Source: Holm (1979); permutation p-values as in Phipson and Smyth (2010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from lm_eval_leakage.records import Described
from lm_eval_leakage.stats.order_sum import adjusted_by_holm
from lm_eval_leakage.texts import brief

N_SPLITS = 999  # random splits, so that the smallest p-value is 1 / 1000
FEWEST = 20  # questions of either kind
DIFFERENT_AT = 0.05  # chance that questions of the same kind are taken for different ones


@dataclass(frozen=True)
class Likeness:
    """One property of both groups.

    pvalue: of its own test; adjusted: for the number of properties
    unseen, asked: a typical value of each group: the median, or the mean of a share
    """

    name: str
    pvalue: float
    adjusted: float
    unseen: float
    asked: float


def exchangeability(
    unseen: Mapping[str, Sequence[float]], asked: Mapping[str, Sequence[float]], *, rng: np.random.Generator
) -> list[Likeness]:
    """Every property that both groups, which must not be empty, have and that varies, the most different first."""
    shared = [name for name in unseen if name in asked]
    names = [name for name in shared if len({*unseen[name], *asked[name]}) > 1]
    pvalues = [_pvalue(unseen[name], asked[name], rng) for name in names]
    found = [
        Likeness(name, pvalue, adjusted, _typical(unseen[name]), _typical(asked[name]))
        for name, pvalue, adjusted in zip(names, pvalues, adjusted_by_holm(pvalues), strict=True)
    ]
    return sorted(found, key=lambda one: one.pvalue)


def _pvalue(unseen: Sequence[float], asked: Sequence[float], rng: np.random.Generator) -> float:
    pooled = np.array([*unseen, *asked], dtype=float)
    order = np.argsort(pooled, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(pooled[order]) > 0, True))  # the last place of each run of equal values
    labels = order < len(unseen)

    def distance(is_unseen: NDArray[np.bool_]) -> float:
        """Between the distribution functions of both groups, from labels in the order of the values."""
        below = np.cumsum(is_unseen)[ends]
        return float(np.abs(below / len(unseen) - (ends + 1 - below) / len(asked)).max())

    observed = distance(labels) - 1e-12
    return (1 + sum(distance(rng.permuted(labels)) >= observed for _ in range(N_SPLITS))) / (1 + N_SPLITS)


def _typical(values: Sequence[float]) -> float:
    return fmean(values) if all(0 <= value <= 1 for value in values) else float(median(values))


def why_not_comparable(unseen: Described, asked: Described) -> str | None:
    """Return why the unseen questions say nothing about the asked ones, as a sentence with the remedy; None if they
    do."""
    return overlap(unseen, asked) or too_few(unseen, asked) or of_another_kind(unseen, asked)


def overlap(unseen: Described, asked: Described) -> str | None:
    """Whether questions that the model is said not to have seen are among the asked ones."""
    both = [digest for digest in unseen.stems if digest in asked.stems]
    if not both:
        return None
    return (
        f"{len(both)} of the {len(unseen)} questions that the model is said not to have seen are in the benchmark, "
        f"such as {brief(asked.stems[both[0]])}; leave them out of the unseen questions, which must be private or "
        "newly written"
    )


def too_few(unseen: Described, asked: Described) -> str | None:
    for described, what in ((unseen, "unseen questions"), (asked, "asked questions")):
        if len(described) < FEWEST:
            return (
                f"{len(described)} {what} are too few to be compared with the other questions; at least {FEWEST} are "
                f"needed of either kind, so {'write' if described is unseen else 'ask'} more"
            )
    return None


def of_another_kind(unseen: Described, asked: Described) -> str | None:
    """Whether the unseen questions differ in a property that leakage does not change."""
    found = exchangeability(unseen.properties, asked.properties, rng=np.random.default_rng(0))
    different = [one for one in found if one.adjusted <= DIFFERENT_AT]
    if not different:
        return None
    return (
        f"the unseen questions are of another kind than those that were asked: {'; '.join(map(_shown, different))} "
        "(p-values adjusted for the number of properties); choose or write unseen questions like those of the "
        "benchmark, or ask only benchmark questions like the unseen ones"
    )


def _shown(one: Likeness) -> str:
    return f"{one.name} {_short(one.unseen)} instead of {_short(one.asked)} (p = {one.adjusted:.2g})"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
