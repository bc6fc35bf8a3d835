"""Does the model reproduce the published options or text when it generates?

The model gets the question with its options up to a label, to write the next option ("n-gram" of Hidayat et al.); or
the published text cut off at several places, to continue it (n-gram accuracy of Xu et al.). Null hypothesis: none that
gives a rate. The control for options compares each completion with the next option of the question instead of its own:
the rate of hits that templates and shared words cause. Limits: paraphrases are not recognised; common phrases and
options that follow a template are reproduced without leakage. Sources: Hidayat et al., 2025 (arXiv 2505.24263): an
option is reproduced if its ROUGE-L is above 0.75, and a question is flagged if a share of at least T = 0.25 of its
options is; Xu et al. (arXiv 2404.18824).
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

HIT_ABOVE = 0.75  # ROUGE-L; Hidayat et al. (2025)
LEAST_SHARE = 0.25  # Hidayat et al. (2025), T: one of four options


@probes.register("option_completions")
@dataclass(frozen=True)
class OptionCompletions(Probe):
    """Sends a request for each option: everything up to its label, with the published options before it.

    The expected continuation is the option itself.

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
    """Sends the question with its options, cut off after each of `starts` equally spaced words.

    The expected continuation is the rest of the text.

    starts: number of places where the text is cut off
    n: number of tokens that the model writes at each of them
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
        words_per_cut = len(ends) / (self.starts + 1)
        cuts = [ends[round(number * words_per_cut) - 1] for number in range(1, self.starts + 1)]
        return tuple(Request(text[:cut], text[cut:]) for cut in cuts)

    def n_tokens(self, request: Request) -> int | None:
        return self.n


@dataclass(frozen=True)
class ReproductionMeasurement(Measurement):
    """Records how many of a question's options the model reproduced.

    reproduced: whether the hit rate is at least the statistic's `share`
    control: the same if each completion is compared with the option after its own, the last with the first
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
    """Compares each completion with its option, by ROUGE-L.

    rouge: a completion with a ROUGE-L F-measure above this is a hit
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

    rouge: float = HIT_ABOVE
    share: float = LEAST_SHARE

    def __post_init__(self) -> None:
        check_shares(rouge=self.rouge, share=self.share)

    def verdict(self, question: Answered) -> ReproductionMeasurement:
        options, completions = question.question.options, question.texts
        scores = list(map(rouge_l, options, completions))
        control_scores = list(map(rouge_l, (*options[1:], options[0]), completions))
        hit_rate = sum(score > self.rouge for score in scores) / len(options)
        control_rate = sum(score > self.rouge for score in control_scores) / len(options)
        return ReproductionMeasurement(
            reproduced=hit_rate >= self.share,
            control=control_rate >= self.share,
            hit_rate=hit_rate,
            mean_rouge=sum(scores) / len(options),
            best_rouge=max(scores),
        )


def rouge_l(option: str, completion: str) -> float:
    """Return the ROUGE-L F-measure of an option and the completion written for it, with stemming.

    The scorer ignores everything but Latin letters and digits. For an option without any, the result is 1 if the
    completion begins with the option, else 0.
    """
    if not _rouge_scorer()._tokenizer.tokenize(option):
        return float(bool(option.strip()) and completion.strip().startswith(option.strip()))
    return float(_rouge_scorer().score(option, completion)["rougeL"].fmeasure)


@cache
def _rouge_scorer() -> Any:
    """Return the scorer of ROUGE-L; it is loaded once."""
    from rouge_score.rouge_scorer import RougeScorer  # imports nltk and scikit-learn, which takes over a second

    return RougeScorer(["rougeL"], use_stemmer=True)


@dataclass(frozen=True)
class NgramMeasurement(Measurement):
    """Records how often the model continued the published text.

    ngram_accuracy: share of the places where the published text goes on with exactly what the model writes
    """

    ranks_by: ClassVar[tuple[str, ...]] = ("ngram_accuracy",)
    ngram_accuracy: float


@statistics.register("ngram_accuracy")
@dataclass(frozen=True)
class NgramAccuracy(Statistic):
    """Counts the places where the model writes exactly the continuation of the published text."""

    probe: ClassVar[str] = "prefix_completions"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row(
            "ngram_accuracy",
            "Share of places where the model writes exactly the continuation of the published text",
            higher_is_better=False,
        ),
    )

    def verdict(self, question: Answered) -> NgramMeasurement:
        matches = []
        for request, text in zip(question.requests, question.texts, strict=True):
            written = text.strip()
            matches.append(bool(written) and request.continuation.strip().startswith(written))
        return NgramMeasurement(sum(matches) / len(matches))
