"""Reads an author's rows without options as texts to be sealed.

The module finds the slot of each text, and forms the blocks of texts that exchange their fillers. A slot is what the
author marks, `[[Anna]]`, or else the first given name of the question that may be exchanged
(`questions.slots`). All of its places change together, in the question and in the answer: the marked ones, and the
others where it stands as a whole word. Blocks depend on the author's texts alone, not on their order or on a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import ceil
from typing import Any

from lm_eval_leakage.questions.fields import well_formed
from lm_eval_leakage.questions.slots import Slot, blocks_of, find_slot, gender_of
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.seal.author_rows import ExaminedRows, RowReading, WrongField, rows_in_words
from lm_eval_leakage.seal.drawn_texts import OriginalText, content_digests, marked
from lm_eval_leakage.stats.crossed_blocks import ALL_PLACEMENTS_UP_TO
from lm_eval_leakage.texts import brief, canonical

MARK = re.compile(r"\[\[([^\[\]]*)\]\]")
MARKED = "marked"  # the kind of a marked filler that is no given name
KEEP, HOLD_OUT = "keep", "hold_out"  # values of the field `seal` for a text
ANSWER_SEPARATOR = "\n\n"  # question and answer, where both are read as one text
NO_SLOT = "its question has no given name that could be exchanged for another; mark what can be, as in [[Anna]]"
KEPT_BY_AUTHOR = "its field seal says keep"
FEWEST_TEXTS = 2


@dataclass(frozen=True)
class _Text:
    """A row that can be published.

    question, answer: with marks, if the text has a slot
    slot: the slot that it could exchange; None, with the reason, if it has none
    is_marked: whether the author marked the slot
    """

    question: str
    answer: str
    subject: str
    slot: Slot | None = None
    reason: str = ""
    is_marked: bool = False
    is_held_out: bool = False

    @property
    def key(self) -> str:
        """Return a key that is equal for texts that differ in white space or in their fillers alone."""
        question = self.question if self.slot is None else self.question.replace(marked(self.slot.filler), "")
        return canonical(question)

    def original(self, block: str = "") -> OriginalText:
        """Return the text as it is sealed: in a block, or, without the name of one, as the author wrote it."""
        slot = self.slot
        if block and slot is not None:
            return OriginalText(self.question, self.answer, slot.filler, block, self.subject, "drawn")
        question, answer = self.question, self.answer
        if slot is not None:
            question, answer = (text.replace(marked(slot.filler), slot.filler) for text in (question, answer))
        return OriginalText(question, answer, "", "", self.subject, "held out" if self.is_held_out else "kept")


def examine_texts(rows: Iterable[RowReading], answer: str) -> ExaminedRows:
    """Return the author's rows as texts to be sealed.

    rows: the fields of each, and the text in it, or the reason why there is none
    answer: the name of the field with the answer

    Raises ValueError, with the rows and the remedy, if a mark or a field for sealing is wrong, or if no two texts can
    exchange a filler.
    """
    texts, unusable, wrong = dict[int, _Text](), list[tuple[int, str]](), list[tuple[int, str]]()
    first = dict[str, int]()
    for number, (fields, reading) in enumerate(rows, 1):
        try:
            text = _read(fields, reading, answer)
            if text.key in first:
                raise UntestableQuestion(_same_as(first[text.key]))
        except UntestableQuestion as reason:
            unusable.append((number, str(reason)))
        except WrongField as reason:
            wrong.append((number, str(reason)))
        else:
            first[text.key] = number
            texts[number] = text
    if wrong:
        raise ValueError(f"{rows_in_words(wrong)}; fix or remove these marks or fields")
    blocks = _blocks(texts)
    originals = {number: text.original(blocks.get(number, "")) for number, text in texts.items()}
    for number, same in _with_same_version(originals):
        unusable.append((number, _same_as(same)))
        del originals[number]
    kept = [(number, _why_kept(texts[number])) for number, row in originals.items() if row.order == "kept"]
    if not blocks:
        why = rows_in_words(kept or unusable) or "all are held out"
        raise ValueError(
            f"no two questions can exchange a name or detail ({why}); mark in at least {FEWEST_TEXTS} questions "
            "what can be exchanged, as in [[Anna]]"
        )
    n_marked = sum(texts[number].is_marked for number in blocks)
    return ExaminedRows(tuple(originals.values()), tuple(sorted(unusable)), (), tuple(kept), n_marked)


def _read(fields: Mapping[str, Any], reading: Question | UntestableQuestion, answer: str) -> _Text:
    """Return the text of a row; raise UntestableQuestion or WrongField if it cannot be sealed."""
    if isinstance(reading, UntestableQuestion):
        raise reading
    if fields.get("wordings") is not None:
        raise WrongField(f"wordings is {brief(fields['wordings'])}; only questions with options have other wordings")
    text = _Text(reading.stem, _answer(fields.get(answer), answer), reading.subject)
    word = fields.get("seal")
    if word == KEEP:
        return replace(text, reason=KEPT_BY_AUTHOR)
    if word == HOLD_OUT:
        return replace(text, is_held_out=True)
    if word is not None:
        raise WrongField(f"seal is {brief(word)}; of a text without options it must be one of: {KEEP}, {HOLD_OUT}")
    return _with_slot(text)


def _answer(value: object, field: str) -> str:
    """Return an answer as text. Raises UntestableQuestion if there is none."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise UntestableQuestion(
            f"its field {field} is {brief(value)}, which is no answer; give a text or a number, or name the field "
            "that has it (--fields answer=FIELD)"
        )
    return well_formed(value).strip()


def _with_slot(text: _Text) -> _Text:
    """Return the text with a mark around each place of its slot; without a slot, with the reason for that."""
    fillers = dict.fromkeys(MARK.findall(text.question + ANSWER_SEPARATOR + text.answer))
    if fillers:
        filler = _marked_filler(text, [*fillers])
        slot = Slot(filler, gender_of().get(filler, MARKED), ())
    else:
        try:
            slot = find_slot(text.question + ANSWER_SEPARATOR + text.answer)
        except UntestableQuestion as reason:
            return replace(text, reason=str(reason))
        if slot.begins[0] >= len(text.question):
            return replace(text, reason=NO_SLOT)
    question, answer = (_with_marks(part, slot.filler) for part in (text.question, text.answer))
    return replace(text, question=question, answer=answer, slot=slot, is_marked=bool(fillers))


def _marked_filler(text: _Text, fillers: Sequence[str]) -> str:
    """Return the text that the author marked. Raises WrongField, with the remedy, for marks that make no slot."""
    filler, *others = fillers
    if others:
        raise WrongField(f"marks are {marked(filler)} and {marked(others[0])}; all marks of a row have the same text")
    if not filler or filler != filler.strip():
        raise WrongField(f"a mark is {marked(filler)!r}; mark a text without white space at its ends")
    rest = MARK.sub("", text.question + ANSWER_SEPARATOR + text.answer)
    if "[[" in rest or "]]" in rest:
        raise WrongField(
            f"beside the mark {marked(filler)}, brackets [[ or ]] stand without their other half; complete the mark, "
            "or give the row the field seal: keep, with which brackets are published as they are"
        )
    if marked(filler) not in _with_marks(text.question, filler):
        raise WrongField(f"the mark {marked(filler)} is in the answer alone; mark it in the question, too")
    return filler


def _with_marks(text: str, filler: str) -> str:
    """Return a text with one mark around each place of a filler, whether marked before or a whole word."""
    place = rf"\[\[{re.escape(filler)}\]\]|(?<!\w){re.escape(filler)}(?!\w)"
    return re.sub(place, lambda _: marked(filler), text)


# ---------------------------------------------------------------------- blocks


def _blocks(texts: Mapping[int, _Text]) -> dict[int, str]:
    """Return the name of each text's block, by its number; texts without a slot, or that fit into no block, have none.

    A block has so few texts that all of its placements can be compared, which makes its test exact.
    """
    slots, whole, numbers = dict[str, Slot](), dict[str, str](), dict[str, int]()
    for number, text in texts.items():
        if text.slot is not None:
            row = content_digests(text.question, text.answer).hex()
            slots[row] = text.slot
            whole[row] = (text.question + ANSWER_SEPARATOR + text.answer).replace(
                marked(text.slot.filler), text.slot.filler
            )
            numbers[row] = number
    blocks: dict[int, str] = {}
    for rows in blocks_of(slots, whole, ALL_PLACEMENTS_UP_TO):
        n_parts = ceil(len(rows) / ALL_PLACEMENTS_UP_TO)
        for part in (rows[begin::n_parts] for begin in range(n_parts)):
            name = sha256("\n".join(sorted(part)).encode()).hexdigest()[:12]
            blocks |= {numbers[row]: name for row in part}
    return blocks


def _why_kept(text: _Text) -> str:
    """Return why a text is published as it is."""
    if text.slot is None:
        return text.reason
    kind = "a marked detail that is no given name" if text.slot.kind == MARKED else f"a {text.slot.kind} name"
    return f"no other row can exchange its detail with it: too few have {kind}, or too many have the same one"


def _with_same_version(originals: Mapping[int, OriginalText]) -> list[tuple[int, int]]:
    """Return which texts that are not drawn are a version of one that is, with the number of that one."""
    fillers: dict[str, list[str]] = {}
    for row in originals.values():
        if row.block:
            fillers.setdefault(row.block, []).append(row.filler)
    drawn: dict[str, int] = {}
    for number, row in originals.items():
        if row.block:
            drawn |= {canonical(row.filled(row.question, filler)): number for filler in fillers[row.block]}
    others = {number: canonical(row.question) for number, row in originals.items() if not row.block}
    return [(number, drawn[question]) for number, question in others.items() if question in drawn]


def _same_as(number: int) -> str:
    return f"it asks the same as row {number}, but for the name or detail; remove or reword one of them"
