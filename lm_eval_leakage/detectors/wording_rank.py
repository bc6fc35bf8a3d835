"""Is the published wording of a sealed question likelier than its private ones, over many questions?

The author gave several wordings of the stem, of which a secret key drew the public one. Each wording's score is its
log-likelihood per byte, so that long wordings are not at a disadvantage, standardised over the question's wordings, so
that each question counts alike, however differently its wordings read. T is the sum over questions of exp(score of the
published one), as for option orders (`stats.order_sum`).

Null hypothesis: given its wordings, each is equally likely to be the public one, exactly, so that a model that never
saw the published version prefers it no more than another, whatever it knows and however well the wordings read.
Limits: needs the private folder and two wordings or more of a question; with k + 1 wordings a question is flagged by
chance with probability 1 / (k + 1), so that single flags mean little; wordings that read very differently hide a faint
memory; a paraphrase in training leaves no preference. Only stems are shown, so that the result depends on no other
draw of the key. The log holds the private wordings. Source: keyed rewordings, STAMP (arXiv 2504.13416), with a paired
t-test; the exact test by drawing what is published, Zhang et al. (arXiv 2409.19798); its score is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from lm_eval_leakage.detectors import Probe, Statistic, probes, statistics
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence, Question, Request, UntestableQuestion
from lm_eval_leakage.registry import OUTSIDE_ID
from lm_eval_leakage.stats.order_sum import OrderSum, standard_scores, version_sum
from lm_eval_leakage.stats.pooling import FLAGGED_RATE, NULL_RATE_ROW, Verdicts, row_with_error


def no_wordings(question: Question) -> Sequence[str]:
    """Raise UntestableQuestion for a question without a seal."""
    raise UntestableQuestion("it has no private wordings without a seal; give --metadata seal=PRIVATE_FOLDER")


@probes.register("wordings")
@dataclass(frozen=True)
class Wordings(Probe):
    """Sends a request for each wording of the stem, which is the continuation; request 0 has the public one.

    stem_prefix: text before the stem; the default is none, as at the beginning of a document
    """

    needs_seal: ClassVar[bool] = True
    stem_prefix: str = ""
    of: Callable[[Question], Sequence[str]] = field(
        default=no_wordings, repr=False, compare=False, metadata=OUTSIDE_ID
    )

    def __post_init__(self) -> None:
        if not isinstance(self.stem_prefix, str):
            raise ValueError(f"stem_prefix is {self.stem_prefix!r}; give a text to stand before it, or leave it out")

    def with_wordings(self, of: Callable[[Question], Sequence[str]]) -> Probe:
        return replace(self, of=of)

    def requests(self, question: Question) -> tuple[Request, ...]:
        texts = [wording.strip() for wording in self.of(question)]
        if len(texts) < 2:
            raise UntestableQuestion("its author gave one wording; at least 2 are needed")
        if len(set(texts)) < len(texts):
            raise UntestableQuestion("two of its wordings are the same, which makes that one likelier to be public")
        start = " " if self.stem_prefix and not self.stem_prefix[-1].isspace() else ""
        return tuple(Request(self.stem_prefix, start + text) for text in texts)


@dataclass(frozen=True)
class WordingEvidence(Evidence):
    """Records whether the published wording is the most likely one.

    flagged: no private wording is as likely per byte as the published one
    pvalue: rank of the published wording over the number of wordings; ties rank it lower
    wording_z: score of the published wording, standardised over the question's wordings; 0 if all are equal
    n_wordings: number of compared wordings
    scores: nats per byte, the published one first
    """

    ranked_by: ClassVar[str] = "wording_z"
    wording_z: float
    n_wordings: int
    scores: tuple[float, ...]


def wording_scores(loglikelihoods: Sequence[float], texts: Sequence[str]) -> tuple[float, ...]:
    """Return the log-likelihood of each text in nats per byte (UTF-8)."""
    sizes = [len(text.encode("utf-8", "surrogatepass")) for text in texts]
    return tuple(loglikelihood / size for loglikelihood, size in zip(loglikelihoods, sizes, strict=True))


def _sum_of(verdicts: Verdicts) -> OrderSum:
    return version_sum([verdict.scores for verdict in verdicts if isinstance(verdict, WordingEvidence)])


def _effect(verdicts: Verdicts) -> tuple[float, float]:
    result = _sum_of(verdicts)
    return result.mean, result.mean_error


WORDING_ROWS = (
    row_with_error(
        "wording_effect",
        "Standard deviations of a question's wordings by which the published one is likelier than their mean, per "
        "byte; mean over questions. 0 is expected without leakage.",
        _effect,
        higher_is_better=False,
    ),
    DeclaredRow(
        "wording_pvalue",
        "Probability, without leakage, of such a preference for the published wordings: exact, over all keys.",
        lambda verdicts: _sum_of(verdicts).pvalue,
        higher_is_better=True,
    ),
)


@statistics.register("wording_rank")
@dataclass(frozen=True)
class WordingRank(Statistic):
    """Compares the published wording of each question with its private ones."""

    probe: ClassVar[str] = "wordings"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (*WORDING_ROWS, FLAGGED_RATE, NULL_RATE_ROW)

    def verdict(self, question: Answered) -> WordingEvidence:
        texts = [request.continuation for request in question.requests]
        scores = wording_scores(question.answers, texts)
        rank, n = sum(score >= scores[0] for score in scores), len(scores)
        standard = standard_scores(np.array(scores))
        z = 0.0 if standard is None else float(standard[0])
        return WordingEvidence(rank == 1, rank / n, 1 / n, z if math.isfinite(z) else 0.0, n, scores)
