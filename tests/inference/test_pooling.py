from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, sem

from lm_eval_leakage.stats.pooling import NAN, Estimate, accuracy_in_interval, mean_and_stderr, poisson_binomial_tail


def enumerated_tail(n_flagged: int, rates: list[float]) -> float:
    outcomes = product([0, 1], repeat=len(rates))
    return math.fsum(
        math.prod(rate if hit else 1 - rate for hit, rate in zip(outcome, rates, strict=True))
        for outcome in outcomes
        if sum(outcome) >= n_flagged
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10), st.data())
def test_the_tail_is_the_sum_over_all_outcomes(rates: list[float], data: st.DataObject) -> None:
    n_flagged = data.draw(st.integers(0, len(rates)))
    assert poisson_binomial_tail(n_flagged, rates) == pytest.approx(
        enumerated_tail(n_flagged, rates), rel=1e-9, abs=1e-15
    )


@pytest.mark.parametrize("rate", [5e-324, 1.1e-308, 1e-300, 0.0])
def test_the_smallest_rates_do_not_end_a_run(rate: float) -> None:
    assert poisson_binomial_tail(0, [rate, rate]) == 1
    assert poisson_binomial_tail(1, [rate, rate]) == pytest.approx(0, abs=1e-299)


def test_equal_rates_are_the_binomial_tail_even_far_out() -> None:
    expected = binom.sf(399, 14_042, 1 / 24 / 10)
    assert expected < 1e-100
    assert poisson_binomial_tail(400, [1 / 24 / 10] * 14_042) == pytest.approx(expected, rel=1e-6)


def test_no_question_leaves_the_pvalue_undefined() -> None:
    assert math.isnan(poisson_binomial_tail(0, []))


@given(st.lists(st.booleans(), min_size=2, max_size=50) | st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_the_mean_of_any_values_has_its_standard_error_from_two_on(values: list[float]) -> None:
    assert mean_and_stderr(values) == pytest.approx((np.mean(values), sem(np.array(values, dtype=float))), abs=1e-9)
    assert all(map(math.isnan, mean_and_stderr([])))
    assert mean_and_stderr(values[:1])[0] == values[0]
    assert math.isnan(mean_and_stderr(values[:1])[1])


@pytest.mark.parametrize(
    ("accuracy", "n", "ends"),
    [
        (Estimate(1.0, 0.0), 40, (0.9124, 1.0)),  # a share: Wilson's, n / (n + z²) and 1
        (Estimate(0.505, 0.1), 10, (0.309, 0.701)),  # no share of 10: 0.505 ± 1.96 * 0.1
        (Estimate(0.95, 0.1), 1, (0.754, 1.0)),
        (Estimate(30.0, 2.0), 40, (26.08, 33.92)),  # of a metric that is no share
        (Estimate(0.505), 10, (NAN, NAN)),
    ],
    ids=["share", "mean", "at the edge", "not an accuracy", "without an error"],
)
def test_an_accuracy_has_the_interval_of_a_share_where_it_is_one(accuracy, n, ends) -> None:
    estimate = accuracy_in_interval(accuracy, n)
    assert (estimate.low, estimate.high) == pytest.approx(ends, abs=1e-3, nan_ok=True)
    assert (estimate.value, estimate.stderr) == pytest.approx((accuracy.value, accuracy.stderr), nan_ok=True)
