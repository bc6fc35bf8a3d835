"""Are known-unseen questions of the same kind as those that were asked?

Null hypothesis: both are random draws from one pool, so that every split of them into two groups of these sizes is
equally likely. Each property is tested by the Kolmogorov-Smirnov distance between both groups, whose p-value is its
rank among random splits; the p-values are adjusted for the number of properties (Holm). Limits: with few questions a
difference may go unnoticed; equal properties do not prove that a model finds both equally difficult. Source: Holm
(1979); permutation p-values as in Phipson and Smyth (2010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from lm_eval_leakage.inference.pooling import Floats

N_SPLITS = 999  # random splits, so that the smallest p-value is 1 / 1000
LABELS_AT_ONCE = 4_000_000


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
    """Every property that both groups have and that varies, the most different first. Raises ValueError for an empty
    group."""
    shared = [name for name in unseen if name in asked]
    names = [name for name in shared if len({*unseen[name], *asked[name]}) > 1]
    pvalues = [_pvalue(unseen[name], asked[name], rng) for name in names]
    found = [
        Likeness(name, pvalue, adjusted, _typical(unseen[name]), _typical(asked[name]))
        for name, pvalue, adjusted in zip(names, pvalues, _holm(pvalues), strict=True)
    ]
    return sorted(found, key=lambda one: one.pvalue)


def _pvalue(unseen: Sequence[float], asked: Sequence[float], rng: np.random.Generator) -> float:
    if not (len(unseen) and len(asked)):
        raise ValueError("one of the groups has no questions; a comparison needs at least one in each")
    pooled = np.array([*unseen, *asked], dtype=float)
    order = np.argsort(pooled, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(pooled[order]) > 0, True))  # the last place of each run of equal values
    labels = order < len(unseen)
    (observed,) = _distances(labels[None], ends)
    at_least, at_once = 0, max(1, LABELS_AT_ONCE // len(labels))
    for start in range(0, N_SPLITS, at_once):
        split = rng.permuted(np.tile(labels, (min(at_once, N_SPLITS - start), 1)), axis=1)
        at_least += int((_distances(split, ends) >= observed - 1e-12).sum())
    return (1 + at_least) / (1 + N_SPLITS)


def _distances(is_unseen: NDArray[np.bool_], ends: NDArray[np.int64]) -> Floats:
    """The largest distance between the distribution functions of both groups, for each row of labels in the order of
    the values."""
    n, n_unseen = is_unseen.shape[1], int(is_unseen[0].sum())
    below = np.cumsum(is_unseen, axis=1, dtype=np.int32)[:, ends]
    apart: Floats = np.abs(below / n_unseen - (ends + 1 - below) / (n - n_unseen)).max(axis=1)
    return apart


def _holm(pvalues: Sequence[float]) -> list[float]:
    """Adjusted so that the chance of any false rejection is at most the level, however the tests depend."""
    adjusted, highest = [0.0] * len(pvalues), 0.0
    for rank, place in enumerate(sorted(range(len(pvalues)), key=pvalues.__getitem__)):
        highest = max(highest, min(1.0, pvalues[place] * (len(pvalues) - rank)))
        adjusted[place] = highest
    return adjusted


def _typical(values: Sequence[float]) -> float:
    return fmean(values) if all(0 <= value <= 1 for value in values) else float(median(values))
