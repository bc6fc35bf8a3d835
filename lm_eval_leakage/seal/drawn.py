"""Draws, by a secret key, the published version of each of an author's questions, and commits to key and content.

The commitment fixes both before they are shown.

Claim: without the key, draws for different purposes or contents are independent and uniform, as far
as HMAC-SHA256 is a pseudorandom function. The stream of a draw is

    HMAC-SHA256(key, purpose + 0x00 + SHA-256(content) + counter), counter = 0, 1, ... as 8 bytes, big-endian

read from its most significant bit on; numbers come from it by rejection sampling, which has no bias. Questions whose
options mean something else in another order must not be drawn.

The commitment is SHA-256 of the canonical JSON of an object with format, tool, name, key (hexadecimal), questions and
held_out (the rows of the private folder's files). Binding: another key or text, shown later, would be a second
preimage of SHA-256. Hiding: the hashed text holds a key of 256 random bits, so no guess of the content can be tried.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, Protocol, TypeVar

from lm_eval_leakage.questions.guards import letters_meant, speaks_of_others
from lm_eval_leakage.questions.slots import Exchange
from lm_eval_leakage.records import Question

KEY_BYTES = 32  # 256 bits
BLOCK_BITS = 256  # of one HMAC-SHA256

Purpose = Literal["options", "wording", "questions", "answer", "fillers"]
OrderFate = Literal["drawn", "kept", "held out"]
JsonRow = dict[str, Any]

FORMAT = 2  # of the draws, the private folder, the ledger and the commitment
COMMITMENT_KEY = "seal_commitment"  # in the metadata of an audit in lm_eval's results file: names its seal

_LETTER = r"\(?[A-Z](?![A-Za-z0-9])"
_BY_LETTER = re.compile(
    rf"\b(?:(?:options?|choices?|answers?|alternatives?|antwort(?:en)?|opci[oó]n(?:es)?|respuestas?|réponses?)\s+"
    rf"(?-i:{_LETTER})|(?:options?|choices?)\s+\(?[1-9](?!\w))|选项\s*{_LETTER}",
    re.IGNORECASE,
)
_BY_PLACE = re.compile(
    r"\b(?:first|second|third|fourth|fifth|last|previous|preceding)\s+"
    r"(?:(?:two|three|four)\s+)?(?:options?|choices?|alternatives?)\b",
    re.IGNORECASE,
)
_ONE_LETTER = re.compile(r"^\W*(?:(?i:only)\s+\(?[A-HJ]|[A-HJ]\)?\s+(?i:only))\W*$")  # "I only" is a Roman numeral
_SOME_LETTERS = re.compile(
    r"\b(?i:both|either|neither)\s+\(?[A-J]\)?\s+(?i:and|or|nor)\s+\(?[A-J]\)?\s+(?i:is|are|apply|applies|above)\b"
)


def new_key() -> bytes:
    """Return a key from the operating system's source of randomness."""
    return secrets.token_bytes(KEY_BYTES)


class KeyedDraws:
    """Makes independent uniform draws, which are the same for the same key, purpose and content."""

    def __init__(self, key: bytes, purpose: Purpose, content: bytes) -> None:
        self._bits = _bits(key, purpose.encode() + b"\0" + sha256(content).digest())

    def below(self, n: int) -> int:
        """Return a number that is uniform among 0, 1, ..., n - 1.

        As many bits as n - 1 has are drawn, again until they are below n.
        """
        if n < 1:
            raise ValueError(f"n is {n}; there must be something to draw from")
        while True:
            drawn = 0
            for _ in range((n - 1).bit_length()):
                drawn = 2 * drawn + next(self._bits)
            if drawn < n:
                return drawn

    def order(self, n: int) -> tuple[int, ...]:
        """Return an order that is uniform among the n! orders of 0, 1, ..., n - 1, by Fisher and Yates."""
        places = list(range(n))
        for last in range(n - 1, 0, -1):
            other = self.below(last + 1)
            places[last], places[other] = places[other], places[last]
        return tuple(places)


def _bits(key: bytes, message: bytes) -> Iterator[int]:
    """Yield the bits of the stream of a draw."""
    counter = 0
    while True:
        block = int.from_bytes(hmac.digest(key, message + counter.to_bytes(8, "big"), "sha256"), "big")
        yield from (block >> place & 1 for place in range(BLOCK_BITS - 1, -1, -1))
        counter += 1


class AuthorRow(Protocol):
    """A question or text in its author's words, with all versions of it that might be published."""

    @property
    def order(self) -> OrderFate:
        """Return whether its published version is drawn or is the author's, or it is not published at all."""

    @property
    def content(self) -> bytes:
        """Return its content; draws about it depend on the content and the key."""

    def as_row(self) -> JsonRow:
        """Return it as JSON values."""


def canonical_json(value: object) -> bytes:
    """Return JSON in ASCII, with sorted keys and no white space, so that the bytes are the same everywhere."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def commitment_of(name: str, tool: str, key: bytes, originals: Sequence[AuthorRow]) -> str:
    """Return the hexadecimal commitment to a key and to every version of every question.

    tool: name and version of the program that sealed
    """
    rows = [original.as_row() for original in originals]
    content = commitment_header(name, tool, key) | {
        "questions": [row for row in rows if row["order"] != "held out"],
        "held_out": [row for row in rows if row["order"] == "held out"],
    }
    return sha256(canonical_json(content)).hexdigest()


def commitment_header(name: str, tool: str, key: bytes) -> JsonRow:
    """Return the part of the committed object that is not about questions."""
    return {"format": FORMAT, "tool": tool, "name": name, "key": key.hex()}


def public_rows(questions: Sequence[SealedQuestion]) -> list[JsonRow]:
    """Return the rows of the public file.

    Rows have a subject if any question has one, and no choices if the questions have no options.
    """
    with_subject = any(question.subject for question in questions)
    rows = []
    for question in questions:
        row: JsonRow = {"question": question.wordings[0]}
        if question.options:
            row["choices"] = list(question.options)
        row["answer"] = question.answer
        if with_subject:
            row["subject"] = question.subject
        rows.append(row)
    return rows


def digest_of_public(rows: Sequence[JsonRow]) -> str:
    """Return the SHA-256 of the canonical JSON of the list of public rows, whatever file they are in."""
    return sha256(canonical_json(list(rows))).hexdigest()


def order_dependence(wordings: Iterable[str], options: Sequence[str]) -> str | None:
    """Return why the options must stay in the author's order, in words; None if no text says so."""
    for option in options:
        if speaks_of_others(option):
            return f"option {option!r} refers to the others"
        if _names_letters(option):
            return f"option {option!r} names options by letter"
        if _BY_PLACE.search(option):
            return f"option {option!r} names options by their place"
    for wording in wordings:
        match = _BY_LETTER.search(wording) or _BY_PLACE.search(wording)
        if match:
            return f"the question says {match[0]!r}"
    return None


def _names_letters(option: str) -> bool:
    """Return whether an option names others by letter, capital or not: "both A and C", "b and c only", "B only"."""
    match = _ONE_LETTER.match(option) or _SOME_LETTERS.search(option) or _BY_LETTER.search(option)
    return bool(match or letters_meant(option))


@dataclass(frozen=True)
class Original:
    """A question as its author wrote it, with all versions of it that might be published.

    wordings: the other wordings; no two are the same text, nor is one the same as `question`
    choices: the options; no two are the same text
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
        """Return digests of the question's texts; draws about it depend on them and on the key.

        The texts are sorted, so that neither the author's order of options and wordings nor the public one matters.
        """
        parts = [*sorted((self.question, *self.wordings)), "", *sorted(self.choices)]
        return b"".join(sha256(part.encode()).digest() for part in parts)

    def as_row(self) -> JsonRow:
        """Return the question as JSON values."""
        return {name: list(part) if isinstance(part, tuple) else part for name, part in asdict(self).items()}


def original_of(row: Mapping[str, Any]) -> Original:
    """Return the question that `as_row` gave. Raises AttributeError or TypeError for any other value."""
    parts: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in row.items()}
    return Original(**parts)


def published_questions(originals: Sequence[Original], key: bytes) -> tuple[SealedQuestion, ...]:
    """Return the version that `key` draws, in the order that it draws; without the questions that are held out.

    It depends on the draws and the texts only, not on the order in which the author wrote rows, wordings and options.
    """
    rows = by_content(originals)
    return in_drawn_order([_published(row, key) for row in rows], rows, key)


AnyRow = TypeVar("AnyRow", bound=AuthorRow)


def by_content(originals: Sequence[AnyRow]) -> list[AnyRow]:
    """Return the rows that are published, in an order that does not depend on their author's."""
    return sorted((row for row in originals if row.order != "held out"), key=lambda row: row.content)


def in_drawn_order(
    published: Sequence[SealedQuestion], rows: Sequence[AuthorRow], key: bytes
) -> tuple[SealedQuestion, ...]:
    """Return the published versions of `rows` in the order that `key` draws, each with its place.

    rows: in the order of their contents
    """
    order = KeyedDraws(key, "questions", b"".join(row.content for row in rows)).order(len(rows))
    return tuple(replace(published[place], id=str(at)) for at, place in enumerate(order))


def _published(original: Original, key: bytes) -> SealedQuestion:
    """Return the published version of a question; its place is added later."""
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
    """Return the options in the published order."""
    if original.order == "kept":
        return original.choices
    options = sorted(original.choices)
    order = KeyedDraws(key, "options", original.content).order(len(options))
    return tuple(options[place] for place in order)


@dataclass(frozen=True)
class SealedQuestion:
    """A published question of a sealed benchmark, with its private wordings.

    Claim: given the author's texts, `wordings[0]` is uniform among all wordings, the order of `options` among all
    orders (if `order_drawn`), `answer` among `equally_right`; all three are independent of each other and of every
    other question, and of every model that never saw the published version. The fillers of a block of texts without
    options are uniform among all placements, independent of all other blocks.

    id: the question's place in the public file, from "0"
    wordings: every version of the stem, the public one first, the private ones sorted; one if there are no others
    options: in the public order
    answer: index in `options` of the right option that is the published answer; of a text without options, the answer
        itself
    equally_right: indices of all equally right options, in the public order; `answer` is among them
    order_drawn: False if the options depend on their order, which then is the author's
    exchange: the slot of a text without options and the block in which its filler was drawn; None if none was drawn
    """

    id: str
    wordings: tuple[str, ...]
    options: tuple[str, ...]
    answer: int | str
    equally_right: tuple[int, ...]
    order_drawn: bool
    subject: str = ""
    exchange: Exchange | None = None


@dataclass(frozen=True)
class Seal:
    """A sealed benchmark: it holds all published questions, in the public order.

    Claim: the order of `questions` is uniform among all orders, independent of all draws within them.

    tool: name and version of the program that sealed
    key: 32 bytes
    commitment: hexadecimal SHA-256, see `commitment_of`
    """

    name: str
    tool: str
    questions: tuple[SealedQuestion, ...]
    key: bytes = field(repr=False)
    commitment: str

    @property
    def is_of_texts(self) -> bool:
        """Return whether its questions have no options, which holds for all of them or none."""
        return bool(self.questions) and not self.questions[0].options

    def find(self, question: Question) -> SealedQuestion | None:
        """Return the sealed question that a task's reader read as `question`; None if this seal did not publish it.

        It has the same options in the same order, and the public wording, apart from white space.
        """
        return self._by_content.get(_content(question.stem, question.options))

    @cached_property
    def _by_content(self) -> dict[tuple[str, ...], SealedQuestion]:
        return {_content(question.wordings[0], question.options): question for question in self.questions}


def _content(stem: str, options: tuple[str, ...]) -> tuple[str, ...]:
    return (" ".join(stem.split()), *(option.strip() for option in options))
