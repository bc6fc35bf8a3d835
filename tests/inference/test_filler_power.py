"""What the test of crossed blocks finds, by the normal approximation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from lm_eval_leakage.stats.crossed_blocks import block_scores, preference
from lm_eval_leakage.stats.filler_power import FillerPower

SEEN = {1: 0.5, 3: 1.0}


def power_of(**given):
    return FillerPower(**({"effect": 0.0, "n": 200, "deviation": 0.1, "seen": SEEN} | given))


@pytest.mark.parametrize("level", [0.01, 0.001])
def test_the_critical_effect_is_that_of_a_normal_test(level: float) -> None:
    assert power_of().critical(level) == pytest.approx(0.1 * norm.isf(level))
    assert power_of(spread=0.05).critical(level) == pytest.approx(math.hypot(0.1, 0.05) * norm.isf(level))


def test_the_detectable_share_is_found_as_often_as_it_says() -> None:
    rng, power, level = np.random.default_rng(0), power_of(found_with=0.8), 0.01
    for times, share in power.detectable(level):
        seen = rng.random((4_000, 200)) < share
        effects = (SEEN[times] * seen).mean(axis=1) + rng.normal(0, 0.1, 4_000)
        assert np.mean(effects >= power.critical(level)) == pytest.approx(0.8, abs=0.03)


def test_the_upper_bound_excludes_larger_shares_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    share, n = 0.3, 3_000
    seen = rng.random((n, 200)) < share
    effects = (SEEN[3] * seen).mean(axis=1) + rng.normal(0, 0.1, n)
    bounds = [dict(power_of(effect=effect).at_most(0.05))[3] for effect in effects[:600]]
    assert np.mean([math.isnan(bound) or bound >= share for bound in bounds]) >= 0.93


def test_an_effect_below_zero_counts_as_none() -> None:
    assert power_of(effect=-0.5).at_most(0.05) == power_of().at_most(0.05)


def test_a_small_test_has_no_bound() -> None:
    assert all(math.isnan(share) for _, share in power_of(n=20, deviation=0.8).at_most(0.05))


def test_so_many_rows_as_needed_find_the_share() -> None:
    power = power_of()
    n = power.needed(0.25, 0.01)
    like = power_of(n=n, deviation=0.1 * math.sqrt(200 / n))
    assert dict(like.detectable(0.01))[3] == pytest.approx(0.25, abs=0.005)
    assert power_of(spread=0.2).needed(0.25, 0.01) is None, "more rows do not help against the spread"


def test_the_deviation_is_that_of_blocks_without_memory() -> None:
    rng = np.random.default_rng(2)
    results = [
        preference([block_scores([rng.normal(size=(6, 6))]) for _ in range(10)], [6] * 10, seed=seed)
        for seed in range(150)
    ]
    assert np.std([result.effect for result in results]) == pytest.approx(results[0].null_error, rel=0.15)
