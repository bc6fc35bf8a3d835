"""Texts beside those of unseen questions: the test of scores, and that of their words, which goes before it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lm_eval_leakage.stats.unseen_texts import (
    APART_AT,
    FEWEST_TEXTS,
    TEXT_TOLERANCE,
    TextTest,
    more_predictable,
    text_test,
    told_apart,
    words_of,
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


def test_questions_that_their_words_tell_apart_are_not_tested() -> None:
    found = made(others=slice(150, None))
    assert math.isnan(found.pvalue)
    assert "their words alone tell them from the benchmark's (AUROC 0." in found.withheld


def test_words_tell_questions_of_one_pool_apart_as_often_as_stated() -> None:
    rng = np.random.default_rng(2)
    found = [told_apart(texts(60, rng), texts(40, rng))[1] <= APART_AT for _ in range(60)]
    # 60 draws of .05: 8 or more with a probability of .01
    assert sum(found) <= 8


def test_other_topics_are_told_apart_and_a_few_other_questions_are_not() -> None:
    rng = np.random.default_rng(3)
    share, pvalue = told_apart(texts(60, rng, slice(0, 150)), texts(60, rng, slice(150, None)))
    assert (share > 0.9, pvalue < 1e-6) == (True, True)
    mixed = texts(40, rng, slice(0, 150)) + texts(3, rng, slice(150, None))
    assert told_apart(mixed, texts(40, rng, slice(0, 150)))[1] > APART_AT


@pytest.mark.parametrize(("n", "n_unseen"), [(FEWEST_TEXTS - 1, 60), (60, FEWEST_TEXTS - 1)])
def test_too_few_texts_are_not_tested(n: int, n_unseen: int) -> None:
    found = made(n, n_unseen)
    assert math.isnan(found.pvalue)
    assert f"{n} asked and {n_unseen} unseen texts were scored" in found.withheld


def test_equal_scores_are_not_tested() -> None:
    rng = np.random.default_rng(4)
    found = text_test([1.0] * 30, [0.0] * 30, texts(30, rng), texts(30, rng))
    assert (math.isnan(found.pvalue), found.withheld) == (True, "all unseen texts have the same score")


def test_words_are_those_of_any_script() -> None:
    assert words_of("Who's there?") == ["who", "s", "there"]
    assert words_of("水の色 blue 5") == ["水", "の", "色", "blue", "5"]
    assert words_of("∑ = ?") == [""]
    assert told_apart(["?"] * 20, ["!"] * 20)[1] > APART_AT
