from __future__ import annotations

import math

import pytest

from lm_eval_leakage.results.formatting import interval, number, plus_minus, pvalue, pvalue_equation, whole_percent
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0.000"),
        (-0.0001, "0.000"),
        (-0.25, "−0.250"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (1e308, "1e+308"),
        (-2e6, "−2e+06"),
    ],
)
def test_numbers_have_a_true_minus_sign_and_a_dash_where_undefined(value: float | None, text: str) -> None:
    assert number(value) == text


def test_an_undefined_error_is_left_out() -> None:
    assert plus_minus(Estimate(0.5)) == "0.50"
    assert plus_minus(UNKNOWN) == "–"
    assert interval(Estimate(0.5)) == ""
    assert interval(Estimate(0.0, 0.1, -0.2, 0.2)) == "[−0.20, 0.20]"


@pytest.mark.parametrize(("value", "text"), [(math.nan, "–"), (0.0, "< 1e-300"), (1.0, "1"), (0.0321, "0.032")])
def test_pvalues_have_two_digits(value: float, text: str) -> None:
    assert pvalue(value) == text


def test_a_bound_of_a_pvalue_is_shown_as_one() -> None:
    assert (pvalue(1.14e-13, is_bound=True), pvalue_equation(1.14e-13, is_bound=True)) == ("≤ 1.1e-13", "p ≤ 1.1e-13")
    assert pvalue_equation(0.03) == "p = 0.03"
    assert pvalue_equation(0.0, is_bound=True) == pvalue_equation(0.0) == "p < 1e-300"
    assert pvalue(math.nan, is_bound=True) == "–"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.004, "0.4 %"), (0.0094, "0.9 %"), (0.0096, "1 %"), (0.544, "54 %"), (1.0, "100 %")],
)
def test_a_share_is_a_whole_percentage_with_a_decimal_below_one(share: float, text: str) -> None:
    assert whole_percent(share).replace("\u00a0", " ") == text
    assert whole_percent(math.nan) == "–"
