"""Texts of messages: arbitrary text made safe for terminals, tables and YAML, and suggestions of similar names."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from difflib import get_close_matches
from reprlib import Repr
from typing import Any

LONGEST_ERROR = 300  # characters of an error in a message; logs have all of it
LONGEST_SHOWN = 200  # characters of a value in a message; a skip reason is logged for every question it applies to


_SHORTENED = Repr()
_SHORTENED.maxlist = _SHORTENED.maxtuple = _SHORTENED.maxset = _SHORTENED.maxdict = 12
_SHORTENED.maxstring = _SHORTENED.maxother = LONGEST_SHOWN


def brief(value: object) -> str:
    """`repr` for messages: never long, never an error, whatever the value holds and however deeply it is nested."""
    return _SHORTENED.repr(value)


def in_one_sentence(error: BaseException) -> str:
    """What an error says, on one line, with its type unless its text is meant for users. Of tenacity's RetryError,
    which only says that there was an error, what the last attempt raised."""
    if isinstance(attempt := getattr(error, "last_attempt", None), Future):
        return in_one_sentence(attempt.exception() or error.__cause__ or Exception())
    text = visible(" ".join(str(error).split()))
    return shortened(
        text if isinstance(error, SystemExit) and text else f"{type(error).__name__}: {text}".removesuffix(": ")
    )


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}..."


def canonical(text: str) -> str:
    """The same for texts that nobody can tell apart by eye: one Unicode form (NFC), without invisible characters, and
    white space as single spaces. Case counts, and so do `x²` and `x2`: they can be different options."""
    shown = " ".join(text.split())
    if shown.isascii():
        return shown
    if not shown.isprintable():  # as where it has invisible characters
        shown = "".join(character for character in shown if unicodedata.category(character) != "Cf")
    return " ".join(unicodedata.normalize("NFC", shown).split())


def in_capitals(text: str) -> str:
    """Upper case; neighbouring letters of scripts without case are separated by a space, so that they, too, read the
    same and are other tokens."""
    if text.isascii():
        return text.upper()
    bare = [unicodedata.category(character) == "Lo" for character in text]
    apart = [" " if place and bare[place] and bare[place - 1] else "" for place in range(len(text))]
    return "".join(space + character for space, character in zip(apart, text, strict=True)).upper()


# ---------------------------------------------------------------------- untrusted text, made safe to show

# Control characters (a terminal obeys some), line separators, marks that change the direction of writing, lone
# surrogates and non-characters: YAML refuses them, or no encoding can write them.
UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")

SURROGATE = re.compile(r"[\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` on one line, with each unsafe character escaped, such as `\\x1b`."""
    return UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def visible_lines(text: str) -> str:
    """Return a text of several lines with each unsafe character escaped."""
    return "\n".join(map(visible, text.split("\n")))


def texts_within(value: object) -> Iterator[str]:
    """Yield the texts in nested lists and mappings; of a mapping those of its values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from texts_within(part)


def as_json(value: object, indent: int | None = None) -> str:
    """Return strict JSON, with null for numbers that are not finite, which JSON does not have.

    Non-ASCII characters are kept, and unsafe ones are escaped.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_with_finite_numbers(value), ensure_ascii=False, indent=indent, allow_nan=False)
    return UNSAFE.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _with_finite_numbers(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _with_finite_numbers(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_finite_numbers(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_yaml(value: object) -> str:
    """The same on one line, with lone surrogates replaced, which YAML does not allow."""
    text = SURROGATE.sub("\N{REPLACEMENT CHARACTER}", json.dumps(value, ensure_ascii=False))
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


MOST_YAML_NODES = 100_000  # with aliases written out; a plan has some hundreds


def from_yaml(text: str) -> object:
    """What a YAML text says, with plain values only.

    Raises ValueError, in one sentence, for what is not YAML, for a key that stands twice (YAML takes the last value
    without a word), and for aliases that multiply beyond memory.
    """
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _size_of_node(node, {})
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not valid YAML ({' '.join(str(error).split())}); fix that line") from error
    except RecursionError:
        raise ValueError("its lists or names are nested too deeply; settings need only a few levels") from None
    finally:
        loader.dispose()


def _size_of_node(node: Any, known: dict[int, int]) -> int:
    """The number of values in it with aliases written out, each alias counted in one step."""
    if id(node) not in known:
        known[id(node)] = MOST_YAML_NODES + 1  # until it is counted: met again before, it holds itself
        if node.id == "mapping":
            _refuse_twice([key for key, _ in node.value if key.id == "scalar"])
        parts = [] if node.id == "scalar" else node.value
        inner = (one for part in parts for one in (part if isinstance(part, tuple) else (part,)))
        known[id(node)] = 1 + sum(_size_of_node(one, known) for one in inner)
    if known[id(node)] > MOST_YAML_NODES:
        raise ValueError(
            f"its aliases (`*name`) stand for more than {MOST_YAML_NODES:,} values; write the settings without them"
        )
    return known[id(node)]


def _refuse_twice(keys: Iterable[Any]) -> None:
    lines: dict[str, int] = {}
    for key in keys:
        line = key.start_mark.line + 1
        if key.value in lines:
            first = lines[key.value]
            where = f"line {line}" if first == line else f"lines {first} and {line}"
            raise ValueError(f"{brief(key.value)} stands twice, in {where}; keep one of them")
        lines[key.value] = line


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names that are similar to a misspelled one, the nearest first."""
    return get_close_matches(name, list(dict.fromkeys(known)), cutoff=0.6)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean mmlu or mmmu`, to end a sentence with; empty if no name is similar."""
    *others, last = nearest_names(name, known) or [""]
    return f"; did you mean {' or '.join(filter(None, [', '.join(others), last]))}" if last else ""
