"""A question as a training set may hold it: what leaks is rarely the text that an audit asks about."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase

from lm_eval_leakage.records import Question
from lm_eval_leakage.rendering import context_and_block

ORDERS = ("published", "shuffled")
LAYOUTS = ("audited", "usual", "papers", "prose")


@dataclass(frozen=True)
class ExposureText:
    """order: "published", or "shuffled", one order a question, drawn by its id (scenario b of Ni et al.)
    layout: "audited", the task's own; "usual", "papers", as of `option_orders`; "prose", options without letters
    answer: whether the right letter follows
    header: whether the subject stands before, as in Yao et al.
    """

    order: str = "published"
    layout: str = "audited"
    answer: bool = True
    header: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (("order", self.order, ORDERS), ("layout", self.layout, LAYOUTS)):
            if value not in known:
                raise ValueError(f"{name} is {value!r}; choose one of: {', '.join(known)}")

    def write(self, question: Question) -> str:
        options, right = question.options, question.answer
        if self.order == "shuffled":
            places = list(range(len(options)))
            random.Random(f"exposure {question.id}").shuffle(places)
            options = tuple(options[place] for place in places)
            right = None if right is None else places.index(right)
        text = self._body(replace(question, options=options))
        if self.header and question.subject:
            text = f"The following is a multiple choice question about {_words(question.subject)}.\n\n{text}"
        if self.answer and right is not None:
            said = options[right] if self.layout == "prose" else ascii_uppercase[right]
            text += f"\nAnswer: {said}"
        return text

    def _body(self, question: Question) -> str:
        if self.layout == "prose":
            return " ".join(
                [question.stem.strip(), *(option.strip().rstrip(".") + "." for option in question.options)]
            )
        context, block = context_and_block(question, None if self.layout == "audited" else self.layout)
        return context + block(question.options)


def documents(texts: Sequence[str], neighbours: int) -> list[str]:
    """Texts of neighbours joined as in a benchmark's file, so many to a document."""
    return ["\n\n".join(texts[start : start + neighbours]) for start in range(0, len(texts), neighbours)]


def _words(subject: str) -> str:
    return subject.replace("_", " ")
