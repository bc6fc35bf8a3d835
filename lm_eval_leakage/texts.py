"""Texts of messages: arbitrary text made safe for terminals, tables and YAML, and suggestions of similar names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr

LONGEST_SHOWN = 200  # characters of a value in a message; a skip reason is logged for every question it applies to


class _Shortened(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = 12
        self.maxstring = self.maxother = LONGEST_SHOWN

    def repr_int(self, x: int, level: int) -> str:
        digits = int(x.bit_length() * 0.30103)  # Python refuses to print an integer of more than 4,300 digits
        return f"<a number of about {digits:,} digits>" if digits > LONGEST_SHOWN else repr(x)

    def repr_str(self, x: str, level: int) -> str:
        return repr(x) if len(x) <= LONGEST_SHOWN else f"{x[:LONGEST_SHOWN]!r}... ({len(x):,} characters)"


def brief(value: object) -> str:
    """`repr` for messages: never long, never an error, whatever the value holds and however deeply it is nested."""
    return _Shortened().repr(value)


# ---------------------------------------------------------------------- untrusted text, made safe to show

# Control characters (a terminal obeys some), line separators, marks that change the direction of writing, lone
# surrogates and non-characters: YAML refuses them, or no encoding can write them.
UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")

SURROGATE = re.compile(r"[\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` on one line, with each unsafe character escaped, such as `\\x1b`."""
    return UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def as_json(value: object, indent: int | None = None) -> str:
    """JSON with non-ASCII characters kept and unsafe ones escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return UNSAFE.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def as_yaml(value: object) -> str:
    """The same on one line, with lone surrogates replaced, which YAML does not allow."""
    text = SURROGATE.sub("\N{REPLACEMENT CHARACTER}", json.dumps(value, ensure_ascii=False))
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names that are similar to a misspelled one, the nearest first."""
    return get_close_matches(name, list(known), cutoff=0.6)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean mmlu or mmmu`, to end a sentence with; empty if no name is similar."""
    *others, last = nearest_names(name, known) or [""]
    if not last:
        return ""
    return f"; did you mean {', '.join(others)} or {last}" if others else f"; did you mean {last}"
