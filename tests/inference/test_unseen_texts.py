"""Texts beside those of unseen questions: the test of scores, and those without a model, which go before it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from lm_eval_leakage.stats.unseen_texts import (
    APART_AT,
    FEWEST_TEXTS,
    TEXT_TOLERANCE,
    TextTest,
    classified,
    more_predictable,
    text_test,
    told_apart,
)

NOUNS = [f"noun{number}" for number in range(300)]


def texts(n: int, rng: np.random.Generator, of: slice = slice(None)) -> list[str]:
    return [" ".join(rng.choice(NOUNS[of], 12)) for _ in range(n)]


def scores(shift: float, seed: int, n: int = 100, n_unseen: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Of asked and of unseen texts; a shift of 1 is a standard deviation."""
    rng = np.random.default_rng(seed)
    return rng.normal(-2 + 3 * shift, 3, n), rng.normal(-2, 3, n_unseen)


def made(n: int = 100, n_unseen: int = 60, others: slice = slice(None)) -> TextTest:
    """Of texts that are much more predictable than the unseen ones."""
    rng = np.random.default_rng(0)
    return text_test(*scores(1.0, 0, n, n_unseen), texts(n, rng), texts(n_unseen, rng, others))


def by_permutation(asked: np.ndarray, unseen: np.ndarray) -> float:
    """Of the mean rank of the asked, by random splits of all."""
    rng, pooled = np.random.default_rng(0), np.concatenate([asked, unseen])
    ranks = pooled.argsort().argsort()
    drawn = np.array([rng.permuted(ranks)[: len(asked)].sum() for _ in range(20_000)])
    return float((drawn >= ranks[: len(asked)].sum()).mean())


@pytest.mark.parametrize("shift", [0.0, TEXT_TOLERANCE, 0.35, 0.5])
def test_the_pvalue_is_that_of_random_splits_after_the_tolerance(shift: float) -> None:
    asked, unseen = scores(shift, 1, 80, 40)
    expected = by_permutation(asked - TEXT_TOLERANCE * unseen.std(ddof=1), unseen)
    found = more_predictable(asked, unseen)
    assert found.pvalue == pytest.approx(expected, abs=0.01)
    assert found.mean == pytest.approx((asked.mean() - unseen.mean()) / unseen.std(ddof=1))


def test_no_more_than_a_hundredth_of_clean_benchmarks_have_evidence() -> None:
    found = [more_predictable(*scores(TEXT_TOLERANCE, seed)).pvalue for seed in range(3_000)]
    # a binomial count of 1 % of 3,000 is 47 or more with a probability of .002
    assert 15 <= sum(pvalue <= 0.01 for pvalue in found) <= 46
    without_difference = [more_predictable(*scores(0.0, seed)).pvalue for seed in range(3_000)]
    assert sum(pvalue <= 0.01 for pvalue in without_difference) <= 15


def test_texts_that_are_much_more_predictable_are_found() -> None:
    assert np.mean([more_predictable(*scores(1.0, seed)).pvalue < 0.001 for seed in range(100)]) > 0.9
    assert made().pvalue < 0.001


def test_the_error_of_the_mean_is_that_of_repetitions() -> None:
    found = [more_predictable(*scores(0.5, seed)) for seed in range(1_000)]
    assert np.std([one.mean for one in found]) == pytest.approx(np.mean([one.mean_error for one in found]), rel=0.1)


def test_questions_that_can_be_told_apart_are_not_tested() -> None:
    found = made(others=slice(150, None))
    assert math.isnan(found.pvalue)
    assert found.withheld.startswith("without any model they can be told from the benchmark's by ")


def test_questions_of_one_pool_are_told_apart_as_often_as_stated() -> None:
    rng = np.random.default_rng(2)
    found = [bool(told_apart(texts(60, rng), texts(40, rng))) for _ in range(60)]
    # 60 draws of .05: 8 or more with a probability of .01
    assert sum(found) <= 8


def test_a_classifier_tells_topics_apart_and_a_few_other_questions_not() -> None:
    rng = np.random.default_rng(3)
    assert classified(texts(60, rng, slice(0, 150)), texts(60, rng, slice(150, None))) < 1e-6
    mixed = texts(40, rng, slice(0, 150)) + texts(3, rng, slice(150, None))
    assert classified(mixed, texts(40, rng, slice(0, 150))) > APART_AT


@pytest.mark.parametrize(
    ("change", "by"),
    [
        (str.title, "capitals"),
        (lambda text: text.replace(" ", ", "), "punctuation"),
        (lambda text: f"{text} {text[::-1]}", "words that no other question has"),
    ],
)
def test_whatever_a_model_sees_without_memory_tells_questions_apart(change: Callable[[str], str], by: str) -> None:
    rng = np.random.default_rng(5)
    asked, unseen = texts(60, rng), [change(one) for one in texts(40, rng)]
    found = told_apart(asked, unseen)
    assert found.startswith((by, "their characters"))
    assert "(p = " in found
    assert told_apart(asked, texts(40, rng)) == ""


@pytest.mark.parametrize(("n", "n_unseen"), [(FEWEST_TEXTS - 1, 60), (60, FEWEST_TEXTS - 1)])
def test_too_few_texts_are_not_tested(n: int, n_unseen: int) -> None:
    found = made(n, n_unseen)
    assert math.isnan(found.pvalue)
    assert f"have scored {n} asked and {n_unseen} unseen texts" in found.withheld


def test_equal_scores_are_not_tested() -> None:
    rng = np.random.default_rng(4)
    found = text_test([1.0] * 30, [0.0] * 30, texts(30, rng), texts(30, rng))
    assert math.isnan(found.pvalue)
    assert found.withheld.startswith("all unseen texts have the same score")


def test_texts_without_a_letter_are_alike() -> None:
    assert told_apart(["?"] * 20, ["?"] * 20) == ""
