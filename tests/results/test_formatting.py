"""Numbers in words."""

from __future__ import annotations

import pytest

from lm_eval_leakage.results.formatting import about, duration


@pytest.mark.parametrize(
    ("n", "told"),
    [
        (0, "0"),
        (7, "7"),
        (1_234, "1,200"),
        (99_499, "99,000"),
        (99_500, "100,000"),
        (994_999, "990,000"),
        (995_000, "1 million"),
        (9_556_011, "9.6 million"),
        (99_400_000, "99 million"),
        (123_456_789, "123 million"),
    ],
)
def test_an_estimate_has_two_digits(n: int, told: str) -> None:
    assert about(n) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (1e7, "2,777.8 h")],
)
def test_a_duration_has_the_unit_that_one_waits_in(seconds: float, told: str) -> None:
    assert duration(seconds) == told
