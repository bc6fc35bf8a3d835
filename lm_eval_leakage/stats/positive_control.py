"""Compares a benchmark with a positive control: rows that the model may have learned, such as the train split.

After "none found", it says whether this audit can detect memory in this model at all. If the control shows memory,
divide the preference for the benchmark's published forms by that for the control's. The ratio is the share of the
benchmark's rows that were seen as often as those of the control, in the same form. Its upper bound is Fieller's: the
largest ratio that a test of `effect - ratio x control` does not reject. Claim: both estimates are independent and
normal with known standard errors, and all rows of the control were seen; if only some were, the bound is of the same
mixture. An effect below 0 counts as 0. Source: Fieller (1954).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from lm_eval_leakage.stats.pooling import NAN

BOUND_LEVEL = 0.95  # one-sided
SHOWN_AT = 0.01  # largest p-value at which the control shows memory


@dataclass(frozen=True)
class PositiveControl:
    """The result of an audit of rows that the model may have learned.

    name: description of the rows
    n: number of tested rows
    effect, error: their mean preference for the published forms, as for the benchmark, and its standard error
    pvalue: NaN if they could not be tested
    at_most: upper bound, with 95 % confidence, of the share of the benchmark's rows that were seen as often; NaN if
        the control shows no memory, or all may have been seen
    reason: why they could not be tested; empty if they were, or were too few
    """

    name: str
    n: int
    effect: float = NAN
    error: float = NAN
    pvalue: float = NAN
    at_most: float = NAN
    reason: str = ""

    @property
    def shows_memory(self) -> bool:
        return self.pvalue <= SHOWN_AT


def ratio_at_most(effect: float, error: float, control: float, control_error: float) -> float:
    """Return the upper bound of `effect / control`; NaN if it is 1 or more, or the control is not clearly above 0."""
    z = NormalDist().inv_cdf(BOUND_LEVEL)
    numerator = max(effect, 0.0)
    a = control**2 - (z * control_error) ** 2
    if not (control > 0 and a > 0):
        return NAN
    b, c = numerator * control, numerator**2 - (z * error) ** 2
    bound = (b + math.sqrt(max(0.0, b**2 - a * c))) / a
    return bound if bound < 1 else NAN
