from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, t

from lm_eval_leakage.detectors.shared_likelihood import SharedLikelihood, ttest_pvalue
from lm_eval_leakage.records import Answered, Question
from lm_eval_leakage.stats.order_sum import SUM_DRAWS

SHARD = Question("shard", "", ("one", "two", "three"))


def permutation_pvalue(shards) -> float:
    """As in the table."""
    (row,) = [row for row in SharedLikelihood.rows if row.name == "permutation_pvalue"]
    return row.compute([judged(*own) for own in shards])


def judged(*loglikelihoods: float, level: float = 0.05):
    (evidence,) = SharedLikelihood(level).judge([Answered(SHARD, (), loglikelihoods)])
    return evidence


def test_the_gain_is_that_over_the_mean_of_the_other_orders() -> None:
    assert judged(-10.0, -12.0, -16.0).gain == pytest.approx(4.0)


def test_a_shard_is_flagged_by_its_rank_and_a_tie_counts_against() -> None:
    others = [-20.0 - i for i in range(25)]
    assert judged(-10.0, *others).flagged
    assert judged(-10.0, *others).pvalue == pytest.approx(1 / 26)
    assert not judged(-20.0, *others).flagged
    assert judged(-20.0, *others).pvalue == pytest.approx(2 / 26)


@pytest.mark.parametrize(("level", "n_orders", "flagged"), [(0.05, 19, 0), (0.05, 20, 1), (0.29, 100, 29)])
def test_the_null_rate_is_the_most_that_the_level_allows(level: float, n_orders: int, flagged: int) -> None:
    """In floating point, 0.29 * 100 is 28.999999999999996."""
    assert judged(*(-float(i) for i in range(n_orders)), level=level).null_rate == flagged / n_orders
    assert judged(*(-float(i) for i in range(n_orders)), level=level).flagged is (flagged > 0)


def test_the_null_rate_is_that_of_random_ranks() -> None:
    rng = np.random.default_rng(0)
    flags = [judged(*rng.normal(size=41), level=0.05).flagged for _ in range(4000)]
    assert judged(*rng.normal(size=41)).null_rate == 2 / 41
    assert binomtest(sum(flags), len(flags), 2 / 41).pvalue > 1e-3


def test_the_t_test_is_students_one_sided() -> None:
    gains = [3.0, 1.0, -1.0, 2.0]
    mean, deviation = 1.25, math.sqrt(sum((g - 1.25) ** 2 for g in gains) / 3)
    assert ttest_pvalue(gains) == pytest.approx(t.sf(mean / (deviation / 2), df=3))
    assert ttest_pvalue([-gain for gain in gains]) == pytest.approx(1 - ttest_pvalue(gains))
    assert all(math.isnan(ttest_pvalue(undefined)) for undefined in ([], [1.0], [0.0, 0.0]))
    assert ttest_pvalue([1.0, 3.0]) == pytest.approx(t.sf(2, df=1))  # mean 2, error sqrt(2) / sqrt(2)


def test_the_permutation_test_agrees_with_enumeration() -> None:
    rng = np.random.default_rng(1)
    shards = [rng.normal(size=n) for n in (2, 3, 4, 5, 3)]
    weights = [np.exp((own - own.mean()) / own.std()) for own in shards]
    sums = [sum(chosen) for chosen in product(*weights)]
    exact = np.mean([total >= sums[0] - 1e-9 for total in sums])
    assert permutation_pvalue(shards) == pytest.approx(exact, abs=5 * math.sqrt(0.25 / SUM_DRAWS))


def test_ties_count_against_leakage_and_equal_orders_say_nothing() -> None:
    tied = [[0.0, 0.0, -1.0]] * 9
    assert permutation_pvalue(tied) > 0.01
    assert math.isnan(permutation_pvalue([[0.0, 0.0]] * 9))
    assert math.isnan(permutation_pvalue([]))


def test_the_permutation_test_rejects_at_its_level_without_leakage() -> None:
    rng = np.random.default_rng(2)
    pvalues = [permutation_pvalue(rng.standard_t(3, size=(8, 6))) for _ in range(500)]
    assert binomtest(sum(p <= 0.1 for p in pvalues), 500, 0.1).pvalue > 1e-3


def test_both_tests_of_the_data_set_find_a_small_gain_in_many_shards() -> None:
    """One standard deviation of an order's log-likelihood, 50 shards, 250 permutations as in Oren et al."""
    rng = np.random.default_rng(3)
    shards = rng.normal(size=(50, 251))
    shards[:, 0] += 1
    gains = (shards[:, 0] - shards[:, 1:].mean(axis=1)).tolist()
    assert ttest_pvalue(gains) < 1e-4
    assert permutation_pvalue(shards) <= 1e-4
