"""The options with only the end of the question, and with the whole of it.

Null hypothesis: without the question's beginning the right letter is no more likely than any other, so that it
is found by one in n. Limits: many questions are answered by their last words, or by their options alone; read the
rate beside the accuracy on the whole question. Source: Hidayat et al., 2025 (arXiv 2505.24263), "semi-half".
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
    """Requests: one a letter with the whole question, then one a letter with its end.

    words: the most words that are kept; never more than half of the question
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
        """The last words; a question of one word is kept whole."""
        words = question.stem.split()
        kept = min(self.words, len(words) // 2) or 1
        return " ".join(words[-kept:])
