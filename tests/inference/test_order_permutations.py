"""Permutation tests within questions, against enumeration, arithmetic and simulated shuffles."""

from __future__ import annotations

from itertools import permutations, product
from math import factorial, sqrt

import numpy as np
import pytest
from scipy.stats import binom, chi2

from lm_eval_leakage.stats.order_sum import (
    DRAWN_ORDERS,
    SUM_DRAWS,
    adjusted_by_holm,
    both_tails,
    holm_level,
    monte_carlo_error,
    orders_of,
    place_test,
    standard_scores,
    sum_test,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("n_options", [1, 2, 3, 4, 5])
def test_up_to_five_options_every_order_is_listed_once_and_the_published_one_first(n_options) -> None:
    orders = orders_of(n_options, rng())
    assert tuple(orders[0]) == tuple(range(n_options))
    assert len({*map(tuple, orders)}) == len(orders) == factorial(n_options)


def test_of_more_options_some_orders_are_drawn() -> None:
    orders = orders_of(7, rng())
    assert orders.shape == (1 + DRAWN_ORDERS, 7)
    assert tuple(orders[0]) == tuple(range(7))
    assert all(sorted(order) == list(range(7)) for order in orders)


@pytest.mark.parametrize("value", [0.0, 1 / 3, 1e9 / 7])
def test_equal_values_cannot_be_standardised(value) -> None:
    assert standard_scores(np.full(6, value)) is None
    assert standard_scores(np.full(6, value) + np.array([0, 0, 0, 0, 0, 1e-12 * value])) is None


def test_the_pvalue_of_a_sum_is_that_of_all_combinations() -> None:
    lengths = [(1, 2, 4), (1, 5, 6), (7, 2, 3), (0, 0, 1)]
    values = [
        standard_scores(np.array([own[b] + 2 * own[c] for _, b, c in permutations(range(3))])) for own in lengths
    ]
    published = sum(own[0] for own in values)
    sums = np.array([sum(chosen) for chosen in product(*values)])
    exact = np.mean(abs(sums) >= abs(published) - 1e-9)
    z, pvalue = sum_test(values, rng())
    assert z == pytest.approx(published / sqrt(4))
    assert pvalue == pytest.approx(exact, abs=4 * monte_carlo_error(exact) + 1 / SUM_DRAWS)


def test_ties_with_the_published_sum_count_against_it() -> None:
    _, pvalue = sum_test([np.array([1.0, -1.0])] * 2, rng())
    assert pvalue == pytest.approx(0.5, abs=0.03)  # both or neither: 2 of 4
    assert sum_test([np.array([1.0, -1.0])], rng())[1] == 1.0


def test_places_have_the_chi_square_of_arithmetic_and_its_distribution() -> None:
    places = [(place, 4) for place, n in enumerate((30, 20, 25, 25)) for _ in range(n)]
    places += [(place, 2) for place, n in enumerate((60, 40)) for _ in range(n)]
    found, freedom, pvalue = place_test(places, rng())
    assert (found, freedom) == (pytest.approx((25 + 25) / 25 + (100 + 100) / 50), 4)
    assert pvalue == pytest.approx(chi2.sf(6, 4), abs=0.02)


@pytest.mark.parametrize("n_found", [0, 3, 5, 10])
def test_tails_of_equal_rates_are_binomial(n_found) -> None:
    above, below = binom.sf(n_found - 1, 10, 0.3), binom.cdf(n_found, 10, 0.3)
    assert both_tails(n_found, [0.3] * 10) == pytest.approx(min(1, 2 * min(above, below)))


def test_holm_multiplies_the_smallest_by_the_number_and_never_decreases() -> None:
    assert adjusted_by_holm([0.01, 0.04, 0.03, 0.9]) == pytest.approx([0.04, 0.09, 0.09, 0.9])
    assert adjusted_by_holm([0.5, 0.5]) == [1.0, 1.0]
    assert adjusted_by_holm([]) == []


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_level_of_holms_method_rejects_what_the_adjusted_pvalues_reject(n) -> None:
    """And another p-value in the place of one that is not rejected would be, at this level and not above."""
    rng = np.random.default_rng(n)
    for pvalues in rng.beta(0.3, 1, (300, n)):
        level = holm_level(list(pvalues), 0.1)
        rejected = [one <= 0.1 for one in adjusted_by_holm(list(pvalues))]
        assert [pvalue <= level for pvalue in pvalues] == rejected
        for place in [place for place in range(n) if not rejected[place]]:
            for changed, expected in ((level * 0.999, True), (level * 1.001, False)):
                others = [*pvalues[:place], changed, *pvalues[place + 1 :]]
                assert (adjusted_by_holm(others)[place] <= 0.1) == expected
