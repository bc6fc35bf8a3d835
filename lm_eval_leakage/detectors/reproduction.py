"""Does the model, when it generates, reproduce the published options (ROUGE-L) or text (n-gram accuracy)?

It is given the question with its options up to a label, to write the next option; or the published text cut off at
several places, to continue it. Null hypothesis: none that gives a rate. For options, the rate at which completions
match the next option of the question instead of their own is the control: the rate due to templates and shared words.
Limits: needs generation; paraphrases are not recognised; common phrases and options that follow a template are
reproduced without leakage. Source: "n-gram" of Hidayat et al., 2025 (arXiv 2505.24263): an option is reproduced if its
ROUGE-L is above 0.75, and a question is flagged if a share of at least T = 0.25 of its options is; n-gram accuracy of
Xu et al. (arXiv 2404.18824).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from lm_eval_leakage.detectors import (
    Probe,
    Statistic,
    check_counts,
    check_shares,
    probes,
    refuse_few_options,
    statistics,
)
from lm_eval_leakage.questions.rendering import option_format, up_to_label, whole_text
from lm_eval_leakage.records import Answered, DeclaredRow, Measurement, Question, Request, UntestableQuestion
from lm_eval_leakage.stats.pooling import mean_row


@probes.register("option_completions")
@dataclass(frozen=True)
class OptionCompletions(Probe):
    """Request k: everything up to the label of option k, with the published options before it; its continuation
    is option k, which a model that memorised the benchmark writes.

    format: as in `option_orders`
    """

    needs: ClassVar[str] = "generate_until"
    format: str | None = None

    def __post_init__(self) -> None:
        option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        refuse_few_options(question)
        return tuple(
            Request(up_to_label(question, place, self.format).rstrip(), option)
            for place, option in enumerate(question.options)
        )


@probes.register("prefix_completions")
@dataclass(frozen=True)
class PrefixCompletions(Probe):
    """Requests: question and options up to each of `starts` equally spaced words; the continuation is the rest.

    starts: number of places where the text is cut off
    n: number of tokens that the model writes at each
    """

    needs: ClassVar[str] = "generate_until"
    starts: int = 5  # Xu et al.
    n: int = 5  # Xu et al.

    def __post_init__(self) -> None:
        check_counts(1, starts=self.starts, n=self.n)

    def requests(self, question: Question) -> tuple[Request, ...]:
        text = whole_text(question)
        ends = [word.end() for word in re.finditer(r"\S+", text)]
        if len(ends) <= self.starts:
            raise UntestableQuestion(f"its text has {len(ends)} words; more than {self.starts} starts are needed")
        chosen = [ends[round(start * len(ends) / (self.starts + 1)) - 1] for start in range(1, self.starts + 1)]
        return tuple(Request(text[:end], text[end:]) for end in chosen)

    def n_tokens(self, request: Request) -> int | None:
        return self.n


ROUGE_L = 0.75  # Hidayat et al. (2025)
T = 0.25  # Hidayat et al. (2025): one of four options


@dataclass(frozen=True)
class ReproductionMeasurement(Measurement):
    """reproduced: whether the hit rate is at least T
    control: the same if each completion is compared with the option after its own
    hit_rate: share of the options that are reproduced
    mean_rouge, best_rouge: mean and highest ROUGE-L F-measure of a completion and its option
    """

    ranks_by: ClassVar[tuple[str, ...]] = ("mean_rouge", "best_rouge")

    reproduced: bool
    control: bool
    hit_rate: float
    mean_rouge: float
    best_rouge: float

    @property
    def flagged(self) -> bool:
        return self.reproduced


@statistics.register("reproduction")
@dataclass(frozen=True)
class Reproduction(Statistic):
    """rouge: a completion with a ROUGE-L F-measure above this is a hit
    share: share of the options that must be hit for a question to count as reproduced; the paper's T
    """

    probe: ClassVar[str] = "option_completions"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row(
            "reproduced_rate",
            "Whether the model reproduces at least a share T of the options",
            "reproduced",
            higher_is_better=False,
        ),
        mean_row(
            "control_rate",
            "The same with completions compared with the next option: the rate due to shared words",
            "control",
        ),
    )

    rouge: float = ROUGE_L
    share: float = T

    def __post_init__(self) -> None:
        check_shares(rouge=self.rouge, share=self.share)

    def verdict(self, question: Answered) -> ReproductionMeasurement:
        options, texts = question.question.options, question.texts
        own = list(map(rouge_l, options, texts))
        shifted = list(map(rouge_l, (*options[1:], options[0]), texts))
        hits, controls = (sum(score > self.rouge for score in scores) / len(options) for scores in (own, shifted))
        mean = sum(own) / len(options)
        return ReproductionMeasurement(hits >= self.share, controls >= self.share, hits, mean, max(own))


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # imports nltk and scikit-learn, which takes over a second

    return RougeScorer(["rougeL"], use_stemmer=True)


def rouge_l(option: str, completion: str) -> float:
    """ROUGE-L F-measure of an option and the completion written for it, with stemming. The scorer ignores everything
    but Latin letters and digits; for an option without any, 1 if the completion begins with the option, else 0."""
    if not _scorer()._tokenizer.tokenize(option):
        return float(bool(option.strip()) and completion.strip().startswith(option.strip()))
    return float(_scorer().score(option, completion)["rougeL"].fmeasure)


@dataclass(frozen=True)
class NgramMeasurement(Measurement):
    """ngram_accuracy: share of the places where the model writes exactly the continuation of the text"""

    ranks_by: ClassVar[tuple[str, ...]] = ("ngram_accuracy",)
    ngram_accuracy: float


@statistics.register("ngram_accuracy")
@dataclass(frozen=True)
class NgramAccuracy(Statistic):
    probe: ClassVar[str] = "prefix_completions"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row(
            "ngram_accuracy",
            "Share of places where the model writes exactly the continuation of the published text",
            higher_is_better=False,
        ),
    )

    def verdict(self, question: Answered) -> NgramMeasurement:
        matches = [
            bool(text.strip()) and request.continuation.strip().startswith(text.strip())
            for request, text in zip(question.requests, question.texts, strict=True)
        ]
        return NgramMeasurement(sum(matches) / len(matches))
