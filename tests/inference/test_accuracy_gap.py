"""The gap in accuracy within strata, compared with a regression, with exact tests and with repetitions."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from lm_eval_leakage.stats.accuracy_gap import accuracy_gap

questions = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 2)), min_size=2, max_size=30)


def columns(rows):
    return tuple(zip(*rows, strict=True))


@given(questions)
def test_it_is_the_coefficient_of_a_regression_with_an_intercept_for_each_stratum(rows) -> None:
    flagged, right, strata = columns(rows)
    gap = accuracy_gap(flagged, right, strata)
    intercepts = np.array([[stratum == k for k in range(3)] for stratum in strata], dtype=float)
    design = np.column_stack([np.array(flagged, dtype=float), intercepts])
    if not math.isnan(gap.value):
        coefficients, *_ = np.linalg.lstsq(design, np.array(right, dtype=float), rcond=None)
        assert gap.value == pytest.approx(coefficients[0], abs=1e-9)
    else:
        assert np.isnan(gap.pvalue)
        assert all(len({flag for flag, _, other in rows if other == stratum}) < 2 for stratum in strata)


@given(questions)
def test_in_one_stratum_the_pvalue_is_fishers(rows) -> None:
    flagged, right, _ = columns(rows)
    gap = accuracy_gap(flagged, right, ["all"] * len(rows))
    table = [[sum(f == a and r == b for f, r in zip(flagged, right, strict=True)) for b in (1, 0)] for a in (1, 0)]
    if len({*flagged}) > 1:
        assert gap.pvalue == pytest.approx(fisher_exact(table, alternative="greater").pvalue)


def test_the_pvalue_is_that_of_all_ways_to_flag_within_strata() -> None:
    strata = ["a"] * 4 + ["b"] * 3
    flagged = [True, True, False, False, True, False, False]
    right = [True, True, True, False, True, False, False]
    observed = sum(f and r for f, r in zip(flagged, right, strict=True))
    ways = list(product(sorted(set(permutations(flagged[:4]))), sorted(set(permutations(flagged[4:])))))
    as_high = [sum(f and r for f, r in zip([*a, *b], right, strict=True)) >= observed for a, b in ways]
    assert accuracy_gap(flagged, right, strata).pvalue == pytest.approx(np.mean(as_high))


@pytest.mark.parametrize(("n_strata", "size"), [(3, 100), (120, 4)])
def test_the_standard_error_is_the_spread_over_repetitions(n_strata: int, size: int) -> None:
    rng = np.random.default_rng(7)
    strata = np.repeat(np.arange(n_strata), size)
    ease = np.linspace(0.2, 0.7, n_strata)[strata]
    flagged = np.tile(np.arange(size) % 4 == 0, n_strata)
    gaps = [accuracy_gap(flagged, rng.random(len(ease)) < ease + 0.2 * flagged, strata) for _ in range(200)]
    values = np.array([gap.value for gap in gaps])
    assert values.mean() == pytest.approx(0.2, abs=4 * values.std() / 200**0.5)
    assert np.mean([gap.stderr for gap in gaps]) == pytest.approx(values.std(), rel=0.2)
