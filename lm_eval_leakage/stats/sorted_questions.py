"""Tests whether the order of neighbouring questions in a benchmark's file can be inferred from their texts alone.

A model may prefer such an order without having seen the file, and a test of question order then rejects. Null
hypothesis: the questions of each shard were shuffled. Then lengths and the alphabet rise as often as they fall
(Kendall's S, summed over shards, two-sided; ties count as neither, which makes it conservative), and neighbours are
no more alike than other pairs of their shard (Jaccard index of their words; Monte Carlo over the orders of each
shard). Limits: an order that only understanding reveals, such as rising difficulty, passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr

from lm_eval_leakage.stats.pooling import Floats

SORTED_LEVEL = 0.01  # of all three tests together (Bonferroni)
N_SHUFFLED = 2999


def sorted_properties(shards: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the properties by which the shards' questions are not in a random order, with adjusted p-values."""
    pvalues = {
        "length": trend_pvalue(shards, len),
        "alphabet": trend_pvalue(shards, str.casefold),
        "likeness of neighbours": likeness_pvalue(shards),
    }
    adjusted = {name: min(1.0, len(pvalues) * pvalue) for name, pvalue in pvalues.items()}
    return {name: pvalue for name, pvalue in adjusted.items() if pvalue <= SORTED_LEVEL}


def trend_pvalue(shards: Sequence[Sequence[str]], key: Callable[[str], Any]) -> float:
    """Return the two-sided p-value of the test whether a property of the texts rises or falls within shards."""
    total = variance = 0.0
    for shard in shards:
        keys, n = [key(text) for text in shard], len(shard)
        total += sum((keys[j] > keys[i]) - (keys[j] < keys[i]) for i in range(n) for j in range(i + 1, n))
        variance += n * (n - 1) * (2 * n + 5) / 18
    return float(2 * ndtr(-abs(total) / math.sqrt(variance))) if variance else 1.0


def likeness_pvalue(shards: Sequence[Sequence[str]]) -> float:
    """Return the one-sided p-value of the test whether neighbours share more words than other pairs of their shard."""
    rng = np.random.default_rng(0)
    observed, drawn = 0.0, np.zeros(N_SHUFFLED)
    for shard in shards:
        likeness = _likeness(shard)
        observed += float(np.diagonal(likeness, 1).sum())
        orders = rng.permuted(np.tile(np.arange(len(shard)), (N_SHUFFLED, 1)), axis=1)
        drawn += likeness[orders[:, :-1], orders[:, 1:]].sum(axis=1)
    return float((1 + (drawn >= observed - 1e-9).sum()) / (N_SHUFFLED + 1))


def _likeness(texts: Sequence[str]) -> Floats:
    """Return the Jaccard index of the words of each pair of texts, `(n_texts, n_texts)`."""
    words = [set(text.casefold().split()) for text in texts]
    return np.array([[len(first & second) / max(1, len(first | second)) for second in words] for first in words])
