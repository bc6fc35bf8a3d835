"""Draws, by a secret key, which filler stands in the slot of which text without options.

A slot is a detail that could as well be another one, such as the given name in a word problem. In the author's text
each of its places is marked, `[[Anna]]`. Texts of one block exchange their fillers: the key draws one of all
placements, and a text is published with the drawn filler in every place, in the question and in the answer.

Claim: given the author's texts, every placement of a block's fillers is equally likely to be the published one, and
blocks are independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from lm_eval_leakage.questions.slots import Exchange, Slot
from lm_eval_leakage.records import Block
from lm_eval_leakage.seal.drawn import (
    JsonRow,
    KeyedDraws,
    OrderFate,
    SealedQuestion,
    by_content,
    in_drawn_order,
)


@dataclass(frozen=True)
class OriginalText:
    """A text without options in its author's words.

    question, answer: with a mark around each place of the slot; without a block, exactly as published
    filler: the author's filler; empty if nothing is drawn
    block: the name of the block that exchanges its fillers; empty if nothing is drawn
    order: whether the filler is drawn or is the author's, or the text is not published at all
    """

    question: str
    answer: str
    filler: str
    block: str
    subject: str
    order: OrderFate

    @property
    def content(self) -> bytes:
        """Return the `content_digests` of the question and the answer."""
        return content_digests(self.question, self.answer)

    def as_row(self) -> JsonRow:
        """Return the text as JSON values."""
        return asdict(self)

    def filled(self, text: str, filler: str) -> str:
        """Return the question or the answer with a filler in each place of the slot."""
        return text.replace(marked(self.filler), filler) if self.block else text


def content_digests(question: str, answer: str) -> bytes:
    """Return digests of the content of a text; draws about it depend on them and on the key."""
    return b"".join(sha256(part.encode()).digest() for part in (question, answer))


def marked(filler: str) -> str:
    """Return a filler with the marks of a slot."""
    return f"[[{filler}]]"


def published_texts(originals: Sequence[OriginalText], key: bytes) -> tuple[SealedQuestion, ...]:
    """Return the version that `key` draws, in the order that it draws; without the texts that are held out."""
    texts = by_content(originals)
    blocks = _drawn_blocks(texts, key)
    return in_drawn_order([_published(text, blocks.get(text.content)) for text in texts], texts, key)


def _drawn_blocks(texts: Sequence[OriginalText], key: bytes) -> Mapping[bytes, Block]:
    """Return the block of each text whose filler is drawn, by the text's content.

    texts: in the order of their contents
    """
    members: dict[str, list[OriginalText]] = {}
    for text in texts:
        if text.block:
            members.setdefault(text.block, []).append(text)
    blocks: dict[bytes, Block] = {}
    for name, rows in members.items():
        fillers = sorted(row.filler for row in rows)
        order = KeyedDraws(key, "fillers", b"".join(row.content for row in rows)).order(len(rows))
        published = tuple(fillers[place] for place in order)
        blocks |= {row.content: Block(name, published, place) for place, row in enumerate(rows)}
    return blocks


def _published(text: OriginalText, block: Block | None) -> SealedQuestion:
    """Return the published version of a text; its place is added later."""
    filler = "" if block is None else block.fillers[block.place]
    return SealedQuestion(
        id="",
        wordings=(text.filled(text.question, filler),),
        options=(),
        answer=text.filled(text.answer, filler),
        equally_right=(),
        order_drawn=False,
        subject=text.subject,
        exchange=None if block is None else Exchange(Slot(filler, "", _begins(text, filler)), block),
    )


def _begins(text: OriginalText, filler: str) -> tuple[int, ...]:
    """Return where the filler begins in the published question."""
    *before, _ = text.question.split(marked(text.filler))
    begins, end = [], 0
    for part in before:
        begins.append(end + len(part))
        end = begins[-1] + len(filler)
    return tuple(begins)
