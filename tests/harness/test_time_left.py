"""The time left, by a clock that the test sets."""

from __future__ import annotations

import pytest

from lm_eval_leakage.harness.models.announced import WORTH_TELLING, Pace, TimeLeft


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def told_by(bursts: list[tuple[float, int]], total: int) -> list[Pace]:
    """bursts: how long each takes, and how many answers of amount 1 come at its end"""
    clock, told = Clock(), []
    time_left = TimeLeft(total, told.append, clock)
    for seconds, n in bursts:
        clock.now += seconds
        for _ in range(n):
            time_left.done(1)
    return told


@pytest.mark.parametrize("size", [1, 7, 50])
def test_the_first_estimate_is_right_whatever_the_size_of_a_batch_and_is_told_once(size: int) -> None:
    n = 7000 // size
    (pace,) = told_by([(0.1 * size, size)] * n, size * n)
    passed = pace.share * size * n * 0.1
    assert pace.seconds == pytest.approx(passed)
    assert pace.left == pytest.approx(700 - passed, rel=0.01)
    assert pace.seconds <= 35


def test_warming_up_before_the_first_answer_does_not_count() -> None:
    (pace,) = told_by([(300, 1), *[(1, 1)] * 999], 1000)
    assert pace.left + pace.seconds == pytest.approx(1000)


def test_little_time_left_is_not_worth_telling() -> None:
    assert told_by([(0.1, 1)] * 299, 300) == []
    assert WORTH_TELLING == 30


def test_a_wrong_estimate_is_corrected_until_it_is_right() -> None:
    """2 minutes were told for a run of 20 and never corrected enough."""
    told = told_by([*[(0.1, 1)] * 1000, *[(1, 1)] * 9000], 10_000)
    first, *_, last = told
    assert first.left < 1000
    assert 2 < len(told) < 10
    assert last.seconds + last.left == pytest.approx(9100, rel=0.3)


def test_a_run_that_slows_down_is_never_told_to_end_much_later_than_said_without_a_word() -> None:
    """Each answer takes longer than the one before; at every moment the last estimate ends in the future, or the rest
    is not worth telling."""
    bursts = [(0.002 * n, 1) for n in range(1, 1001)]
    told = told_by(bursts, 1000)
    ends = [pace.seconds + pace.left for pace in told]
    for end, after in zip(ends, told[1:], strict=False):
        assert after.seconds <= end + 2.5
    assert sum(seconds for seconds, _ in bursts) - ends[-1] <= WORTH_TELLING + 0.3 * ends[-1]


def test_an_estimate_that_holds_is_not_repeated() -> None:
    assert len(told_by([(1 + 0.2 * (n % 2), 1) for n in range(10_000)], 10_000)) == 1


def test_without_work_or_answers_nothing_is_told() -> None:
    assert told_by([(50, 1)] * 3, 0) == []
    assert told_by([], 10) == []
