"""Tests whether a model predicts the texts of a benchmark better than those of questions that it cannot have seen.

The score of a text is its log-likelihood per character minus that by a reference model, so that whatever makes a text
easy for any model (topic, length, typing errors) counts less. A text is scored as the benchmark shows it and as a row
of JSON, since memory is strongest in the layout that was seen. The gain of a model over the reference depends on the
text's difficulty for the reference and on its length, so a linear fit of both is subtracted. Null hypothesis: the
questions of the benchmark and the unseen ones are random draws from one pool, up to a difference of `TEXT_TOLERANCE`
standard deviations. The one-sided rank-sum test of both groups' scores is then valid, since the fit does not use the
groups. Families of questions are one unit, with their mean log-likelihoods.

Whether both groups are from one pool is tested without a model: by the properties of `exchangeability`, by their
characters, and by capitals, punctuation and rare words. The test of characters is a regression on all other questions:
it asks whether the regression predicts the group of a question better than with permuted groups. If any of these tests
rejects, there is no verdict, since a model may find one group easier for the same reason. Limits: a difference that
none of these tests detects and the reference does not share, such as a topic that the reference knows better, is
covered only by the tolerance. A reference that has seen the benchmark hides memory.
Sources: why a test of membership must be compared with one that has no model, Das et al. (arXiv 2406.16201); Mann and
Whitney (1947); Holm (1979); leave-one-out predictions of a regression in closed form, Allen (1974).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.stats.order_sum import adjusted_by_holm
from lm_eval_leakage.stats.pooling import NAN, Floats

TEXT_TOLERANCE = 0.1  # standard deviations of the unseen questions' scores: docs/validity.md
FEWEST_TEXTS = 20  # families of either group
APART_AT = 0.05  # probability of separating questions of one pool
RIDGE, PERMUTATIONS = 10.0, 999  # a penalty of .1 or 1 separated fewer mixtures of two benchmarks
MOST_CLASSIFIED = 2_000  # texts drawn from either group


@dataclass(frozen=True)
class ComparedText:
    """The text of a question, or of the first question of a family; it is scored by two models, which are compared.

    model, reference: log-likelihood by the model and by the reference, nats per character, in each layout
    """

    text: str
    model: tuple[float, ...]
    reference: tuple[float, ...]


@dataclass(frozen=True)
class TextTest:
    """The result of the test of whole texts; it has no p-value if the groups cannot be compared.

    n, n_unseen: numbers of families of the benchmark's and of unseen questions
    pvalue: NaN if it is withheld
    mean, mean_error: the benchmark's mean score minus that of the unseen questions, in standard deviations of the
        latter, and its standard error
    withheld: why there is no p-value, as part of a sentence; empty if there is one
    """

    n: int
    n_unseen: int
    pvalue: float = NAN
    mean: float = NAN
    mean_error: float = NAN
    withheld: str = ""


def text_test(benchmark: Sequence[ComparedText], unseen: Sequence[ComparedText]) -> TextTest:
    """Test the texts of a benchmark against unseen ones. Both groups have one text per family."""
    n, n_unseen = len(benchmark), len(unseen)
    if min(n, n_unseen) < FEWEST_TEXTS:
        few = (
            f"the model and the reference have scored {n} texts of the benchmark and {n_unseen} unseen ones; at least "
            f"{FEWEST_TEXTS} of either are needed (`--reference pretrained=OTHER`, which scores the texts, too)"
        )
        return TextTest(n, n_unseen, withheld=few)
    if not np.ptp(_gains(unseen), axis=0).any():
        return TextTest(
            n, n_unseen, withheld="all unseen texts have the same score, as if the reference were the model"
        )
    difference = group_difference([text.text for text in benchmark], [text.text for text in unseen])
    if difference:
        withheld = f"without any model they can be distinguished from the benchmark's by {difference}"
        return TextTest(n, n_unseen, withheld=withheld)
    scores = text_scores([*benchmark, *unseen])
    return more_predictable(scores[:n], scores[n:])


def text_scores(texts: Sequence[ComparedText]) -> Floats:
    """Return a score per text, `(n_texts,)`: the mean over layouts of its standardised gain over the reference, minus
    the value of a linear fit to all texts. The fit is on the reference's log-likelihood and on 1 / sqrt(length)."""
    gained = _gains(texts)
    deviation = gained.std(axis=0)
    standard = np.divide(gained - gained.mean(axis=0), deviation, out=np.zeros_like(gained), where=deviation > 0)
    mean_gains = standard.mean(axis=1)
    predictors = np.array([(1.0, text.reference[0], max(1, len(text.text)) ** -0.5) for text in texts])
    scores: Floats = mean_gains - predictors @ np.linalg.lstsq(predictors, mean_gains, rcond=None)[0]
    return scores


def _gains(texts: Sequence[ComparedText]) -> Floats:
    """Return log-likelihoods minus those of the reference, nats per character, `(n_texts, n_layouts)`."""
    gained: Floats = np.array([text.model for text in texts]) - np.array([text.reference for text in texts])
    return gained


def more_predictable(benchmark: Sequence[float] | Floats, unseen: Sequence[float] | Floats) -> TextTest:
    """Test whether the benchmark's scores are higher than the unseen questions', which must not all be equal."""
    from scipy.stats import mannwhitneyu  # takes a second

    scores, unseen_scores = np.array(benchmark), np.array(unseen)
    deviation = float(unseen_scores.std(ddof=1))
    tested = mannwhitneyu(scores - TEXT_TOLERANCE * deviation, unseen_scores, alternative="greater")
    mean = float(scores.mean() - unseen_scores.mean()) / deviation
    error = math.hypot(
        float(scores.std(ddof=1)) / deviation / math.sqrt(len(scores)), 1 / math.sqrt(len(unseen_scores))
    )
    return TextTest(len(scores), len(unseen_scores), float(tested.pvalue), mean, error)


def group_difference(benchmark: Sequence[str], unseen: Sequence[str]) -> str:
    """Return the clearest difference between two groups of texts, in words with its p-value; empty without one."""
    texts = [*benchmark, *unseen]
    words = [re.findall(r"\w+", text.casefold()) for text in texts]
    counts = Counter(word for text_words in words for word in set(text_words))
    properties = {
        "capitals": [_share(map(str.isupper, text)) for text in texts],
        "punctuation": [
            _share(not (character.isalnum() or character.isspace()) for character in text) for text in texts
        ],
        "words that no other question has": [_share(counts[word] == 1 for word in text_words) for text_words in words],
    }
    from scipy.stats import ks_2samp

    n = len(benchmark)
    pvalues = {"their characters": classified(benchmark, unseen)}
    for name, values in properties.items():
        pvalues[name] = float(ks_2samp(values[:n], values[n:]).pvalue)
    adjusted = dict(zip(pvalues, adjusted_by_holm(list(pvalues.values())), strict=True))
    clearest = min(adjusted, key=lambda name: adjusted[name])
    return f"{clearest} (p = {adjusted[clearest]:.1g})" if adjusted[clearest] <= APART_AT else ""


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 0.0


def classified(benchmark: Sequence[str], unseen: Sequence[str]) -> float:
    """Return the permutation p-value of a ridge regression of the group on the characters of a text.

    The statistic is the rank sum of the unseen texts' leave-one-out predictions.
    """
    from scipy.stats import rankdata
    from sklearn.feature_extraction.text import TfidfVectorizer

    rng = np.random.default_rng(0)
    in_any_order = sorted(benchmark), sorted(unseen)  # so that no draw depends on the order of the logs
    groups = [[texts[at] for at in rng.permutation(len(texts))[:MOST_CLASSIFIED]] for texts in in_any_order]
    features = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(1, 3), lowercase=False)
    weights = features.fit_transform([text for texts in groups for text in texts])
    group = np.repeat([0.0, 1.0], [len(texts) for texts in groups])
    labels = np.stack([group, *(rng.permutation(group) for _ in range(PERMUTATIONS))], axis=1)
    sums = (rankdata(predicted_by_others((weights @ weights.T).toarray(), labels), axis=0) * labels).sum(axis=0)
    return float((1 + (sums[1:] >= sums[0]).sum()) / (1 + PERMUTATIONS))


def predicted_by_others(similar: Floats, labels: Floats) -> Floats:
    """Return the prediction of each row by a ridge regression on all other rows, in closed form, `(n, n_labellings)`.

    similar: inner products of the rows' features, `(n, n)`
    labels: the labels of the rows, one column per labelling, `(n, n_labellings)`
    """
    n = len(similar)
    centred = similar - similar.mean(axis=0) - similar.mean(axis=1)[:, None] + similar.mean()
    smoother = np.linalg.solve(centred + RIDGE * np.eye(n), centred) + 1 / n
    leverage = np.diag(smoother)[:, None]
    predicted: Floats = (smoother @ labels - leverage * labels) / (1 - leverage)
    return predicted
