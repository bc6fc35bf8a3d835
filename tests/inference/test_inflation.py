from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from lm_eval_leakage.stats.inflation import (
    FEWEST_MOVED,
    FEWEST_UNSEEN,
    AnsweredTwice,
    by_shuffling,
    by_unseen,
    lowest,
    without,
)
from lm_eval_leakage.stats.pooling import Estimate

N_OPTIONS = 4


def answers(
    rng: np.random.Generator,
    n: int,
    *,
    remembered: float,
    able: float,
    places: tuple[float, ...] = (0.25,) * N_OPTIONS,
    breaks: bool = False,
    favourite: float = 0.0,
) -> tuple[list[AnsweredTwice], float]:
    """Return the answers of a model that answers a share of the questions from memory, knows the answer to a share of
    the others and guesses the rest; and its accuracy without memory.

    breaks: whether memory is gone once the options are shuffled, instead of giving the letter that was right
    favourite: how often a guess is the first letter; other guesses are uniform
    """

    def guess() -> int:
        return 0 if rng.random() < favourite else int(rng.integers(N_OPTIONS))

    made = []
    for _ in range(n):
        place, moved_to = int(rng.choice(N_OPTIONS, p=places)), int(rng.integers(N_OPTIONS))
        knows, remembers = rng.random() < able, rng.random() < remembered
        published = remembers or knows or guess() == place
        by_memory = remembers and not breaks
        shuffled = moved_to == place if by_memory else knows or guess() == moved_to
        made.append(AnsweredTwice(published, shuffled, place, moved_to))
    by_guess = sum(p * (favourite * (place == 0) + (1 - favourite) / N_OPTIONS) for place, p in enumerate(places))
    return made, able + (1 - able) * by_guess


@settings(max_examples=10)
@given(
    st.integers(0, 2**16),
    st.floats(0, 0.8),
    st.floats(0, 0.9),
    st.floats(0, 1),
    st.sampled_from([(0.25,) * 4, (0.4, 0.3, 0.2, 0.1)]),
)
def test_the_estimate_is_what_memory_adds(seed: int, remembered: float, able: float, favourite: float, places) -> None:
    rng = np.random.default_rng(seed)
    made, clean = answers(rng, 6_000, remembered=remembered, able=able, places=places, favourite=favourite)
    accuracy = np.mean([answer.published for answer in made])
    assert by_shuffling(made).value == pytest.approx(accuracy - clean, abs=0.07)


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("remembered", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("able", [0.0, 0.5])
def test_its_interval_holds_the_truth_however_memory_ends(breaks: bool, remembered: float, able: float) -> None:
    rng = np.random.default_rng(7)
    held = []
    for _ in range(40):
        made, clean = answers(rng, 200, remembered=remembered, able=able, breaks=breaks)
        added = by_shuffling(made)
        truth = remembered * (1 - clean)
        held.append(added.low <= truth <= added.high)
    assert np.mean(held) > 0.87


def test_a_clean_model_that_likes_a_letter_is_not_accused() -> None:
    """Always A, where most right options are A: shuffled, it is right less often."""
    rng = np.random.default_rng(3)
    made, clean = answers(rng, 2_000, remembered=0, able=0, places=(0.7, 0.1, 0.1, 0.1), favourite=1.0)
    plain = np.mean([answer.published for answer in made]) - np.mean([answer.shuffled for answer in made])
    assert clean == pytest.approx(0.7)
    assert plain > 0.3
    added = by_shuffling(made)
    assert added.value == pytest.approx(0, abs=0.05)
    assert added.low < 0 < added.high


def test_it_is_withheld_where_nothing_can_be_compared() -> None:
    one_place = [AnsweredTwice(True, False, 0, 1 + number % 3) for number in range(100)]
    assert not by_shuffling(one_place)
    assert not by_shuffling(
        [AnsweredTwice(True, True, number % 4, (number + 1) % 4) for number in range(FEWEST_MOVED - 1)]
    )
    unmoved = [AnsweredTwice(True, True, number % 4, number % 4) for number in range(100)]
    assert not by_shuffling(unmoved)
    all_remembered = [AnsweredTwice(True, False, number % 4, (number + 1) % 4) for number in range(100)]
    assert not by_shuffling(all_remembered)
    assert not by_shuffling([])


def test_equal_answers_leave_an_error() -> None:
    right = (number // 4 % 2 == 0 for number in range(100))
    added = by_shuffling(
        [AnsweredTwice(is_right, is_right, place % 4, (place + 1) % 4) for place, is_right in enumerate(right)]
    )
    assert added.value == pytest.approx(0, abs=1e-12)
    assert added.low < -0.03
    assert added.high > 0.03


def test_unseen_questions_give_the_difference_with_newcombes_interval() -> None:
    """His example (1998, table II, 56/70 - 48/80) with the score method without continuity correction."""
    added = by_unseen([True] * 56 + [False] * 14, (48, 80))
    assert added.value == pytest.approx(0.2)
    assert (added.low, added.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert not by_unseen([True] * 56, (10, FEWEST_UNSEEN - 1))
    assert not by_unseen([True] * (FEWEST_UNSEEN - 1), (48, 80))


@given(st.floats(0, 1), st.floats(-1, 1))
def test_an_accuracy_without_leakage_is_one(accuracy: float, added: float) -> None:
    plain = without(Estimate(accuracy, 0.01), Estimate(added, 0.05, added - 0.1, added + 0.1))
    assert 0 <= plain.low <= plain.value <= plain.high <= 1
    assert math.isnan(without(Estimate(accuracy), Estimate()).value)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 100))
def test_the_bound_is_that_of_the_others_if_every_seen_question_is_right(
    n_seen: int, right: int, n_others: int
) -> None:
    n_right, n = min(right, n_others), n_seen + n_others
    ends = binomtest(n_right, n_others).proportion_ci(method="wilson")
    assert lowest((n_seen + n_right) / n, n, n_seen / n) == pytest.approx(ends.low)
    assert lowest(n_seen / n / 2, n, n_seen / n) == pytest.approx(0, abs=1e-12)  # no more right ones than were seen


def test_few_questions_that_remain_bound_little_and_none_nothing() -> None:
    assert lowest(1.0, 60, 0.92) == pytest.approx(0.510, abs=5e-4)  # four of four; by hand, 4 / (4 + 1.96²)
    assert math.isnan(lowest(0.5, 60, 1.0))
    assert math.isnan(lowest(0.5, 60, math.nan))
    assert math.isnan(lowest(0.5, 0, 0.2))


@pytest.mark.parametrize("remembered", [0.0, 0.3])
def test_near_copies_make_no_interval_narrower(remembered: float) -> None:
    """Of 60 questions, and of four copies of each, which are one family and answered alike."""
    made, _ = answers(np.random.default_rng(0), 60, remembered=remembered, able=0.4)
    once = by_shuffling(made)
    often = by_shuffling(
        [answer for answer in made for _ in range(4)], [number for number in range(60) for _ in range(4)]
    )
    assert list(map(float, (often.value, often.low, often.high))) == pytest.approx([once.value, once.low, once.high])
    alone = by_shuffling([answer for answer in made for _ in range(4)])
    assert alone.high - alone.low < 0.7 * (once.high - once.low)


def test_families_are_counted_where_questions_are_too_few() -> None:
    made, _ = answers(np.random.default_rng(0), 4 * FEWEST_MOVED, remembered=0, able=0.4)
    assert by_shuffling(made)
    assert not by_shuffling(made, [place % (FEWEST_MOVED - 1) for place in range(len(made))])
