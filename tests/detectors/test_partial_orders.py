from __future__ import annotations

from itertools import combinations, permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.detectors.partial_orders import OptionPairs, OptionSteps, PairDirection, PairPublished, Stepwise
from lm_eval_leakage.records import Answered, Question, UntestableQuestion

OPTIONS = ("a cat on a mat", "two dogs in the rain", "three hens", "a horse of course")
QUESTION = Question("q", "Which animals are seen there?", OPTIONS)


def answered(n_options: int, scores: dict[tuple[int, int], float]) -> Answered:
    question = Question("q", "Which?", tuple(f"option {i}" for i in range(n_options)))
    return Answered(question, (), tuple(scores[pair] for pair in permutations(range(n_options), 2)))


def drawn(n_options: int, rng: np.random.Generator) -> Answered:
    return answered(n_options, {pair: rng.normal() for pair in permutations(range(n_options), 2)})


def test_as_published_the_first_pair_must_be_the_likeliest_of_all() -> None:
    scores = {pair: -float(sum(pair)) for pair in permutations(range(4), 2)}
    (tied,) = PairPublished().judge([answered(4, scores)])
    assert (tied.flagged, tied.margin, tied.pvalue) == (False, 0.0, 2 / 12)  # (1, 0) reads as likely
    (first,) = PairPublished().judge([answered(4, scores | {(0, 1): 0.5})])
    assert (first.flagged, first.margin, first.pvalue, first.null_rate) == (True, 1.5, 1 / 12, 1 / 12)


@given(st.integers(0, 1000), st.integers(2, 4))
def test_like_for_like_agrees_with_enumeration_by_hand(seed: int, n_options: int) -> None:
    question = drawn(n_options, np.random.default_rng(seed))
    ll = dict(zip(permutations(range(n_options), 2), question.answers, strict=True))

    def total(order: tuple[int, ...]) -> float:
        return sum(ll[i, j] - ll[j, i] for i, j in combinations(order, 2))

    published, *others = map(total, permutations(range(n_options)))
    (evidence,) = PairDirection().judge([question])
    assert evidence.margin == pytest.approx(published - max(others), abs=1e-6)
    assert evidence.pvalue == (1 + sum(other >= published - 1e-7 for other in others)) / factorial(n_options)
    assert evidence.null_rate == 1 / factorial(n_options)


def test_with_many_options_orders_are_drawn_and_their_number_is_reported() -> None:
    (evidence,) = PairDirection().judge([drawn(8, np.random.default_rng(1))])
    assert 4_900 < evidence.n_compared <= 5_001
    assert PairDirection().judge([drawn(8, np.random.default_rng(1))]) == [evidence]
    (all_of_them,) = PairDirection().judge([drawn(7, np.random.default_rng(1))])
    assert all_of_them.n_compared == factorial(7)


def test_pairs_are_all_ordered_pairs() -> None:
    requests = OptionPairs().requests(QUESTION)
    assert len(requests) == 12
    first, *others = OPTIONS[:3]
    assert [request.continuation for request in requests[:2]] == [f"\nA. {first}\nB. {other}" for other in others]
    with pytest.raises(UntestableQuestion, match="two of its options are identical"):
        OptionPairs().requests(Question("q", "Which?", ("x", "x ", "y")))


def test_steps_request_every_remaining_option() -> None:
    requests = OptionSteps().requests(QUESTION)
    assert len(requests) == 4 + 3 + 2
    assert [request.continuation for request in requests[4:7]] == [f" {option}\n" for option in OPTIONS[1:]]
    assert requests[4].context.endswith(f"A. {OPTIONS[0]}\nB.")
    with pytest.raises(UntestableQuestion, match="two of its options are identical"):
        OptionSteps().requests(Question("q", "Which?", ("x", "x ", "y")))


def test_the_null_distribution_of_steps_is_that_of_random_orders() -> None:
    # a model with any preferences, here dependent on what it has seen; every order of the options once
    def preference(seen: tuple[int, ...], option: int) -> float:
        return hash((seen, option)) % 1009 + option / 10

    verdicts = []
    for order in permutations(range(4)):
        scores = [preference(order[:place], option) for place in range(3) for option in order[place:]]
        verdicts += Stepwise().judge([Answered(QUESTION, (), tuple(scores))])
    assert sum(evidence.flagged for evidence in verdicts) == 1  # of 4! orders
    for count in range(4):
        observed = sum(evidence.n_expected >= count for evidence in verdicts) / factorial(4)
        pvalues = {evidence.pvalue for evidence in verdicts if evidence.n_expected == count}
        assert all(pvalue == pytest.approx(observed) for pvalue in pvalues)
    assert {evidence.null_rate for evidence in verdicts} == {1 / 24}


def test_a_tie_is_not_an_expectation() -> None:
    (evidence,) = Stepwise().judge([Answered(QUESTION, (), (1.0, 1.0, 0.0, 0.0, 2.0, 1.0, 0.0, 1.0, 0.0))])
    assert (evidence.flagged, evidence.n_expected, evidence.least_margin) == (False, 2, 0.0)
