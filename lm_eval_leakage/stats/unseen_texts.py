"""Are the texts of a benchmark more predictable to a model than those of questions that it cannot have seen?

The score of a text is its log-likelihood per character minus that by a reference model, so that what makes a text easy
for any model (topic, length, typing errors) counts less; as the benchmark shows it and as a row of JSON, since the
layout in which it was read counts most. How much a model gains on any text depends on how hard that is for the
reference and on its length: what a linear fit expects of them is taken off. Null hypothesis: the asked and the unseen
questions are random draws from one pool, up to a difference of `TEXT_TOLERANCE` standard deviations; then the
one-sided rank-sum test of both groups' scores is valid, since the fit does not know who is of which group. Families of
questions are one unit, with their mean log-likelihoods.

Whether they are from one pool is tested without a model: by the properties of `exchangeability`, and by their
characters. Does a regression on all other questions tell to which group a question belongs, better than with permuted
groups? Capitals, punctuation and rare words are compared, too. Where the groups are told apart, nothing is tested,
since a model may find the one easier for the same reason. Limits: what none of this shows and the reference does not
share, such as a topic that it knows better, is held by the tolerance alone; a reference that has seen the benchmark
hides it.
Sources: why a test of membership must be compared with one that has no model, Das et al. (arXiv 2406.16201); Mann and
Whitney (1947); Holm (1979); what a regression without a row says of it, in closed form, Allen (1974).
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
APART_AT = 0.05  # chance that questions of one pool are told apart
RIDGE, PERMUTATIONS = 10.0, 999  # with .1 and 1, fewer mixtures of two benchmarks were told apart
MOST_CLASSIFIED = 2_000  # of either group, drawn


@dataclass(frozen=True)
class ScoredText:
    """A question, or the first one of a family.

    own, reference: log-likelihood by the model and by the reference, nats per character, in each layout
    """

    text: str
    own: tuple[float, ...]
    reference: tuple[float, ...]


@dataclass(frozen=True)
class TextTest:
    """n, n_unseen: families of asked and of unseen questions
    pvalue: NaN where it is withheld
    mean: how much higher the asked questions' mean score is, in standard deviations of the unseen ones', and its
        standard error
    withheld: why there is no p-value, as part of a sentence; empty if there is one
    """

    n: int
    n_unseen: int
    pvalue: float = NAN
    mean: float = NAN
    mean_error: float = NAN
    withheld: str = ""


def text_test(asked: Sequence[ScoredText], unseen: Sequence[ScoredText]) -> TextTest:
    """asked, unseen: one text of each family"""
    n, n_unseen = len(asked), len(unseen)
    if min(n, n_unseen) < FEWEST_TEXTS:
        few = (
            f"the model and the reference have scored {n} asked and {n_unseen} unseen texts, and at least "
            f"{FEWEST_TEXTS} of either are needed (`--reference pretrained=OTHER`, of which the texts are asked, too)"
        )
        return TextTest(n, n_unseen, withheld=few)
    if not np.ptp(_gains(unseen), axis=0).any():
        return TextTest(
            n, n_unseen, withheld="all unseen texts have the same score, as if the reference were the model"
        )
    if by := told_apart(*([one.text for one in group] for group in (asked, unseen))):
        return TextTest(n, n_unseen, withheld=f"without any model they can be told from the benchmark's by {by}")
    scores = text_scores([*asked, *unseen])
    return more_predictable(scores[:n], scores[n:])


def text_scores(texts: Sequence[ScoredText]) -> Floats:
    """Of each, the mean over layouts of the standardised difference from the reference, minus what a linear fit to all
    of them expects of the reference's own log-likelihood and of 1 / sqrt(length); `(n_texts,)`."""
    gained = _gains(texts)
    deviation = gained.std(axis=0)
    standard = np.divide(gained - gained.mean(axis=0), deviation, out=np.zeros_like(gained), where=deviation > 0)
    found = standard.mean(axis=1)
    known = np.array([(1.0, one.reference[0], max(1, len(one.text)) ** -0.5) for one in texts])
    scores: Floats = found - known @ np.linalg.lstsq(known, found, rcond=None)[0]
    return scores


def _gains(texts: Sequence[ScoredText]) -> Floats:
    gained: Floats = np.array([one.own for one in texts]) - np.array([one.reference for one in texts])
    return gained


def more_predictable(asked: Sequence[float] | Floats, unseen: Sequence[float] | Floats) -> TextTest:
    """Of scores of one pool; those of the unseen ones must differ."""
    from scipy.stats import mannwhitneyu  # takes a second

    own, others = np.array(asked), np.array(unseen)
    deviation = float(others.std(ddof=1))
    tested = mannwhitneyu(own - TEXT_TOLERANCE * deviation, others, alternative="greater")
    mean = float(own.mean() - others.mean()) / deviation
    error = math.hypot(float(own.std(ddof=1)) / deviation / math.sqrt(len(own)), 1 / math.sqrt(len(others)))
    return TextTest(len(own), len(others), float(tested.pvalue), mean, error)


def told_apart(asked: Sequence[str], unseen: Sequence[str]) -> str:
    """By what the groups can be told apart, with the p-value; empty if they cannot."""
    texts = [*asked, *unseen]
    words = [re.findall(r"\w+", text.casefold()) for text in texts]
    known = Counter(word for own in words for word in set(own))
    properties = {
        "capitals": [_share(map(str.isupper, text)) for text in texts],
        "punctuation": [_share(not (one.isalnum() or one.isspace()) for one in text) for text in texts],
        "words that no other question has": [_share(known[word] == 1 for word in own) for own in words],
    }
    from scipy.stats import ks_2samp

    found = {"their characters": classified(asked, unseen)} | {
        name: float(ks_2samp(own[: len(asked)], own[len(asked) :]).pvalue) for name, own in properties.items()
    }
    adjusted = dict(zip(found, adjusted_by_holm(list(found.values())), strict=True))
    clearest = min(adjusted, key=lambda name: adjusted[name])
    return f"{clearest} (p = {adjusted[clearest]:.1g})" if adjusted[clearest] <= APART_AT else ""


def _share(found: Iterable[bool]) -> float:
    values = list(found)
    return sum(values) / len(values) if values else 0.0


def classified(asked: Sequence[str], unseen: Sequence[str]) -> float:
    """The p-value by permutation of a ridge regression of the group on characters: whether what it says of a question
    by all others is higher for the unseen ones than with labels exchanged at random."""
    from scipy.stats import rankdata
    from sklearn.feature_extraction.text import TfidfVectorizer

    rng = np.random.default_rng(0)
    in_any_order = sorted(asked), sorted(unseen)  # so that no draw depends on which log has a question first
    groups = [[own[at] for at in rng.permutation(len(own))[:MOST_CLASSIFIED]] for own in in_any_order]
    features = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(1, 3), lowercase=False)
    found = features.fit_transform([text for own in groups for text in own])
    group = np.repeat([0.0, 1.0], [len(own) for own in groups])
    labels = np.stack([group, *(rng.permutation(group) for _ in range(PERMUTATIONS))], axis=1)
    sums = (rankdata(predicted_by_others((found @ found.T).toarray(), labels), axis=0) * labels).sum(axis=0)
    return float((1 + (sums[1:] >= sums[0]).sum()) / (1 + PERMUTATIONS))


def predicted_by_others(similar: Floats, labels: Floats) -> Floats:
    """What a ridge regression without a row says of it, in closed form.

    similar: inner products of the rows' features, `(n, n)`; labels: `(n, n_labellings)`
    """
    n = len(similar)
    centred = similar - similar.mean(axis=0) - similar.mean(axis=1)[:, None] + similar.mean()
    smoother = np.linalg.solve(centred + RIDGE * np.eye(n), centred) + 1 / n
    own = np.diag(smoother)[:, None]
    predicted: Floats = (smoother @ labels - own * labels) / (1 - own)
    return predicted
