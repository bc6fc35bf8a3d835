"""The bound of the share of rows that were seen as often as those of a positive control."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from lm_eval_leakage.stats.positive_control import BOUND_LEVEL, PositiveControl, ratio_at_most


@pytest.mark.parametrize(
    ("effect", "error", "control", "control_error"),
    [(0.1, 0.1, 0.7, 0.11), (0.0, 0.11, 0.7, 0.11), (0.3, 0.05, 1.2, 0.3), (0.2, 0.01, 0.5, 0.01)],
)
def test_it_is_the_largest_ratio_that_the_test_of_the_difference_accepts(
    effect, error, control, control_error
) -> None:
    def beyond(ratio: float) -> float:
        return (effect - ratio * control) / math.hypot(error, ratio * control_error) - norm.ppf(1 - BOUND_LEVEL)

    assert ratio_at_most(effect, error, control, control_error) == pytest.approx(brentq(beyond, effect / control, 50))


def test_an_effect_below_zero_counts_as_none() -> None:
    assert ratio_at_most(-0.3, 0.1, 0.7, 0.1) == ratio_at_most(0.0, 0.1, 0.7, 0.1) > 0


@pytest.mark.parametrize(
    ("control", "control_error"), [(0.1, 0.1), (-0.7, 0.1), (0.0, 0.1), (math.nan, 0.1), (0.3, 0.1)]
)
def test_there_is_no_bound_where_the_control_shows_too_little(control: float, control_error: float) -> None:
    assert math.isnan(ratio_at_most(0.2, 0.1, control, control_error))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
def test_the_true_share_is_below_it_as_often_as_it_says(share: float) -> None:
    rng, n = np.random.default_rng(1), 20_000
    effects, controls = rng.normal(share * 0.8, 0.1, n), rng.normal(0.8, 0.12, n)
    bounds = [ratio_at_most(effect, 0.1, other, 0.12) for effect, other in zip(effects, controls, strict=True)]
    covered = np.mean([math.isnan(bound) or bound >= share for bound in bounds])
    assert covered >= BOUND_LEVEL - 4 * math.sqrt(BOUND_LEVEL * (1 - BOUND_LEVEL) / n)


def test_it_shows_memory_at_the_level_of_evidence() -> None:
    assert PositiveControl("its train split", 100, 0.7, 0.1, 0.01).shows_memory
    assert not PositiveControl("its train split", 100, 0.7, 0.1, 0.011).shows_memory
    assert not PositiveControl("its train split", 100).shows_memory
