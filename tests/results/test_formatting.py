"""Numbers in words."""

from __future__ import annotations

import math

import pytest

from lm_eval_leakage.results.formatting import (
    about,
    duration,
    format_pvalue,
    interval,
    number,
    plus_minus,
    pvalue_equation,
    value_in_interval,
    whole_percent,
)
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate

TEXTS = {
    number: {
        None: "–",
        math.nan: "–",
        0.0: "0.000",
        -0.0001: "0.000",
        -0.25: "−0.250",
        -math.inf: "−∞",
        1e308: "1e+308",
        -2e6: "−2e+06",
    },
    plus_minus: {Estimate(0.5): "0.50", UNKNOWN: "–", Estimate(0.5, 0.04): "0.50 ± 0.04"},
    interval: {
        Estimate(0.5): "",
        Estimate(0.0, 0.1, -0.2, 0.2): "[−0.20, 0.20]",
        Estimate(0.0, 0.0, 0.0, 0.0): "",
    },
    value_in_interval: {
        UNKNOWN: "–",
        Estimate(0.5): "0.50",
        Estimate(0.5, 0.02, 0.46, 0.54): "0.50 [0.46, 0.54]",
        Estimate(0.5, 0.008, 0.484, 0.516): "0.500 [0.484, 0.516]",
        Estimate(1.0, 0.0, 1.0, 1.0): "1.00",
        Estimate(1.5, math.nan, 1.2, math.inf): "1.50 [1.20, ∞]",
    },
    format_pvalue: {math.nan: "–", 0.0: "< 1e-300", 1.0: "1", 0.0321: "0.032"},
    pvalue_equation: {0.03: "p = 0.03", 0.0: "p < 1e-300"},
    whole_percent: {0.0: "0 %", 0.004: "0.4 %", 0.0096: "1 %", 0.544: "54 %", 1.0: "100 %", math.nan: "–"},
    about: {
        0: "0",
        1_234: "1,200",
        99_499: "99,000",
        99_500: "100,000",
        994_999: "990,000",
        995_000: "1 million",
        9_556_011: "9.6 million",
        99_400_000: "99 million",
        123_456_789: "120 million",
    },
    duration: {0.2: "1 s", 89: "89 s", 90: "2 min", 5399: "90 min", 5400: "1.5 h", 1e7: "2,777.8 h"},
}


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [(form, value, text) for form, texts_of_form in TEXTS.items() for value, text in texts_of_form.items()],
)
def test_a_number_has_no_more_digits_than_it_is_worth_and_a_dash_where_it_is_undefined(form, value, text) -> None:
    assert form(value).replace("\u00a0", " ") == text


def test_a_bound_of_a_pvalue_is_shown_as_one() -> None:
    assert (format_pvalue(1.14e-13, is_bound=True), pvalue_equation(1.14e-13, is_bound=True)) == (
        "≤ 1.1e-13",
        "p ≤ 1.1e-13",
    )
    assert pvalue_equation(0.0, is_bound=True) == "p < 1e-300"
    assert format_pvalue(math.nan, is_bound=True) == "–"
