"""Texts beside those of unseen questions: the test of scores, and those without a model, which go before it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.preprocessing import StandardScaler

from lm_eval_leakage.stats import unseen_texts
from lm_eval_leakage.stats.unseen_texts import (
    APART_AT,
    FEWEST_TEXTS,
    PERMUTATIONS,
    RIDGE,
    TEXT_TOLERANCE,
    ComparedText,
    TextTest,
    classified,
    group_difference,
    more_predictable,
    predicted_by_others,
    text_scores,
    text_test,
)

NOUNS = [f"noun{number}" for number in range(300)]


def texts(n: int, rng: np.random.Generator, of: slice = slice(None)) -> list[str]:
    return [" ".join(rng.choice(NOUNS[of], 12)) for _ in range(n)]


def scores(shift: float, seed: int, n: int = 100, n_unseen: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return scores of asked and of unseen texts; a shift of 1 is a standard deviation."""
    rng = np.random.default_rng(seed)
    return rng.normal(-2 + 3 * shift, 3, n), rng.normal(-2, 3, n_unseen)


def scored(words: list[str], gains: np.ndarray, rng: np.random.Generator) -> list[ComparedText]:
    """Texts of which the model learned as much as the reference found them hard, and their gains in both layouts."""
    reference = rng.normal(-2, 0.5, (len(words), 2))
    scores = 0.8 * reference + gains + rng.normal(0, 0.1, reference.shape)
    return [ComparedText(*parts) for parts in zip(words, map(tuple, scores), map(tuple, reference), strict=True)]


def made(n: int = 100, n_unseen: int = 60, others: slice = slice(None)) -> TextTest:
    """Return the test of texts that were read as rows of JSON, beside unseen ones."""
    rng = np.random.default_rng(1)
    texts_asked = scored(texts(n, rng), np.array([0.0, 0.2]), rng)
    return text_test(texts_asked, scored(texts(n_unseen, rng, others), np.zeros(2), rng))


def by_permutation(scores_asked: np.ndarray, unseen: np.ndarray) -> float:
    """Return the p-value of the mean rank of the asked texts, by random splits of all."""
    rng, pooled = np.random.default_rng(0), np.concatenate([scores_asked, unseen])
    ranks = pooled.argsort().argsort()
    drawn = np.array([rng.permuted(ranks)[: len(scores_asked)].sum() for _ in range(20_000)])
    return float((drawn >= ranks[: len(scores_asked)].sum()).mean())


@pytest.mark.parametrize("shift", [0.0, TEXT_TOLERANCE, 0.35, 0.5])
def test_the_pvalue_is_that_of_random_splits_after_the_tolerance(shift: float) -> None:
    scores_asked, unseen = scores(shift, 1, 80, 40)
    expected = by_permutation(scores_asked - TEXT_TOLERANCE * unseen.std(ddof=1), unseen)
    result = more_predictable(scores_asked, unseen)
    assert result.pvalue == pytest.approx(expected, abs=0.01)
    assert result.mean == pytest.approx((scores_asked.mean() - unseen.mean()) / unseen.std(ddof=1))


def test_no_more_than_a_hundredth_of_clean_benchmarks_have_evidence() -> None:
    pvalues = [more_predictable(*scores(TEXT_TOLERANCE, seed)).pvalue for seed in range(3_000)]
    # a binomial count of 1 % of 3,000 is 47 or more with a probability of .002
    assert 15 <= sum(pvalue <= 0.01 for pvalue in pvalues) <= 46
    without_difference = [more_predictable(*scores(0.0, seed)).pvalue for seed in range(3_000)]
    assert sum(pvalue <= 0.01 for pvalue in without_difference) <= 15


def test_texts_that_are_much_more_predictable_are_found() -> None:
    assert np.mean([more_predictable(*scores(1.0, seed)).pvalue < 0.001 for seed in range(100)]) > 0.9
    assert made().pvalue < 0.001


def test_the_error_of_the_mean_is_that_of_repetitions() -> None:
    results = [more_predictable(*scores(0.5, seed)) for seed in range(1_000)]
    assert np.std([result.mean for result in results]) == pytest.approx(
        np.mean([result.mean_error for result in results]), rel=0.1
    )


def of_one_pool(n: int, seed: int) -> list[ComparedText]:
    rng = np.random.default_rng(seed)
    return scored(texts(n, rng), np.zeros(2), rng)


def test_scores_are_what_a_linear_fit_leaves_of_the_mean_gain() -> None:
    every = [*of_one_pool(60, 0), *scored(texts(20, np.random.default_rng(1)), np.ones(2), np.random.default_rng(2))]
    gained = StandardScaler().fit_transform([np.subtract(text.model, text.reference) for text in every]).mean(axis=1)
    regressors = [(text.reference[0], len(text.text) ** -0.5) for text in every]
    expected = gained - LinearRegression().fit(regressors, gained).predict(regressors)
    assert text_scores(every) == pytest.approx(expected)


def test_unseen_texts_that_are_harder_for_the_reference_are_no_evidence() -> None:
    """A model that learned something since gains most on hard texts."""
    every = sorted(of_one_pool(160, 0), key=lambda text: text.reference[0])
    gained = np.array([np.subtract(text.model, text.reference).mean() for text in every])
    assert more_predictable(gained[:60], gained[60:]).pvalue < 0.001
    values = text_scores(every)
    assert more_predictable(values[:60], values[60:]).pvalue > 0.05


def test_a_text_that_a_model_and_its_reference_find_as_likely_in_a_layout_counts_0_there() -> None:
    every = [ComparedText(text.text, (text.model[0], 1.0), (text.reference[0], 1.0)) for text in of_one_pool(40, 0)]
    alone = [ComparedText(text.text, text.model[:1], text.reference[:1]) for text in every]
    assert text_scores(every) == pytest.approx(text_scores(alone) / 2)


def test_questions_that_can_be_distinguished_are_not_tested() -> None:
    result = made(others=slice(150, None))
    assert math.isnan(result.pvalue)
    assert result.withheld.startswith("without any model they can be distinguished from the benchmark's by ")


def test_questions_of_one_pool_are_distinguished_as_often_as_stated() -> None:
    rng = np.random.default_rng(2)
    is_distinguished = [bool(group_difference(texts(60, rng), texts(40, rng))) for _ in range(60)]
    # 60 draws of .05: 8 or more with a probability of .01
    assert sum(is_distinguished) <= 8


def test_a_classifier_distinguishes_topics_and_a_few_other_questions_not() -> None:
    rng = np.random.default_rng(3)
    assert classified(texts(60, rng, slice(0, 150)), texts(60, rng, slice(150, None))) == 1 / (1 + PERMUTATIONS)
    mixed = texts(40, rng, slice(0, 150)) + texts(3, rng, slice(150, None))
    others = texts(40, rng, slice(0, 150))
    assert classified(mixed, others) > APART_AT
    assert classified(mixed[::-1], others[::-1]) == classified(mixed, others)


def test_what_others_say_of_a_row_is_a_ridge_regression_without_it() -> None:
    rng = np.random.default_rng(6)
    features, labels = rng.normal(size=(12, 5)), rng.integers(0, 2, (12, 3)).astype(float)
    others = [[at for at in range(12) if at != left_out] for left_out in range(12)]
    expected = [
        Ridge(RIDGE).fit(features[rest], labels[rest]).predict(features[[left_out]])[0]
        for left_out, rest in enumerate(others)
    ]
    assert predicted_by_others(features @ features.T, labels) == pytest.approx(np.array(expected))


def test_of_many_texts_a_draw_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are 20 ways to split 6 texts of two topics."""
    monkeypatch.setattr(unseen_texts, "MOST_CLASSIFIED", 3)
    rng = np.random.default_rng(7)
    assert classified(texts(60, rng, slice(0, 150)), texts(60, rng, slice(150, None))) > 0.02


@pytest.mark.parametrize(
    ("change", "by"),
    [
        (str.title, "capitals"),
        (lambda text: text.replace(" ", ", "), "punctuation"),
        (lambda text: f"{text} {text[::-1]}", "words that no other question has"),
    ],
)
def test_whatever_a_model_sees_without_memory_distinguishes_questions(change: Callable[[str], str], by: str) -> None:
    rng = np.random.default_rng(5)
    texts_asked, unseen = texts(60, rng), [change(text) for text in texts(40, rng)]
    difference = group_difference(texts_asked, unseen)
    assert difference.startswith((by, "their characters"))
    assert "(p = " in difference
    assert group_difference(texts_asked, texts(40, rng)) == ""


@pytest.mark.parametrize(("n", "n_unseen"), [(FEWEST_TEXTS - 1, 60), (60, FEWEST_TEXTS - 1)])
def test_too_few_texts_are_not_tested(n: int, n_unseen: int) -> None:
    result = made(n, n_unseen)
    assert math.isnan(result.pvalue)
    assert f"have scored {n} texts of the benchmark and {n_unseen} unseen ones" in result.withheld


def test_equal_scores_are_not_tested() -> None:
    same = [ComparedText(text, (-1.0, -2.0), (-1.0, -2.0)) for text in texts(30, np.random.default_rng(4))]
    result = text_test(same, same)
    assert math.isnan(result.pvalue)
    assert result.withheld.startswith("all unseen texts have the same score")


def test_texts_without_a_letter_are_alike() -> None:
    assert group_difference(["?"] * 20, ["?"] * 20) == ""
