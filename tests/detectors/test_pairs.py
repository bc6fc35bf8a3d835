from __future__ import annotations

from itertools import combinations, permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.detectors.pairs import PairDirection, PairPublished
from lm_eval_leakage.records import Answered, Question


def asked(n_options: int, scores: dict[tuple[int, int], float]) -> Answered:
    question = Question("q", "Which?", tuple(f"option {i}" for i in range(n_options)))
    return Answered(question, (), tuple(scores[pair] for pair in permutations(range(n_options), 2)))


def drawn(n_options: int, rng: np.random.Generator) -> Answered:
    return asked(n_options, {pair: rng.normal() for pair in permutations(range(n_options), 2)})


def test_as_published_the_first_pair_must_be_the_likeliest_of_all() -> None:
    scores = {pair: -float(sum(pair)) for pair in permutations(range(4), 2)}
    (tied,) = PairPublished().judge([asked(4, scores)])
    assert (tied.flagged, tied.margin, tied.pvalue) == (False, 0.0, 2 / 12)  # (1, 0) reads as likely
    (first,) = PairPublished().judge([asked(4, scores | {(0, 1): 0.5})])
    assert (first.flagged, first.margin, first.pvalue, first.null_rate) == (True, 1.5, 1 / 12, 1 / 12)


@given(st.integers(0, 1000), st.integers(2, 4))
def test_like_for_like_agrees_with_enumeration_by_hand(seed: int, n_options: int) -> None:
    question = drawn(n_options, np.random.default_rng(seed))
    ll = dict(zip(permutations(range(n_options), 2), question.answers, strict=True))

    def total(order: tuple[int, ...]) -> float:
        return sum(ll[i, j] - ll[j, i] for i, j in combinations(order, 2))

    published, *others = map(total, permutations(range(n_options)))
    (found,) = PairDirection().judge([question])
    assert found.margin == pytest.approx(published - max(others), abs=1e-6)
    assert found.pvalue == (1 + sum(other >= published - 1e-7 for other in others)) / factorial(n_options)
    assert found.null_rate == 1 / factorial(n_options)


def test_with_many_options_orders_are_drawn_and_their_number_is_reported() -> None:
    (found,) = PairDirection().judge([drawn(8, np.random.default_rng(1))])
    assert 4_900 < found.n_compared <= 5_001
    assert PairDirection().judge([drawn(8, np.random.default_rng(1))]) == [found]
    (all_of_them,) = PairDirection().judge([drawn(7, np.random.default_rng(1))])
    assert all_of_them.n_compared == factorial(7)
