"""The question with its options as published, shuffled, replaced, and both (four arms; "choice confusion").

Replacing: every wrong option is replaced by the right answer to another question, so that all options are right
answers but only one answers this question. A model that understands the question then finds it more easily; one
that memorised the published options does not. The published method replaces and shuffles at once, which confounds
two effects, so each has its own arm here.
Null hypothesis: a clean model gains from replacing, and its accuracy does not depend on the order of the
options; how much it gains is not known, so a verdict needs a clean reference. Limits: a model at chance has
no gain to lose; replacements may be right by accident. Source: Yao et al., EMNLP 2024 (arXiv 2406.13236), who did
not publish the scope, the seed or the treatment of duplicates.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lm_eval_leakage.detector_ids import OUTSIDE_ID
from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.probes.letters import asked_for_letter
from lm_eval_leakage.records import Question, Request, UntestableQuestion
from lm_eval_leakage.texts import brief

SCOPES = ("subject", "all")
SCORES = ("own", "letters", "texts")

Arm = tuple[tuple[str, ...], int]  # options as shown, and the index of the right one


@probes.register("choice_confusion")
@dataclass(frozen=True)
class ChoiceConfusion(Probe):
    """Requests: one per arm (ARMS) and option.

    scope: replacements are right answers to questions of the same "subject", or to "all" questions of the task
    score: "letters" after a prompt that shows the options; "texts" of the options after a prompt that does not; "own"
        for whichever of the two the task itself does
    """

    scope: str = "subject"
    score: str = "own"
    pool: tuple[Question, ...] = field(default=(), repr=False, metadata=OUTSIDE_ID)

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise ValueError(f"scope is {self.scope!r}; choose one of: {', '.join(SCOPES)}")
        if self.score not in SCORES:
            raise ValueError(f"score is {self.score!r}; choose one of: {', '.join(SCORES)}")

    def with_pool(self, questions: Callable[[], Sequence[Question]]) -> ChoiceConfusion:
        """The same probe with the questions whose right answers may replace wrong options."""
        return replace(self, pool=tuple(questions()))

    def requests(self, question: Question) -> tuple[Request, ...]:
        return tuple(request for options, _ in self.arms(question) for request in self._asked(question, options))

    def arms(self, question: Question) -> tuple[Arm, ...]:
        """Options and index of the right one for each arm; the two shuffled arms have the same order, the two replaced
        arms the same replacements."""
        gold = question.answer
        if gold is None:
            raise UntestableQuestion("its right answer is not known")
        n_options = len(question.options)
        if n_options < 2:
            raise UntestableQuestion(f"it has {n_options} option(s); at least 2 are needed")
        rng = random.Random(question.id)
        order = list(range(n_options))
        rng.shuffle(order)
        others = iter(self._replacements(question, n_options - 1, rng))
        replaced = [option if place == gold else next(others) for place, option in enumerate(question.options)]
        moved = order.index(gold)
        return (
            (question.options, gold),
            (tuple(question.options[place] for place in order), moved),
            (tuple(replaced), gold),
            (tuple(replaced[place] for place in order), moved),
        )

    def gold(self, question: Question) -> tuple[int, ...]:
        return tuple(place for _, place in self.arms(question))

    def _replacements(self, question: Question, count: int, rng: random.Random) -> list[str]:
        """Right answers to other questions, whose words differ from those of the right answer and from each other."""
        assert question.answer is not None
        own = _words(question.options[question.answer])
        found = [text for words, text in self._right_answers.get(self._drawer(question), {}).items() if words != own]
        if len(found) < count:
            of_subject = (
                f" of its subject {brief(question.subject)}" if self.scope == "subject" and question.subject else ""
            )
            raise UntestableQuestion(
                f"{count} replacements are needed, and other questions{of_subject} have {len(found)} different right "
                "answers; take them from all questions with scope=all"
            )
        return rng.sample(found, count)

    @cached_property
    def _right_answers(self) -> dict[str, dict[str, str]]:
        """The distinct right answers of the pool by their normalised words, per subject or all together (key "")."""
        drawers: dict[str, dict[str, str]] = {}
        for question in self.pool:
            if question.answer is not None:
                right = question.options[question.answer]
                drawers.setdefault(self._drawer(question), {}).setdefault(_words(right), right)
        return drawers

    def _drawer(self, question: Question) -> str:
        return question.subject if self.scope == "subject" else ""

    def _asked(self, question: Question, options: Sequence[str]) -> tuple[Request, ...]:
        shows_none = question.prompt is not None
        if self.score == "letters" or (self.score == "own" and not shows_none):
            return asked_for_letter(question, options)
        prompt = question.prompt or f"Question: {question.stem.strip()}\nAnswer:"
        return tuple(Request(prompt, " " + option.strip()) for option in options)


def _words(option: str) -> str:
    return " ".join(option.casefold().split())
