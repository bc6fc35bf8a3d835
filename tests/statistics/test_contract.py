"""What every statistic promises; a new statistic is covered without an edit here."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_leakage.statistics import statistics
from lm_eval_leakage.statistics.orders import OrderScores

every_statistic = pytest.mark.parametrize("name", statistics.names())


def rows(seed: int, n_questions: int = 12) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [rng.normal(-50, 3, rng.choice([6, 12, 24, 120])).tolist() for _ in range(n_questions)]


@every_statistic
@settings(max_examples=20)
@given(st.integers(0, 10_000), st.randoms())
def test_the_order_in_which_questions_arrive_does_not_matter(name: str, seed: int, random) -> None:
    judge = statistics.get(name)()
    asked = rows(seed)
    order = list(range(len(asked)))
    random.shuffle(order)
    forward = judge(OrderScores.from_rows(asked))
    shuffled = judge(OrderScores.from_rows([asked[i] for i in order]))
    assert shuffled == [forward[i] for i in order]


@every_statistic
@settings(max_examples=20)
@given(st.integers(0, 10_000), st.floats(0.01, 50))
def test_a_higher_statistic_always_means_more_leakage(name: str, seed: int, boost: float) -> None:
    judge = statistics.get(name)()
    before = [[max(row) + 0.01, *row[1:]] for row in rows(seed)]
    after = [[published + boost, *others] for published, *others in before]
    for weaker, stronger in zip(
        judge(OrderScores.from_rows(before)), judge(OrderScores.from_rows(after)), strict=True
    ):
        assert stronger.statistic >= weaker.statistic
        assert stronger.pvalue <= weaker.pvalue + 1e-12
        assert stronger.flagged >= weaker.flagged


@every_statistic
def test_every_verdict_carries_its_error(name: str) -> None:
    for evidence in statistics.get(name)()(OrderScores.from_rows(rows(1))):
        assert 0 <= evidence.null_rate <= 1
        assert 0 <= evidence.pvalue <= 1


@every_statistic
def test_no_question_gives_no_evidence(name: str) -> None:
    assert list(statistics.get(name)()(OrderScores.from_rows([]))) == []


@every_statistic
def test_the_module_names_its_null_hypothesis_limits_and_source(name: str) -> None:
    described = sys.modules[statistics.get(name).__module__].__doc__ or ""
    assert all(word in described for word in ("Null hypothesis", "Limits", "Source"))
