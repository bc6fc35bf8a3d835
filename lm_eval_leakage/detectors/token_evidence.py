"""Membership inference from token log-probabilities: mean log-likelihood, Min-K% and Min-K%++ of the published text,
the question with its options, in which every token is scored; and its log-likelihood as a row of JSON, by which a
benchmark is compared with questions that the model cannot have seen (`stats.unseen_texts`).

Null hypothesis: none, and so no p-value and no flag; the values rank questions and need a calibration set of
known-unseen questions. A higher value means more leakage. Limits: any text that is easy to predict has high values,
seen or not, so domain, style and length affect them; needs a backend that gives the full next-token distribution.
Source: Min-K% of Shi et al. (arXiv 2310.16789); Min-K%++ of Zhang et al. (arXiv 2404.02936), whose z-score of a token
is (log p(token) - mean) / standard deviation of log p(v), with v drawn from the model's own next-token distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lm_eval_leakage.detectors import Probe, Statistic, check_shares, probes, statistics
from lm_eval_leakage.questions.rendering import JSON_ROW, option_format, whole_text
from lm_eval_leakage.records import (
    Answered,
    DeclaredRow,
    Measurement,
    Question,
    Request,
    Skipped,
    TokenScores,
    UntestableQuestion,
)
from lm_eval_leakage.stats.pooling import Floats, mean_row


@probes.register("published_text")
@dataclass(frozen=True)
class PublishedText(Probe):
    """Two requests without a context: the whole text, and the same as a row of JSON, as a crawl may hold it.

    format: as in `option_orders`
    """

    needs: ClassVar[str] = "token_scores"
    format: str | None = None

    def __post_init__(self) -> None:
        option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        if not question.options:
            raise UntestableQuestion("it has no options")
        return (Request("", whole_text(question, self.format)), Request("", whole_text(question, layout=JSON_ROW)))


K = 20.0  # percent of a text's tokens, in the range of both papers


@dataclass(frozen=True)
class TokenMeasurement(Measurement):
    """mean_loglikelihood: nats per token
    mean_zscore: mean z-score of all tokens (Min-K%++ with k = 100 %)
    min_k: mean log-probability of the k % least likely tokens, nats
    min_k_zscore: mean of the k % lowest z-scores (Min-K%++)
    n_tokens: number of scored tokens
    json_loglikelihood: nats of all tokens of the text as a row of JSON
    """

    ranks_by: ClassVar[tuple[str, ...]] = ("mean_loglikelihood", "mean_zscore", "min_k", "min_k_zscore")
    mean_loglikelihood: float
    mean_zscore: float
    min_k: float
    min_k_zscore: float
    n_tokens: int
    json_loglikelihood: float


@statistics.register("token_evidence")
@dataclass(frozen=True)
class TokenEvidence(Statistic):
    """k: percentage of the tokens that count as the least likely; at least one token does"""

    probe: ClassVar[str] = "published_text"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row("mean_loglikelihood", "Log-likelihood per token of the published text, nats"),
        mean_row("mean_zscore", "Min-K%++ with k = 100 %: z-score of the tokens of the published text"),
        mean_row("min_k", "Min-K%: log-probability of the k % least likely tokens, nats"),
        mean_row("min_k_zscore", "Min-K%++: the k % lowest z-scores of tokens"),
    )
    k: float = K

    def __post_init__(self) -> None:
        check_shares(100, k=self.k)

    def verdict(self, question: Answered) -> TokenMeasurement | Skipped:
        tokens, in_json = question.tokens
        loglikelihoods = np.array(tokens.loglikelihoods)
        if not len(loglikelihoods):
            return Skipped("its text has no scored token")
        zscores = z_scores(tokens)
        return TokenMeasurement(
            float(loglikelihoods.mean()),
            float(zscores.mean()),
            self._lowest(loglikelihoods),
            self._lowest(zscores),
            len(loglikelihoods),
            float(sum(in_json.loglikelihoods)),
        )

    def _lowest(self, scores: Floats) -> float:
        count = max(1, int(len(scores) * self.k / 100))
        return float(np.sort(scores)[:count].mean())


def z_scores(tokens: TokenScores) -> Floats:
    """Min-K%++ z-score of each token; 0 where the model is certain of the next token (standard deviation 0)."""
    own, mean, deviation = (np.array(c) for c in (tokens.loglikelihoods, tokens.means, tokens.deviations))
    scores: Floats = np.divide(own - mean, deviation, out=np.zeros_like(own), where=deviation > 1e-6)
    return scores
