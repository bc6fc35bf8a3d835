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
FEWEST = 20  # questions of either group
DIFFERENT_AT = 0.05  # probability of calling questions of one kind different


@dataclass(frozen=True)
class Likeness:
    """A property that both groups have; the test of its difference says how alike they are.

    name: name of the property
    pvalue: p-value of its test
    adjusted: the p-value adjusted for the number of properties
    unseen, benchmark: a typical value of each group: the median, or the mean of a share
    """

    name: str
    pvalue: float
    adjusted: float
    unseen: float
    benchmark: float


def exchangeability(
    unseen: Mapping[str, Sequence[float]], benchmark: Mapping[str, Sequence[float]], *, rng: np.random.Generator
) -> list[Likeness]:
    """Return every property that both groups have and that varies, the most different first.

    unseen, benchmark: values of each property, one per question; neither group may be empty
    """
    shared = [name for name in unseen if name in benchmark]
    names = [name for name in shared if len({*unseen[name], *benchmark[name]}) > 1]
    pvalues = [_pvalue(unseen[name], benchmark[name], rng) for name in names]
    properties = [
        Likeness(name, pvalue, adjusted, _typical(unseen[name]), _typical(benchmark[name]))
        for name, pvalue, adjusted in zip(names, pvalues, adjusted_by_holm(pvalues), strict=True)
    ]
    return sorted(properties, key=lambda likeness: likeness.pvalue)


def _pvalue(unseen: Sequence[float], benchmark: Sequence[float], rng: np.random.Generator) -> float:
    """Return the permutation p-value of the Kolmogorov-Smirnov distance between both groups."""
    pooled = np.array([*unseen, *benchmark], dtype=float)
    order = np.argsort(pooled, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(pooled[order]) > 0, True))  # the last place of each run of equal values
    labels = order < len(unseen)

    def distance(is_unseen: NDArray[np.bool_]) -> float:
        """Return the distance of the distribution functions of both groups, from labels in the order of the values."""
        below = np.cumsum(is_unseen)[ends]
        return float(np.abs(below / len(unseen) - (ends + 1 - below) / len(benchmark)).max())

    observed = distance(labels) - 1e-12
    return (1 + sum(distance(rng.permuted(labels)) >= observed for _ in range(N_SPLITS))) / (1 + N_SPLITS)


def _typical(values: Sequence[float]) -> float:
    """Return the mean of a share, or the median of any other property."""
    return fmean(values) if all(0 <= value <= 1 for value in values) else float(median(values))


def why_not_comparable(unseen: Described, benchmark: Described) -> str | None:
    """Return why the unseen questions cannot be compared with the benchmark's, with the remedy; None if they can."""
    return overlap(unseen, benchmark) or too_few(unseen, benchmark) or of_another_kind(unseen, benchmark)


def overlap(unseen: Described, benchmark: Described) -> str | None:
    """Return the problem, as a sentence, if questions of the benchmark are among the unseen ones; else None."""
    shared = [digest for digest in unseen.stems if digest in benchmark.stems]
    if not shared:
        return None
    return (
        f"{len(shared)} of the {len(unseen)} questions that the model is said not to have seen are in the benchmark, "
        f"such as {brief(benchmark.stems[shared[0]])}; leave them out of the unseen questions, which must be private "
        "or newly written"
    )


def too_few(unseen: Described, benchmark: Described) -> str | None:
    """Return the problem, as a sentence, if either group has too few questions; else None."""
    for described, what in ((unseen, "unseen questions"), (benchmark, "questions of the benchmark")):
        if len(described) < FEWEST:
            return (
                f"{len(described)} {what} are too few to be compared with the other questions; at least {FEWEST} are "
                f"needed of either kind, so {'write' if described is unseen else 'draw'} more"
            )
    return None


def of_another_kind(unseen: Described, benchmark: Described) -> str | None:
    """Return the problem, as a sentence, if the groups differ in a property that is unrelated to leakage; else
    None."""
    properties = exchangeability(unseen.properties, benchmark.properties, rng=np.random.default_rng(0))
    different = [likeness for likeness in properties if likeness.adjusted <= DIFFERENT_AT]
    if not different:
        return None
    return (
        f"the unseen questions are of another kind than those of the benchmark: {'; '.join(map(_shown, different))} "
        "(p-values adjusted for the number of properties); choose or write unseen questions like those of the "
        "benchmark, or check only benchmark questions like the unseen ones"
    )


def _shown(likeness: Likeness) -> str:
    unseen, benchmark = _short(likeness.unseen), _short(likeness.benchmark)
    return f"{likeness.name} {unseen} instead of {benchmark} (p = {likeness.adjusted:.2g})"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
