"""Texts of any kind and length, made fit to be compared, shown and written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from reprlib import Repr
from typing import Any

SHOWN = 200  # characters of a value in a message; a reason is logged for every question that it is true of
MOST_TEXTS = 20_000  # of one row; a row of more holds tables, in which no option is looked for
LARGEST = 10**100  # of a number that stands for a text; Python writes none of more than 4,300 digits


class _Shortened(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = 12
        self.maxstring = self.maxother = SHOWN

    def repr_int(self, x: int, level: int) -> str:
        digits = int(x.bit_length() * 0.30103)  # Python refuses to write a number of more than 4,300
        return f"<a number of about {digits:,} digits>" if digits > SHOWN else repr(x)

    def repr_str(self, x: str, level: int) -> str:
        return repr(x) if len(x) <= SHOWN else f"{x[:SHOWN]!r}... ({len(x):,} characters)"


def brief(value: object) -> str:
    """`repr` for messages: never long, never an error, whatever the value holds and however deep."""
    return _Shortened().repr(value)


def well_formed(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair that stands alone, which no encoding can write."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def well_formed_parts(value: Any) -> Any:
    """A row or a part of it with every text well formed; itself where nothing is to mend."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Mapping):
        pairs = [(well_formed_parts(key), well_formed_parts(part)) for key, part in value.items()]
        same = all(key is old for (key, _), old in zip(pairs, value, strict=True))
        same = same and all(part is old for (_, part), old in zip(pairs, value.values(), strict=True))
        return value if same else dict(pairs)
    if isinstance(value, (list, tuple)):
        parts = [well_formed_parts(part) for part in value]
        return value if all(part is old for part, old in zip(parts, value, strict=True)) else type(value)(parts)
    return value


def shared_beginning(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    first, last = min(texts), max(texts)
    shortest = min(len(first), len(last))
    if first[:shortest] == last[:shortest]:
        return first[:shortest]
    return first[: next(place for place in range(shortest) if first[place] != last[place])]


def last_place(text: str, part: str, end: int | None = None) -> int:
    """`text.rfind(part, 0, end)`, which Python searches in a time that grows with the product of the two lengths."""
    end = len(text) if end is None else end
    found = text[:end][::-1].find(part[::-1])
    return -1 if found < 0 else end - found - len(part)


# ---------------------------------------------------------------------- texts of a row


def texts_in(value: object) -> Iterator[str]:
    """The texts and numbers in a data row, however deep, and those of lists that are written as a text."""
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
            if not isinstance(part, bool) and not abs(part) >= LARGEST:
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
    """The texts and numbers of a list that is written as a text, in Python's way or in JSON's; none where it is no
    list. Python's own reader takes minutes for some texts, and others end the interpreter."""
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


# ---------------------------------------------------------------------- texts from others, made safe to show

# Control characters (a terminal obeys some), separators that end a line, marks that turn the direction of writing,
# lone surrogates, and what is no character: YAML refuses them, or no encoding can write them.
UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")

SURROGATE = re.compile(r"[\ud800-\udfff]")


def visible(text: str) -> str:
    """In one line, each unsafe character as its escape, such as `\\x1b`."""
    return UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def as_json(value: object, indent: int | None = None) -> str:
    """JSON in letters as they are, each unsafe one escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return UNSAFE.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def as_yaml(value: object) -> str:
    """The same, in one line and with lone surrogates replaced, which YAML does not know."""
    text = SURROGATE.sub("\N{REPLACEMENT CHARACTER}", json.dumps(value, ensure_ascii=False))
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
