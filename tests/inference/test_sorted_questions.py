from __future__ import annotations

import numpy as np
import pytest

from lm_eval_leakage.stats.sorted_questions import likeness_pvalue, sorted_properties, trend_pvalue

WORDS = [f"{a}{b}" for a in "bcdfghjklm" for b in "aeiou"]


def texts(rng, n: int) -> list[str]:
    return [" ".join(rng.choice(WORDS, rng.integers(3, 15))) for _ in range(n)]


def shards(rng, order=lambda drawn: drawn, n: int = 20) -> list[list[str]]:
    return [order(texts(rng, 8)) for _ in range(n)]


def test_shuffled_questions_are_seldom_called_sorted() -> None:
    rng = np.random.default_rng(0)
    called = sum(bool(sorted_properties(shards(rng, n=10))) for _ in range(60))
    assert called <= 4  # 0.6 expected


@pytest.mark.parametrize(
    ("order", "name"),
    [(lambda drawn: sorted(drawn, key=len), "length"), (lambda drawn: sorted(drawn, reverse=True), "alphabet")],
)
def test_sorted_questions_are_reported_by_what_they_are_sorted_by(order, name) -> None:
    assert name in sorted_properties(shards(np.random.default_rng(1), order))


def test_questions_on_one_passage_after_the_other_are_alike() -> None:
    rng = np.random.default_rng(2)

    def in_pairs(drawn: list[str]) -> list[str]:
        return [text for first in drawn[::2] for text in (first, f"{first} again")]

    assert set(sorted_properties(shards(rng, in_pairs))) == {"likeness of neighbours"}


def test_one_question_per_shard_has_no_order() -> None:
    assert trend_pvalue([["a"], ["b"]], len) == 1
    assert likeness_pvalue([["a"], ["b"]]) == 1
    assert sorted_properties([]) == {}
