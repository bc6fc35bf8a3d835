"""The test of crossed blocks: against exact enumeration, and under the null hypothesis with any effects."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from lm_eval_leakage.stats.crossed_blocks import (
    PLACEMENTS_DRAWN,
    block_scores,
    double_centred,
    placement_scores,
    placements,
    preference,
)
from lm_eval_leakage.stats.order_sum import monte_carlo_error


def drawn(k, *, shift=0.0, seed=0):
    """Log-likelihoods of k rows with k fillers; `shift` nats are added to the published pairs."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(k, k)) + shift * np.eye(k)
    return matrix + 20 * rng.normal(size=(k, 1)) + 8 * rng.normal(size=k)


def result_of(matrices, **options):
    return preference([block_scores([matrix]) for matrix in matrices], [len(matrix) for matrix in matrices], **options)


@given(st.integers(2, 5), st.integers(0, 99))
def test_how_likely_rows_and_fillers_are_changes_no_score(k, seed):
    rng, matrix = np.random.default_rng(seed), drawn(k, seed=seed)
    changed = matrix + 50 * rng.normal(size=(k, 1)) + 50 * rng.normal(size=k)
    np.testing.assert_allclose(placement_scores(changed), placement_scores(matrix), atol=1e-9)


@given(st.integers(2, 6), st.integers(0, 99))
def test_scores_of_placements_are_the_sums_over_permuted_fillers(k, seed):
    matrix = drawn(k, seed=seed)
    centred = double_centred(matrix)
    np.testing.assert_allclose(centred.sum(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(centred.sum(axis=1), 0, atol=1e-9)
    by_hand = [sum(centred[row, filler] for row, filler in enumerate(order)) for order in permutations(range(k))]
    np.testing.assert_allclose(placement_scores(matrix), by_hand, atol=1e-9)


@given(st.integers(2, 6), st.integers(0, 99))
def test_the_variance_over_placements_is_that_of_a_permuted_sum(k, seed):
    # Hoeffding (1951): the sum of squares of the doubly centred matrix over k - 1
    matrix = drawn(k, seed=seed)
    variance = float((double_centred(matrix) ** 2).sum()) / (k - 1)
    scores = placement_scores(matrix)
    assert np.mean(scores**2) == pytest.approx(variance)
    assert np.mean(block_scores([matrix]) ** 2) == pytest.approx(k - 1)


def test_a_large_block_has_drawn_placements_that_begin_with_the_published_one():
    drawn_placements = placements(9)
    assert drawn_placements.shape == (PLACEMENTS_DRAWN, 9)
    assert drawn_placements[0].tolist() == [*range(9)]
    assert (np.sort(drawn_placements, axis=1) == np.arange(9)).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 999), st.floats(0.0, 2.0))
def test_the_pvalue_is_that_of_exact_enumeration(seed, shift):
    matrices = [drawn(k, shift=shift, seed=seed + k) for k in (2, 3, 4)]
    sums = [sum(combination) for combination in product(*(block_scores([matrix]) for matrix in matrices))]
    exact = np.mean([combination >= sums[0] - 1e-9 for combination in sums])
    assert abs(result_of(matrices).test.pvalue - exact) <= 5 * monte_carlo_error(exact) + 1e-3


@pytest.mark.parametrize("k", [2, 3, 4, 6, 9])
def test_without_memory_the_test_rejects_at_its_level(k):
    """With any effects of rows and fillers, and noise that is neither normal nor alike in all blocks."""
    n_tests, level = 300, 0.05
    rng = np.random.default_rng(k)
    rejected = 0
    for number in range(n_tests):
        blocks = []
        for _ in range(6):
            noise = rng.standard_t(3, size=(k, k)) * rng.exponential(3)
            matrix = noise + 30 * rng.normal(size=(k, 1)) + rng.exponential(10, size=k)
            blocks.append(matrix[:, rng.permutation(k)])
        rejected += result_of(blocks, seed=number).test.pvalue <= level
    assert rejected <= binom.isf(1e-4, n_tests, level)


@pytest.mark.parametrize("k", [3, 4, 6, 9])
def test_the_effect_is_the_preference_in_standard_deviations_per_row(k):
    result = result_of([drawn(k, shift=0.5, seed=seed) for seed in range(3_000 // k)])
    bias = 0.5 * 0.5 / (k - 1) + 0.5 / (k - 1) ** 2  # the preference is part of the standard deviation
    assert result.effect == pytest.approx(0.5, abs=4 * result.error + bias)
    assert result.n_rows == 3_000 // k * k
    assert result.n_blocks == 3_000 // k


def test_the_error_of_the_effect_is_that_of_repeated_samples():
    results = [
        result_of([drawn(4, shift=0.3, seed=1000 * number + block) for block in range(25)]) for number in range(150)
    ]
    spread = np.std([result.effect for result in results])
    assert np.mean([result.error for result in results]) == pytest.approx(spread, rel=0.2)


def test_blocks_of_different_sizes_count_by_their_number_of_rows_less_one():
    # the best weights of independent normal scores are their shifts, d x sqrt(k - 1)
    large, small = drawn(5, seed=1), drawn(2, seed=2)
    together = result_of([large, small])
    each = [result_of([block]).effect for block in (large, small)]
    assert together.effect == pytest.approx((4 * each[0] + 1 * each[1]) / 5)


def test_memory_of_half_of_the_rows_is_found():
    clean = [drawn(6, seed=seed) for seed in range(20)]
    seen = [matrix + np.diag([1.5, 0, 1.5, 0, 1.5, 0]) for matrix in clean]
    assert result_of(clean).test.pvalue > 0.01
    assert result_of(seen).test.pvalue <= 0.001


def test_what_the_control_form_prefers_as_much_is_taken_off():
    clean = [drawn(6, seed=seed) for seed in range(20)]
    fitting = [matrix + 2 * np.eye(6) for matrix in clean]
    alone = preference([block_scores([matrix]) for matrix in fitting], [6] * 20)
    control = [drawn(6, shift=2, seed=100 + seed) for seed in range(20)]
    both = [block_scores([matrix], [other]) for matrix, other in zip(fitting, control, strict=True)]
    assert alone.test.pvalue <= 0.001
    assert preference(both, [6] * 20).test.pvalue > 0.01


def test_a_natural_spread_between_benchmarks_makes_many_rows_no_proof():
    blocks = [drawn(6, shift=0.12, seed=seed) for seed in range(300)]
    assert result_of(blocks).test.pvalue <= 0.01
    assert result_of(blocks, spread=0.06).test.pvalue > 0.01


def test_layouts_count_alike_whatever_their_scale():
    first, other = drawn(4, seed=1), drawn(4, seed=2)
    np.testing.assert_allclose(block_scores([first, 100 * other]), block_scores([first, other]))


def test_a_block_without_differences_is_left_out():
    flat = np.zeros((4, 4)) + np.arange(4)
    assert block_scores([flat]) is None
    assert block_scores([np.zeros((1, 1))]) is None
    result = preference([None, block_scores([drawn(4)])], [4, 4])
    assert (result.n_blocks, result.n_rows) == (1, 4)
    assert math.isnan(result.error)


def test_no_blocks_have_no_pvalue():
    assert math.isnan(preference([], []).test.pvalue)
    assert math.isnan(preference([], []).effect)


def test_the_order_in_which_blocks_come_changes_nothing():
    matrices = [drawn(4, seed=seed) for seed in range(5)]
    assert result_of(matrices) == result_of(matrices[::-1])
