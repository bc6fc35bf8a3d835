"""Is the question answered correctly when only its end is shown?

Null hypothesis: without its beginning, every letter is equally likely to be the model's choice, so that one in
n is right. Limits: questions that common sense can answer from their options break it; compare the rate with the
accuracy on whole questions. Source: Hidayat et al., 2025 (arXiv 2505.24263), "semi-half".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lm_eval_leakage.inference.pooling import EVIDENCE_ROWS, rate_and_stderr, row_with_error
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence
from lm_eval_leakage.statistics import statistics


@dataclass(frozen=True)
class TailEvidence(Evidence):
    """flagged: the right letter is likelier than every other after the question's end

    pvalue: rank of the right letter there, over the number of options; ties rank it lower
    margin: nats by which it beats the best other letter; negative where it does not
    whole: whether the right letter is chosen after the whole question
    """

    margin: float
    whole: bool

    @property
    def statistic(self) -> float:
        return self.margin


ACCURACY_WHOLE = row_with_error(
    "accuracy_whole",
    "Share of questions answered correctly when they are shown whole.",
    lambda verdicts: rate_and_stderr([verdict.whole for verdict in verdicts if isinstance(verdict, TailEvidence)]),
    higher_is_better=True,
)


@statistics.register("tail_answered")
@dataclass(frozen=True)
class TailAnswered:
    probe: ClassVar[str] = "question_tail"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (*EVIDENCE_ROWS, ACCURACY_WHOLE)

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[TailEvidence]:
        return [_evidence(question) for question in answered]


def _evidence(answered: Answered) -> TailEvidence:
    gold = answered.question.answer
    assert gold is not None, "the probe tests only questions with a known answer"
    n_options = len(answered.question.options)
    whole, tail = answered.answers[:n_options], answered.answers[n_options:]
    margin, rank = margin_and_rank(tail, gold)
    return TailEvidence(margin > 0, rank / n_options, 1 / n_options, margin, margin_and_rank(whole, gold)[0] > 0)


def margin_and_rank(loglikelihoods: Sequence[float], gold: int) -> tuple[float, int]:
    """Nats by which choice `gold` beats the best other one, and its rank (1 = most likely; ties rank it lower)."""
    others = [score for place, score in enumerate(loglikelihoods) if place != gold]
    right = loglikelihoods[gold]
    return right - max(others), 1 + sum(score >= right for score in others)
