"""Texts from others, such as names of models and of files, made safe to show: on a terminal, in tables, in YAML."""

from __future__ import annotations

import json
import re

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
