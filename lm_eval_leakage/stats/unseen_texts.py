"""Are the texts of a benchmark more predictable to a model than those of questions that it cannot have seen?

Each text is scored by the mean z-score of its tokens (Min-K%++ with k = 100 %, `detectors.token_evidence`), in which a
token is compared with what the model expected at its place, so that the topic moves it less than the log-likelihood;
or, with a reference, by the log-likelihood per character minus that of the reference.
Null hypothesis: the asked and the unseen questions are random draws from one pool, up to a difference of
`TEXT_TOLERANCE` standard deviations; then the one-sided rank-sum test of both groups' scores is valid. Families of
questions are one unit, with their mean score.

Whether they are from one pool is tested without the model: by the properties of `known_scores`, and by their words. A
classifier is trained on the words of four fifths of the questions and tells of the others to which group they belong;
where it does better than by chance, nothing is tested, since a model may find the one group easier for the same words.
Limits: what neither words nor lengths show, such as a difficulty that no word betrays, is held by the tolerance alone.
Sources: the score of Zhang et al. (arXiv 2404.02936); why a test of membership must be compared with one that has no
model, Das et al. (arXiv 2406.16201); Mann and Whitney (1947).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.stats.pooling import NAN

TEXT_TOLERANCE = 0.1  # standard deviations of the unseen questions' scores: docs/validity.md
FEWEST_TEXTS = 20  # families of either group
APART_AT = 0.05  # chance that questions of one pool are told apart
FOLDS, SEED = 5, 0


@dataclass(frozen=True)
class TextTest:
    """n, n_unseen: families of asked and of unseen questions
    pvalue: NaN where it is withheld
    mean: how much higher the asked questions' mean score is, in standard deviations of the unseen ones', and its
        standard error
    withheld: why there is no p-value, as part of a sentence; empty if there is one
    has_reference: whether the scores are compared with another model's
    """

    n: int
    n_unseen: int
    pvalue: float = NAN
    mean: float = NAN
    mean_error: float = NAN
    withheld: str = ""
    has_reference: bool = False


def text_test(
    asked: Sequence[float], unseen: Sequence[float], asked_words: Sequence[str], unseen_words: Sequence[str]
) -> TextTest:
    """asked, unseen: the score of each family, the higher the more predictable; asked_words, unseen_words: a text of
    each."""
    n, n_unseen = len(asked), len(unseen)
    if min(n, n_unseen) < FEWEST_TEXTS:
        few = f"{n} asked and {n_unseen} unseen texts were scored, and at least {FEWEST_TEXTS} of either are needed"
        return TextTest(n, n_unseen, withheld=few)
    if not np.ptp(unseen) > 0:
        return TextTest(n, n_unseen, withheld="all unseen texts have the same score")
    share, pvalue = told_apart(asked_words, unseen_words)
    if pvalue <= APART_AT:
        apart = f"their words alone tell them from the benchmark's (AUROC {share:.2f}, p = {pvalue:.1g})"
        return TextTest(n, n_unseen, withheld=apart)
    return more_predictable(asked, unseen)


def more_predictable(asked: Sequence[float], unseen: Sequence[float]) -> TextTest:
    """Of scores of one pool; those of the unseen ones must differ."""
    from scipy.stats import mannwhitneyu  # takes a second

    own, others = np.array(asked), np.array(unseen)
    deviation = float(others.std(ddof=1))
    tested = mannwhitneyu(own - TEXT_TOLERANCE * deviation, others, alternative="greater")
    mean = float(own.mean() - others.mean()) / deviation
    error = math.hypot(float(own.std(ddof=1)) / deviation / math.sqrt(len(own)), 1 / math.sqrt(len(others)))
    return TextTest(len(own), len(others), float(tested.pvalue), mean, error)


def words_of(text: str) -> list[str]:
    """Of letters and digits; each character of a script that writes no spaces is a word."""
    return re.findall(r"[^\W\u3040-\u9fff]+|[\u3040-\u9fff]", text.casefold()) or [""]


def told_apart(asked: Sequence[str], unseen: Sequence[str]) -> tuple[float, float]:
    """AUROC of a classifier of words on questions that it was not trained on, 0.5 by chance, and its p-value."""
    from scipy.stats import mannwhitneyu
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    labels = np.repeat([0, 1], [len(asked), len(unseen)])
    classifier = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, analyzer=words_of),
        LogisticRegression(C=10.0, class_weight="balanced", max_iter=1_000),
    )
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    found = cross_val_predict(classifier, [*asked, *unseen], labels, cv=folds, method="decision_function")
    tested = mannwhitneyu(found[labels == 1], found[labels == 0], alternative="greater")
    return float(tested.statistic) / len(asked) / len(unseen), float(tested.pvalue)
