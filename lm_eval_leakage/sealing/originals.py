"""Questions as their author wrote them, and the published versions that a key draws from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lm_eval_leakage.sealing.keyed import KeyedDraws, content_of
from lm_eval_leakage.sealing.seal import SealedQuestion

OrderFate = Literal["drawn", "kept", "held out"]
JsonRow = dict[str, Any]


@dataclass(frozen=True)
class Original:
    """A question in its author's words and order.

    wordings: the other ones; no two are the same text, nor `question`
    choices: no two are the same text
    answers: indices of all equally right options, at least one
    order: whether the published order is drawn or is the author's, or the question is not published at all
    """

    question: str
    wordings: tuple[str, ...]
    choices: tuple[str, ...]
    answers: tuple[int, ...]
    subject: str
    order: OrderFate

    @property
    def content(self) -> bytes:
        """What draws about this question are keyed by; the same whatever order the author wrote its parts in."""
        return content_of((self.question, *self.wordings), self.choices)

    def as_row(self) -> JsonRow:
        """The question as JSON values."""
        return {name: list(part) if isinstance(part, tuple) else part for name, part in asdict(self).items()}


def original_of(row: Mapping[str, Any]) -> Original:
    """The question that `as_row` gave. Raises KeyError or TypeError for any other value."""
    return Original(
        question=row["question"],
        wordings=tuple(row["wordings"]),
        choices=tuple(row["choices"]),
        answers=tuple(row["answers"]),
        subject=row["subject"],
        order=row["order"],
    )


def published_questions(originals: Sequence[Original], key: bytes) -> tuple[SealedQuestion, ...]:
    """The version that `key` draws, in the order that it draws; without the questions that are held out.

    Depends on the draws and the texts only, not on the order in which the author wrote rows, wordings and options.
    """
    sorted_ones = sorted((one for one in originals if one.order != "held out"), key=lambda one: one.content)
    contents = b"".join(one.content for one in sorted_ones)
    order = KeyedDraws(key, "questions", contents).order(len(sorted_ones))
    return tuple(replace(_published(sorted_ones[place], key), id=str(at)) for at, place in enumerate(order))


def _published(original: Original, key: bytes) -> SealedQuestion:
    wordings = sorted((original.question, *original.wordings))
    public = KeyedDraws(key, "wording", original.content).below(len(wordings))
    options = _ordered(original, key)
    right = sorted(original.choices[place] for place in original.answers)
    answer = right[KeyedDraws(key, "answer", original.content).below(len(right))]
    return SealedQuestion(
        id="",
        wordings=(wordings[public], *wordings[:public], *wordings[public + 1 :]),
        options=options,
        answer=options.index(answer),
        equally_right=tuple(place for place, option in enumerate(options) if option in right),
        order_drawn=original.order == "drawn",
        subject=original.subject,
    )


def _ordered(original: Original, key: bytes) -> tuple[str, ...]:
    if original.order == "kept":
        return original.choices
    options = sorted(original.choices)
    order = KeyedDraws(key, "options", original.content).order(len(options))
    return tuple(options[place] for place in order)
