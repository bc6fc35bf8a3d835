"""Finds texts in data rows, however deeply nested, and compares texts of rows and prompts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from lm_eval_leakage.questions.fields import LARGEST_NUMBER, well_formed

MOST_TEXTS = 20_000  # per row; a row with more contains tables, which are not searched for options


def shared_beginning(texts: Sequence[str]) -> str:
    """The longest common prefix."""
    first, last = min(texts), max(texts)
    shortest = min(len(first), len(last))
    if first[:shortest] == last[:shortest]:
        return first[:shortest]
    return first[: next(place for place in range(shortest) if first[place] != last[place])]


def last_place(text: str, part: str, end: int | None = None) -> int:
    """`text.rfind(part, 0, end)` in linear time; Python's takes time proportional to the product of the lengths."""
    end = len(text) if end is None else end
    found = text[:end][::-1].find(part[::-1])
    return -1 if found < 0 else end - found - len(part)


def texts_in(value: object) -> Iterator[str]:
    """The texts and numbers in a data row, however deeply nested, including those in lists written as text."""
    return islice(_all_texts_in(value), MOST_TEXTS)


def _all_texts_in(value: object) -> Iterator[str]:
    left = [iter([value])]
    while left:
        part = next(left[-1], left)
        if part is left:
            left.pop()
        elif isinstance(part, str):
            yield part
            yield from listed_texts(part)
        elif isinstance(part, (int, float)):
            if not isinstance(part, bool) and not abs(part) >= LARGEST_NUMBER:
                yield str(part)
        elif isinstance(part, Mapping):
            left.append(iter(part.values()))
        elif isinstance(part, Iterable) and not isinstance(part, (bytes, bytearray)):
            left.append(iter(part))


_PIECE = re.compile(
    r"""[\s,()\[\]{}:]+ | None | True | False
    | (?P<number>[-+]?\d+(?:\.\d+)?)
    | (?P<text>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")""",
    re.VERBOSE | re.DOTALL,
)


def listed_texts(text: str) -> list[str]:
    """The texts and numbers of a list that is written as text, as Python or JSON; empty if it is not a list. Not
    `ast.literal_eval`, which takes minutes for some texts and crashes the interpreter on others."""
    if not (text.startswith("[") and text.rstrip().endswith("]")):
        return []
    found, place = [], 0
    while place < len(text):
        piece = _PIECE.match(text, place)
        if piece is None:
            return []
        place = piece.end()
        if piece["text"] or piece["number"]:
            found.append(_unquoted(piece["text"]) if piece["text"] else piece["number"])
    return found


_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U(00(?:0{_HEX}|10){_HEX}{{4}})|(.))", re.DOTALL)
_ESCAPED = {sign: sign for sign in "'\"\\/"} | dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))


def _unquoted(quoted: str) -> str:
    return well_formed(_ESCAPE.sub(_meant, quoted[1:-1])) if "\\" in quoted else quoted[1:-1]


def _meant(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else _ESCAPED.get(escape[4], escape[0])
