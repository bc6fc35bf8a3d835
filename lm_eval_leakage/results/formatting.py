"""Formats numbers: a dash for what is undefined, never a zero; no more digits than the error allows."""

from __future__ import annotations

import math
from typing import Any

from lm_eval_leakage.stats.pooling import Estimate

DASH = "–"
SMALLEST_PVALUE = 1e-300  # below it doubles lose precision
HUGE = 1e6  # from here on in scientific notation, to keep cells short
NARROW = 0.04  # a 95 % interval that is narrower needs three decimals
LOW_SHARE = 0.0095  # a share below it is shown with a decimal
NO_BREAK = "\u00a0"  # keeps a number and its unit on one line


def defined(value: Any) -> Any:
    """Return the value, or None for NaN, which JSON does not have."""
    return None if isinstance(value, float) and math.isnan(value) else value


def number(value: float | None, decimals: int = 3) -> str:
    """Return a number with a true minus sign; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.4g}" if abs(value) >= HUGE else f"{value:.{decimals}f}"
    is_zero = not text.strip("-0.")
    return text.lstrip("-") if is_zero else text.replace("-", "−", 1)


def count(n: int) -> str:
    return f"{n:,}"


def counted(n: int, noun: str = "question") -> str:
    """Return a number and its noun: `1 question`, `2 questions`."""
    return f"{count(n)} {noun}{'' if n == 1 else 's'}"


def rounded_up(n: float) -> int:
    """Return a number above 0, to two digits."""
    size = int(10.0 ** max(0, math.floor(math.log10(n)) - 1))
    return math.ceil(n / size) * size


def about(n: int) -> str:
    """Return a rough number, `9.6 million` or `36,000`: two digits, for an estimate that is worth no more."""
    rounded = int(float(f"{n:.2g}"))
    return count(rounded) if rounded < 1_000_000 else f"{rounded / 1e6:,g} million"


def duration(seconds: float) -> str:
    """Return a duration: `45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def plus_minus(estimate: Estimate, decimals: int = 2) -> str:
    """Return an estimate as `0.41 ± 0.02`, without the error where it is undefined."""
    value = number(estimate.value, decimals)
    return value if not estimate or math.isnan(estimate.stderr) else f"{value} ± {number(estimate.stderr, decimals)}"


def interval(estimate: Any, decimals: int = 2) -> str:
    """Return an interval as `[0.28, 0.38]`, of anything with ends `low` and `high`; empty where undefined, and where
    equal values of few questions give it no width, which is no certainty."""
    if math.isnan(estimate.low) or math.isnan(estimate.high) or estimate.low == estimate.high:
        return ""
    return f"[{number(estimate.low, decimals)}, {number(estimate.high, decimals)}]"


def decimals_of(estimate: Any) -> int:
    """Return how many decimals the value and the ends of an interval are worth."""
    return 3 if 0 < estimate.high - estimate.low < NARROW else 2


def value_in_interval(estimate: Any) -> str:
    """Return an estimate as `0.50 [0.40, 0.62]`; a dash where the value is undefined."""
    decimals = decimals_of(estimate)
    return f"{number(estimate.value, decimals)} {interval(estimate, decimals)}".rstrip()


def percent(share: float, decimals: int = 1) -> str:
    """Return a share as `4.2 %`; a dash for NaN."""
    return DASH if math.isnan(share) else f"{100 * share:.{decimals}f}{NO_BREAK}%"


def whole_percent(share: float) -> str:
    """Return a share as `54 %`, with a decimal below 1 %; a dash for NaN."""
    return percent(share, 1 if 0 < share < LOW_SHARE else 0)


def format_pvalue(value: float, is_bound: bool = False) -> str:
    """Return a p-value as `0.032`, or `≤ 1e-80` for an upper bound; an underflow is a bound, not a zero."""
    if math.isnan(value):
        return DASH
    if value < SMALLEST_PVALUE:
        return "< 1e-300"
    return f"{'≤ ' if is_bound else ''}{value:.2g}"


def pvalue_equation(value: float, is_bound: bool = False) -> str:
    """Return a p-value as an equation: `p = 0.032`, `p ≤ 1e-80`, `p < 1e-300`."""
    text = format_pvalue(value, is_bound)
    return f"p {text}" if text.startswith(("<", "≤")) else f"p = {text}"
