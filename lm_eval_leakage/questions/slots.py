"""Finds the given name in a text that could as well be another one, and forms blocks of rows that exchange theirs.

A slot is the first given name of a statement. Its occurrences can be replaced by another name of the same gender
without changing what the row asks. Left out are names that carry meaning: of titled people, with a surname, that the
pronouns contradict, or that are words, places or months (`given_names.yaml`).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lm_eval_leakage.records import Block, UntestableQuestion
from lm_eval_leakage.texts import from_yaml

WORD = re.compile(r"[^\W\d_]+")
TITLE = re.compile(
    r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Miss|Madam|Sir|Lord|Lady|Professor|Doctor|Aunt|Uncle|Grandma|Grandpa|Grandmother"
    r"|Grandfather|King|Queen|Prince|Princess|President|Saint|Coach|Captain|Sister|Brother|Father|Mother|Farmer|Judge"
    r"|Herr|Frau|Monsieur|Madame|Señor|Señora|Don|Doña|Signor|Signora|Tante|Onkel|Tío|Tía|Zio|Zia)\.?\s+\Z"
)
HER, HIS = re.compile(r"\b(?:she|hers?|herself)\b", re.I), re.compile(r"\b(?:he|him|his|himself)\b", re.I)
PRONOUNS = {"female": (HER, HIS), "male": (HIS, HER)}  # those that agree, and the others
SENTENCE_START = re.compile(r"(?:\A|[.!?:…\n\"“”„«»¿¡(])\s*\Z")


@dataclass(frozen=True)
class Slot:
    """A given name in a text that may be exchanged.

    filler: the published name; gender: `female` or `male`, as the list of names has it
    begins: the places in the text at which it stands
    """

    filler: str
    gender: str
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


def find_slot(text: str) -> Slot:
    """Return the slot of a statement: its first given name that may be exchanged.

    Raises UntestableQuestion, with the reason, if there is none.
    """
    reason = "it has no given name that could be exchanged for another"
    tried = set()
    for word in WORD.finditer(text):
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
    agreeing, others = PRONOUNS[gender]
    return "does not agree with the pronouns" if others.search(text) and not agreeing.search(text) else ""


def blocks_of(slots: Mapping[str, Slot], texts: Mapping[str, str], size: int) -> Iterator[tuple[str, ...]]:
    """Yield blocks of about `size` rows whose names can be exchanged: of one gender, with different names, none of
    which occurs in another row of the block. A row that fits into no block is in none.

    slots, texts: by row; blocks depend on the rows and not on their order
    """
    for gender in sorted({slot.gender for slot in slots.values()}):
        rows = sorted((row for row, slot in slots.items() if slot.gender == gender), key=_draw)
        counts = sorted([0, *Counter(slots[row].filler for row in rows).values()])
        # each row but the first of a block is evidence: another block gains as long as two names recur more often
        n_blocks = max(1, round(len(rows) / size), counts[-2])
        blocks: list[list[str]] = [[] for _ in range(n_blocks)]
        room = -(-len(rows) // n_blocks) + 1
        for row in rows:
            fitting = [block for block in blocks if len(block) < room and _fits(row, block, slots, texts)]
            if fitting:
                min(fitting, key=len).append(row)
        yield from (tuple(block) for block in blocks if len(block) > 1)


def _draw(row: str) -> str:
    return hashlib.sha256(row.encode("utf-8", "surrogatepass")).hexdigest()


def _fits(row: str, block: Sequence[str], slots: Mapping[str, Slot], texts: Mapping[str, str]) -> bool:
    own = slots[row].filler
    return all(not places_of(slots[other].filler, texts[row]) and not places_of(own, texts[other]) for other in block)


SHORTEST_WORD = 4  # letters; shorter ones are mostly words of grammar


def content_words(text: str, slot: Slot) -> list[str]:
    """Return the words of a text in lower case and alphabetical order, without the name."""
    words = {word[0].casefold() for word in WORD.finditer(slot.filled(text, " "))}
    return sorted(word for word in words if len(word) >= SHORTEST_WORD)
