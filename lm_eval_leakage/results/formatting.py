"""Formats numbers: a dash for what is undefined, never a zero; no more digits than the error allows."""

from __future__ import annotations

import math

from lm_eval_leakage.inference.pooling import Estimate

DASH = "–"
SMALLEST_PVALUE = 1e-300  # below it doubles lose precision
HUGE = 1e6  # from here on in scientific notation, to keep cells short
COARSE_ERROR = 0.0095  # an error that is visible in two decimals


def number(value: float | None, decimals: int = 3) -> str:
    """`value` with a true minus sign; a dash for None and NaN."""
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
    """`1 question`, `2 questions`."""
    return f"{count(n)} {noun}{'' if n == 1 else 's'}"


def plus_minus(estimate: Estimate, decimals: int | None = None) -> str:
    """`0.41 ± 0.02`; without the error where it is undefined. As many decimals as the error needs, or those given."""
    if decimals is None:
        decimals = 3 if estimate.stderr < COARSE_ERROR else 2
    value = number(estimate.value, decimals)
    return value if not estimate or math.isnan(estimate.stderr) else f"{value} ± {number(estimate.stderr, decimals)}"


def interval(estimate: Estimate, decimals: int = 2) -> str:
    """`[0.28, 0.38]`; empty where undefined."""
    if math.isnan(estimate.low) or math.isnan(estimate.high):
        return ""
    return f"[{number(estimate.low, decimals)}, {number(estimate.high, decimals)}]"


def pvalue(value: float) -> str:
    """`0.032`, `1e-80`; an underflow is a bound, not a zero."""
    if math.isnan(value):
        return DASH
    return "< 1e-300" if value < SMALLEST_PVALUE else f"{value:.2g}"


def pvalue_equation(value: float) -> str:
    """`p = 0.032`, `p < 1e-300`."""
    text = pvalue(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"
