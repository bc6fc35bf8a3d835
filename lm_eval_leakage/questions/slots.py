"""Finds a detail of a text that could as well be another, and forms blocks of rows that exchange their details.

A slot is the first given name of a statement or, where rows have no names, its first number of two or three digits.
All of its occurrences can be replaced by another name of the same gender, or a number of as many digits, and the text
remains a question. Names that carry meaning are left out: those after a title or with a surname, those that the
pronouns contradict, and those that are words, places or months (`given_names.yaml`).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lm_eval_leakage.records import Block, UntestableQuestion
from lm_eval_leakage.texts import from_yaml

NAMES, NUMBERS = "names", "numbers"  # what is exchanged
# not a part of a decimal number, a fraction, a power, a range, an index or a macro of LaTeX
_NUMBER = re.compile(r"(?<![\w.,:/^_{\\-])[1-9]\d{1,2}(?![\w/^_}:°%-]|[.,]\d)")
_CODE = re.compile(r"^\s*(?:def |class |import |from \w+ import |>>> |```|#include|\[asy\])", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]+")
TITLE = re.compile(
    r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Miss|Madam|Sir|Lord|Lady|Professor|Doctor|Aunt|Uncle|Grandma|Grandpa|Grandmother"
    r"|Grandfather|King|Queen|Prince|Princess|President|Saint|Coach|Captain|Sister|Brother|Father|Mother|Farmer|Judge"
    r"|Herr|Frau|Monsieur|Madame|Señor|Señora|Don|Doña|Signor|Signora|Tante|Onkel|Tío|Tía|Zio|Zia)\.?\s+\Z"
)
HER, HIS = re.compile(r"\b(?:she|hers?|herself)\b", re.I), re.compile(r"\b(?:he|him|his|himself)\b", re.I)
PRONOUNS = {"female": (HER, HIS), "male": (HIS, HER)}  # pronouns that agree, and those that contradict
SENTENCE_START = re.compile(r"(?:\A|[.!?:…\n\"“”„«»¿¡(])\s*\Z")
SHORTEST_WORD = 4  # letters; shorter ones are mostly words of grammar


@dataclass(frozen=True)
class Slot:
    """A detail in a text that may be exchanged.

    filler: the published name or number
    kind: only slots of one kind exchange fillers; `female` or `male`, as the list of names has it, or the number of
        digits of a number
    begins: the places in the text where the filler begins
    """

    filler: str
    kind: str
    begins: tuple[int, ...]

    def filled(self, text: str, name: str) -> str:
        """Return the text with another name in each place of the slot."""
        parts, end = [], 0
        for begin in self.begins:
            parts += [text[end:begin], name]
            end = begin + len(self.filler)
        return "".join([*parts, text[end:]])


@dataclass(frozen=True)
class Exchange:
    """The slot of a row, and the block with whose rows it exchanges its filler."""

    slot: Slot
    block: Block


def places_of(filler: str, text: str) -> tuple[int, ...]:
    """Return where a filler begins in a text as a whole word, or as several."""
    if filler not in text:  # much faster, and so in most texts
        return ()
    return tuple(match.start() for match in re.finditer(rf"(?<!\w){re.escape(filler)}(?!\w)", text))


@cache
def gender_of() -> Mapping[str, str]:
    """Return the gender of each given name that may be a filler."""
    listed: Any = from_yaml(files(__package__).joinpath("given_names.yaml").read_text(encoding="utf-8"))
    return {name: gender for gender, names in listed.items() for name in names.split()}


def find_slot(text: str, fillers: str = NAMES) -> Slot:
    """Return the slot of a statement: the first detail that may be exchanged.

    fillers: NAMES or NUMBERS

    Raises UntestableQuestion, with the reason, if there is none.
    """
    return FINDERS[fillers](text)


def _find_name(text: str) -> Slot:
    reason = "it has no given name that could be exchanged for another"
    tried = set()
    for word in _WORD.finditer(text):
        name = word[0]
        if name in tried or name not in gender_of():
            continue
        tried.add(name)
        begins = places_of(name, text)
        problem = next(filter(None, (_problem(text, begin, begin + len(name)) for begin in begins)), "")
        problem = problem or _against_pronouns(text, gender_of()[name])
        if not problem:
            return Slot(name, gender_of()[name], begins)
        reason = f"its given name {name} {problem}"
    raise UntestableQuestion(reason)


def _find_number(text: str) -> Slot:
    if _CODE.search(text):
        raise UntestableQuestion("it is code, in which numbers depend on each other")
    number = _NUMBER.search(text)
    if number is None:
        raise UntestableQuestion("it has no number of two or three digits that could be exchanged for another")
    begins = tuple(match.start() for match in _NUMBER.finditer(text) if match[0] == number[0])
    return Slot(number[0], f"{len(number[0])} digits", begins)


FINDERS: Mapping[str, Callable[[str], Slot]] = {NAMES: _find_name, NUMBERS: _find_number}


def _problem(text: str, begin: int, end: int) -> str:
    """Return why the name in this place cannot be exchanged; empty if it can."""
    before, after = text[:begin], text[end:]
    if TITLE.search(before):
        return "follows a title"
    if re.match(r"['’](?!s\b|ll\b|d\b)", after):
        return "has an ending that another name would not have"
    if before.endswith(("-", "/", "@", "_")) or re.match(r"[-/@_]\w", after):
        return "is part of a longer word"
    following = re.match(r" ([^\W\d_]+)", after)
    if following is not None and _is_name(following[1]):
        return "stands beside another name"
    preceding = re.search(r"([^\W\d_]+) \Z", before)
    if preceding is None or not _is_name(preceding[1]):
        return ""
    starts_sentence = SENTENCE_START.search(before[: preceding.start()]) and preceding[1] not in gender_of()
    return "" if starts_sentence else "stands beside another name"


def _is_name(word: str) -> bool:
    return word[0].isupper() and word != "I"


def _against_pronouns(text: str, gender: str) -> str:
    """Return why a name of this gender cannot be exchanged in a text with its pronouns; empty if it can."""
    agreeing, others = PRONOUNS[gender]
    return "does not agree with the pronouns" if others.search(text) and not agreeing.search(text) else ""


def blocks_of(slots: Mapping[str, Slot], texts: Mapping[str, str], size: int) -> Iterator[tuple[str, ...]]:
    """Yield blocks of about `size` rows whose fillers can be exchanged.

    The slots of a block are of one kind and have different fillers, none of which is in another row of the block. A
    row that fits into no block is in none. Blocks depend on the rows and not on their order.

    slots, texts: by row
    """
    texts_of_rows = {row: _Text(texts[row]) for row in slots}
    for kind in sorted({slot.kind for slot in slots.values()}):
        rows = sorted((row for row, slot in slots.items() if slot.kind == kind), key=_draw)
        counts = sorted([0, *Counter(slots[row].filler for row in rows).values()])
        # each row but the first of a block is evidence; more blocks help while at least two names recur more often
        n_blocks = max(1, round(len(rows) / size), counts[-2])
        blocks: list[list[str]] = [[] for _ in range(n_blocks)]
        most_rows = -(-len(rows) // n_blocks) + 1
        for row in rows:
            fitting = [block for block in blocks if len(block) < most_rows and _fits(row, block, slots, texts_of_rows)]
            if fitting:
                min(fitting, key=len).append(row)
        yield from (tuple(block) for block in blocks if len(block) > 1)


class _Text:
    """A text with an index of its words, since many fillers are looked up in it."""

    def __init__(self, text: str) -> None:
        self._text, self._words = text, frozenset(re.findall(r"\w+", text))

    def has(self, filler: str) -> bool:
        return filler in self._words if filler.isalnum() else bool(places_of(filler, self._text))


def _draw(row: str) -> str:
    """Return a digest by which rows are put into an order that is random and always the same."""
    return hashlib.sha256(row.encode("utf-8", "surrogatepass")).hexdigest()


def _fits(row: str, block: Sequence[str], slots: Mapping[str, Slot], texts: Mapping[str, _Text]) -> bool:
    """Return whether neither the row has a filler of the block nor a row of the block has the row's filler."""
    filler = slots[row].filler
    return all(not texts[row].has(slots[other].filler) and not texts[other].has(filler) for other in block)


def content_words(text: str, slot: Slot) -> list[str]:
    """Return the words of a text in lower case and alphabetical order, without the name."""
    words = {word[0].casefold() for word in _WORD.finditer(slot.filled(text, " "))}
    return sorted(word for word in words if len(word) >= SHORTEST_WORD)
