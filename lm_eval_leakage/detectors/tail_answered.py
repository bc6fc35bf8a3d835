"""Is the question answered correctly when only its end is shown ("semi-half")? It is shown whole, too.

Null hypothesis: without the beginning of the question, every letter is equally likely to be the model's choice, so
that the right one is chosen with probability 1 / n. Limits: many questions can be answered from their last words or
from their options alone; compare the rate with the accuracy on whole questions. Source: Hidayat et al., 2025 (arXiv
2505.24263), "semi-half".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lm_eval_leakage.detectors import Probe, Statistic, check_counts, probes, refuse_few_options, statistics
from lm_eval_leakage.questions.rendering import letter_requests
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence, Question, Request, UntestableQuestion
from lm_eval_leakage.stats.pooling import EVIDENCE_ROWS, declare_row

MOST_WORDS = 7  # Hidayat et al. (2025)


@probes.register("question_tail")
@dataclass(frozen=True)
class QuestionTail(Probe):
    """Sends one request per letter after the whole question, then one per letter after its end.

    words: maximum number of words that are kept; never more than half of the question
    """

    words: int = MOST_WORDS

    def __post_init__(self) -> None:
        check_counts(1, words=self.words)

    def requests(self, question: Question) -> tuple[Request, ...]:
        if question.answer is None:
            raise UntestableQuestion("its right answer is not known, or it has several")
        refuse_few_options(question)
        whole = letter_requests(question, question.options)
        return whole + letter_requests(question, question.options, stem=self.tail(question))

    def tail(self, question: Question) -> str:
        """Return the question's last words; a question of one word is kept whole."""
        words = question.stem.split()
        kept = min(self.words, len(words) // 2) or 1
        return " ".join(words[-kept:])


@dataclass(frozen=True)
class TailEvidence(Evidence):
    """Records whether the right letter is chosen after the question's end.

    flagged: the right letter is likelier than every other after the question's end
    pvalue: rank of the right letter there, over the number of options; ties rank it lower
    margin: nats by which it beats the best other letter; negative where it does not
    whole: whether the right letter is chosen after the whole question
    """

    ranked_by: ClassVar[str] = "margin"
    margin: float
    whole: bool


ACCURACY_WHOLE = declare_row(
    TailEvidence,
    "accuracy_whole",
    "Share of questions answered correctly when they are shown whole.",
    "whole",
    higher_is_better=True,
)


@statistics.register("tail_answered")
@dataclass(frozen=True)
class TailAnswered(Statistic):
    """Flags a question if the right letter is the most likely one after its end."""

    probe: ClassVar[str] = "question_tail"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (*EVIDENCE_ROWS, ACCURACY_WHOLE)

    def verdict(self, question: Answered) -> TailEvidence:
        gold = question.question.answer
        assert gold is not None, "the probe tests only questions with one right answer"
        n_options = len(question.question.options)
        whole, tail = question.answers[:n_options], question.answers[n_options:]
        margin, rank = margin_and_rank(tail, gold)
        return TailEvidence(margin > 0, rank / n_options, 1 / n_options, margin, margin_and_rank(whole, gold)[0] > 0)


def margin_and_rank(loglikelihoods: Sequence[float], gold: int) -> tuple[float, int]:
    """Return the nats by which choice `gold` beats the best other, and its rank (1 is best; ties rank it lower)."""
    others = [score for place, score in enumerate(loglikelihoods) if place != gold]
    right = loglikelihoods[gold]
    return right - max(others), 1 + sum(score >= right for score in others)
