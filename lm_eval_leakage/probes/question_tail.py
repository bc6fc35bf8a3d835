"""The options after only the end of the question, and after the whole question ("semi-half").

Null hypothesis: without the beginning of the question, the right letter is no more likely than any other, so that it
is chosen with probability 1 / n. Limits: many questions can be answered from their last words or from their options
alone; compare the rate with the accuracy on whole questions. Source: Hidayat et al., 2025 (arXiv 2505.24263).
"""

from __future__ import annotations

from dataclasses import dataclass

from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.probes.letters import asked_for_letter
from lm_eval_leakage.records import Question, Request, UntestableQuestion

MOST_WORDS = 7  # Hidayat et al. (2025)


@probes.register("question_tail")
@dataclass(frozen=True)
class QuestionTail(Probe):
    """Requests: one per letter after the whole question, then one per letter after its end.

    words: maximum number of words that are kept; never more than half of the question
    """

    words: int = MOST_WORDS

    def __post_init__(self) -> None:
        if isinstance(self.words, bool) or not isinstance(self.words, int) or self.words < 1:
            raise ValueError(f"words is {self.words!r}; it must be a whole number of at least 1")

    def requests(self, question: Question) -> tuple[Request, ...]:
        if question.answer is None:
            raise UntestableQuestion("its right answer is not known")
        if len(question.options) < 2:
            raise UntestableQuestion(f"it has {len(question.options)} option(s); at least 2 are needed")
        whole = asked_for_letter(question, question.options)
        return whole + asked_for_letter(question, question.options, stem=self.tail(question))

    def tail(self, question: Question) -> str:
        """The question's last words; a question of one word is kept whole."""
        words = question.stem.split()
        kept = min(self.words, len(words) // 2) or 1
        return " ".join(words[-kept:])
