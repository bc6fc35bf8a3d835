"""Is the question answered correctly when only its last words are shown ("semi-half")?

The whole question is asked, too, for comparison.

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
    """Sends one request per letter after the whole question, then one per letter after its last words.

    words: maximum number of words that are kept; never more than half of the question
    """

    words: int = MOST_WORDS

    def __post_init__(self) -> None:
        check_counts(1, words=self.words)

    def requests(self, question: Question) -> tuple[Request, ...]:
        if question.answer is None:
            raise UntestableQuestion("its right answer is not known, or it has several")
        refuse_few_options(question)
        after_whole = letter_requests(question, question.options)
        return after_whole + letter_requests(question, question.options, stem=self.tail(question))

    def tail(self, question: Question) -> str:
        """Return the question's last words; a question of one word is kept whole."""
        words = question.stem.split()
        n_kept = min(self.words, len(words) // 2) or 1
        return " ".join(words[-n_kept:])


@dataclass(frozen=True)
class TailEvidence(Evidence):
    """Records whether the right letter is chosen when only the question's last words are shown.

    flagged: whether the right letter is likelier than every other
    pvalue: rank of the right letter over the number of options, 1 being the most likely; in a tie, the worst rank
    null_rate: 1 over the number of options
    margin: nats by which the right letter beats the best other one; negative if it does not
    whole: whether the right letter is chosen when the whole question is shown
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
    """Flags a question if the right letter is the most likely one after its last words."""

    probe: ClassVar[str] = "question_tail"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (*EVIDENCE_ROWS, ACCURACY_WHOLE)

    def verdict(self, question: Answered) -> TailEvidence:
        gold = question.question.answer
        assert gold is not None, "the probe tests only questions with one right answer"
        n_options = len(question.question.options)
        after_whole, after_tail = question.answers[:n_options], question.answers[n_options:]
        margin, rank = margin_and_rank(after_tail, gold)
        margin_whole, _ = margin_and_rank(after_whole, gold)
        return TailEvidence(
            flagged=margin > 0,
            pvalue=rank / n_options,
            null_rate=1 / n_options,
            margin=margin,
            whole=margin_whole > 0,
        )


def margin_and_rank(loglikelihoods: Sequence[float], gold: int) -> tuple[float, int]:
    """Return the nats by which choice `gold` beats the best other one, and its rank, 1 being the most likely.

    In a tie, the rank is the worst one.
    """
    others = [loglikelihood for place, loglikelihood in enumerate(loglikelihoods) if place != gold]
    right = loglikelihoods[gold]
    return right - max(others), 1 + sum(loglikelihood >= right for loglikelihood in others)
