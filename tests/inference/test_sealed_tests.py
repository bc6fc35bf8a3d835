from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from lm_eval_leakage.stats.order_sum import SHARES
from lm_eval_leakage.stats.sealed import fewest_seen, hits_log_evalue, hits_pvalue

RATES = [1 / 2, 1 / 3, 1 / 3, 1 / 4, 1 / 5]


def probability(hits: tuple[bool, ...], rates: list[float]) -> float:
    return math.prod(rate if hit else 1 - rate for hit, rate in zip(hits, rates, strict=True))


def outcomes(n: int) -> list[tuple[bool, ...]]:
    return list(product([False, True], repeat=n))


def test_the_p_value_is_at_most_any_level_with_at_most_that_probability() -> None:
    found = [(hits_pvalue(hits, RATES), probability(hits, RATES)) for hits in outcomes(5)]
    for level in [pvalue for pvalue, _ in found]:
        assert math.fsum(own for pvalue, own in found if pvalue <= level) <= level + 1e-12


def test_equal_rates_give_the_binomial_tail_and_no_questions_give_1() -> None:
    hits = [True] * 14 + [False] * 6
    assert hits_pvalue(hits, [0.5] * 20) == pytest.approx(binomtest(14, 20, 0.5, alternative="greater").pvalue)
    assert hits_pvalue([], []) == 1
    assert math.isnan(hits_log_evalue([], []))


def test_the_mean_of_the_e_value_by_chance_is_1_and_less_if_hits_are_rarer() -> None:
    evalues = {hits: math.exp(hits_log_evalue(hits, RATES)) for hits in outcomes(5)}
    assert math.fsum(probability(hits, RATES) * own for hits, own in evalues.items()) == pytest.approx(1)
    rarer = [0.9 * rate for rate in RATES]
    assert math.fsum(probability(hits, rarer) * own for hits, own in evalues.items()) < 1


def test_the_e_value_is_the_mean_over_shares_of_the_likelihood_ratio() -> None:
    hits, rates = [True, False, True], [1 / 2, 1 / 2, 1 / 4]
    ratios = [(1 + s * (2 - 1)) * (1 - s) * (1 + s * (4 - 1)) for s in SHARES]
    assert hits_log_evalue(hits, rates) == pytest.approx(math.log(np.mean(ratios)))


@settings(max_examples=30)
@given(st.sets(st.integers(0, 4)))
def test_the_lower_bound_is_above_the_number_of_seen_questions_in_at_most_1_of_20(seen: set[int]) -> None:
    """Whichever questions were seen, if all of them are hit."""
    too_high = math.fsum(
        probability(hits, [float(place in seen) or rate for place, rate in enumerate(RATES)])
        for hits in outcomes(5)
        if fewest_seen(sum(hits), RATES) > len(seen)
    )
    assert too_high <= 0.05


def test_the_lower_bound_is_the_smallest_plausible_number_by_search_over_all_subsets() -> None:
    def plausible(n_hits: int, n_seen: int) -> bool:
        tails = []
        for seen in combinations(range(5), n_seen):
            rates = [1.0 if place in seen else rate for place, rate in enumerate(RATES)]
            tails.append(math.fsum(probability(hits, rates) for hits in outcomes(5) if sum(hits) >= n_hits))
        return max(tails) > 0.05

    for n_hits in range(6):
        assert fewest_seen(n_hits, RATES) == next(m for m in range(6) if plausible(n_hits, m))


def test_the_lower_bound_of_many_equal_rates_is_found_by_the_binomial() -> None:
    n, n_hits = 200, 130
    expected = next(m for m in range(n) if binom.sf(n_hits - m - 1, n - m, 0.5) > 0.05)
    assert fewest_seen(n_hits, [0.5] * n) == expected
    assert fewest_seen(100, [0.5] * n) == 0
    assert fewest_seen(0, []) == 0
