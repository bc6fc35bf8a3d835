"""Membership inference from how likely the published text is, the question with its options.

The scores are the log-probabilities of its tokens (mean, Min-K%, Min-K%++). Others relate its log-likelihood to its
zlib size, to altered forms of it (upper case, shuffled words, after unseen questions) and to a reference model. Its
log-likelihood as a row of JSON serves the comparison of a benchmark with questions that the model cannot have seen
(`stats.unseen_texts`).

Null hypothesis: none, and so no p-value and no flag; the values rank questions. A higher value means more leakage.
Limits: any text that is easy to predict has high values, seen or not, so domain, style and length affect them. No
model was trained on the altered forms, so their likelihood shows what the model knows without memorisation; scripts
without capitals have no upper-case form, and upper case changes names and formulas less than prose. Scores of tokens
need a backend that gives the full next-token distribution. Source: Min-K% of Shi et al. (arXiv 2310.16789); Min-K%++
of Zhang et al. (arXiv 2404.02936), whose z-score of a token is (log p(token) - mean) / standard deviation of log p(v),
with v drawn from the model's own next-token distribution; likelihood relative to zlib's size and to case, Carlini et
al. (arXiv 2012.07805); shuffled words, after the neighbours of Mattern et al. (arXiv 2305.18462); the prefix of unseen
questions, from ReCaLL, Xie et al. (arXiv 2406.15968); a reference model, Carlini et al. (arXiv 2112.03570).
"""

from __future__ import annotations

import json
import random
import re
import zlib
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from lm_eval_leakage import task_configs_path
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
)
from lm_eval_leakage.stats.pooling import Floats, mean_row

K = 20.0  # percent of a text's tokens, in the range of both papers
N_UNSEEN = 5  # questions before a text
WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\s\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")
NO_NATS = -1e-6  # a log-likelihood above this is too close to 0 to divide by


@probes.register("published_text")
@dataclass(frozen=True)
class PublishedText(Probe):
    """Sends two requests without a context: the whole text, and the same as a row of JSON, as a crawl may hold it.

    format: as in `option_orders`
    """

    needs: ClassVar[str] = "token_scores"
    format: str | None = None

    def __post_init__(self) -> None:
        option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        return (Request("", whole_text(question, self.format)), Request("", whole_text(question, layout=JSON_ROW)))


@dataclass(frozen=True)
class TokenMeasurement(Measurement):
    """Holds scores of the published text, made from its tokens.

    mean_loglikelihood: nats per token
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
    """Scores the published text by its tokens.

    k: percentage of the tokens that count as the least likely; at least one token does
    """

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
    """Return the Min-K%++ z-score of each token; 0 where the model is certain of it (standard deviation 0)."""
    loglikelihoods, means, deviations = map(np.array, (tokens.loglikelihoods, tokens.means, tokens.deviations))
    zeros = np.zeros_like(loglikelihoods)
    scores: Floats = np.divide(loglikelihoods - means, deviations, out=zeros, where=deviations > 1e-6)
    return scores


# ---------------------------------------------------------------------- beside other forms of the text


@probes.register("altered_text")
@dataclass(frozen=True)
class AlteredText(PublishedText):
    """Sends the whole text as published, in upper case, with its words shuffled, and as published after questions of
    our data set `fresh`, which no model has seen.

    format: as in `option_orders`
    """

    needs: ClassVar[str] = "loglikelihood"

    def requests(self, question: Question) -> tuple[Request, ...]:
        published, _ = super().requests(question)
        text = published.continuation
        return (
            published,
            Request("", text.upper()),
            Request("", shuffled(text, rng=random.Random(question.id))),
            Request(unseen_before(question), f"\n\n{text}"),
        )


def shuffled(text: str, *, rng: random.Random) -> str:
    """Return the text with its words (characters in Chinese and Japanese, which write no spaces) in random order."""
    words = WORDS.findall(text)
    rng.shuffle(words)
    return " ".join(words)


def unseen_before(question: Question) -> str:
    """Return N_UNSEEN questions that no model has seen, as one text; it never includes `question` itself."""
    others = [text for stem, text in _unseen() if stem != question.stem]
    return "\n\n".join(others[:N_UNSEEN])


@cache
def _unseen() -> tuple[tuple[str, str], ...]:
    lines = (task_configs_path() / "fresh" / "fresh.jsonl").read_text(encoding="utf-8").splitlines()[: N_UNSEEN + 1]
    rows = map(json.loads, lines)
    questions = [Question(row["id"], row["question"], tuple(row["choices"])) for row in rows]
    return tuple((question.stem, whole_text(question)) for question in questions)


@dataclass(frozen=True)
class RelativeMeasurement(Measurement):
    """Holds the log-likelihood of the published text relative to its size and to altered forms of it.

    per_zlib_byte: log-likelihood over the text's size in bytes when compressed by zlib, nats per byte
    over_upper: 1 - nats of the published text / nats of the text in upper case
    over_shuffled: 1 - nats of the published text / nats of the text with its words shuffled
    recall: nats after unseen questions / nats without (ReCaLL); memorised texts gain little from a prefix
    """

    ranks_by: ClassVar[tuple[str, ...]] = ("per_zlib_byte", "over_upper", "over_shuffled", "recall")
    per_zlib_byte: float
    over_upper: float
    over_shuffled: float
    recall: float


@dataclass(frozen=True)
class ReferencedMeasurement(RelativeMeasurement):
    """Holds the same, and the log-likelihood relative to a reference model.

    over_reference: 1 - nats of the text under this model / nats under a reference model
    """

    ranks_by: ClassVar[tuple[str, ...]] = (*RelativeMeasurement.ranks_by, "over_reference")
    over_reference: float


@statistics.register("relative_likelihood")
@dataclass(frozen=True)
class RelativeLikelihood(Statistic):
    """Relates the published text's log-likelihood to its size, to altered forms of it and to a reference model."""

    probe: ClassVar[str] = "altered_text"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row("per_zlib_byte", "Log-likelihood of the published text per byte of its zlib compression, nats"),
        mean_row("over_upper", "1 - nats of the published text / nats of the text in upper case"),
        mean_row("over_shuffled", "1 - nats of the published text / nats of the text with its words shuffled"),
        mean_row("recall", "Nats of the text after unseen questions / nats of the text alone (ReCaLL)"),
        mean_row("over_reference", "1 - nats of the text under the model / nats under the reference model"),
    )

    def verdict(self, question: Answered) -> RelativeMeasurement | Skipped:
        published, upper, shuffled, after_unseen = question.model_loglikelihoods
        expected = question.reference[0] if question.reference else published
        if max(*question.model_loglikelihoods, expected) > NO_NATS:
            return Skipped("the log-likelihood of one of its texts is 0, so that ratios to it are undefined")
        size = len(zlib.compress(question.requests[0].continuation.encode("utf-8", "surrogatepass")))
        values = (published / size, 1 - published / upper, 1 - published / shuffled, after_unseen / published)
        if not question.reference:
            return RelativeMeasurement(*values)
        return ReferencedMeasurement(*values, 1 - published / expected)
