"""Makes arbitrary text safe for terminals, tables, JSON and YAML, and suggests similar names for messages."""

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
MOST_YAML_NODES = 100_000  # with aliases expanded; a plan has some hundreds
# Control characters (a terminal obeys some), line separators, marks that change the direction of writing, lone
# surrogates and non-characters: YAML refuses them, or no encoding can write them.
UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")
SURROGATE = re.compile(r"[\ud800-\udfff]")


_SHORTENED = Repr()
_SHORTENED.maxlist = _SHORTENED.maxtuple = _SHORTENED.maxset = _SHORTENED.maxdict = 12
_SHORTENED.maxstring = _SHORTENED.maxother = LONGEST_SHOWN


def brief(value: object) -> str:
    """Return a shortened `repr` for messages. It never raises, however deeply the value is nested."""
    return _SHORTENED.repr(value)


def in_one_sentence(error: BaseException) -> str:
    """Return an error's message on one line, with its type unless the message is meant for users. For tenacity's
    RetryError, which has no message of its own, return that of the last attempt's error."""
    if isinstance(attempt := getattr(error, "last_attempt", None), Future):
        return in_one_sentence(attempt.exception() or error.__cause__ or Exception())
    text = visible(" ".join(str(error).split()))
    if isinstance(error, SystemExit) and text:
        return shortened(text)
    return shortened(f"{type(error).__name__}: {text}".removesuffix(": "))


def shortened(text: str) -> str:
    """Return a text cut after `LONGEST_ERROR` characters."""
    return text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}..."


def canonical(text: str) -> str:
    """Return a text in a form that is equal for texts that look equal: in one Unicode form (NFC), without invisible
    characters, and with single spaces as white space. Case is kept, and so are `x²` and `x2`, which can be different
    options."""
    shown = " ".join(text.split())
    if shown.isascii():
        return shown
    if not shown.isprintable():  # as where it has invisible characters
        shown = "".join(character for character in shown if unicodedata.category(character) != "Cf")
    return " ".join(unicodedata.normalize("NFC", shown).split())


def in_capitals(text: str) -> str:
    """Return a text in upper case. Neighbouring letters of scripts without case are separated by a space instead: the
    text then reads the same and has other tokens."""
    if text.isascii():
        return text.upper()
    is_caseless = [unicodedata.category(character) == "Lo" for character in text]
    spaces = [" " if place and is_caseless[place] and is_caseless[place - 1] else "" for place in range(len(text))]
    return "".join(space + character for space, character in zip(spaces, text, strict=True)).upper()


# ---------------------------------------------------------------------- untrusted text, made safe to show


def visible(text: str) -> str:
    """Return a text on one line, with each unsafe character escaped, such as `\\x1b`."""
    return UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


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
    return UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def _with_finite_numbers(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _with_finite_numbers(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_finite_numbers(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_yaml(value: object) -> str:
    """Return a value as YAML on one line. Lone surrogates, which YAML does not allow, are replaced."""
    text = SURROGATE.sub("\N{REPLACEMENT CHARACTER}", json.dumps(value, ensure_ascii=False))
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def from_yaml(text: str) -> object:
    """Return the content of a YAML text, which may have plain values only.

    Raises ValueError, in one sentence, for invalid YAML, for a repeated key (YAML would silently take the last value),
    and for aliases that multiply beyond memory.
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


def _size_of_node(node: Any, sizes: dict[int, int]) -> int:
    """Return the number of values in a YAML node with aliases expanded. Each node is counted only once.

    sizes: by id of a node, those counted so far
    """
    if id(node) not in sizes:
        sizes[id(node)] = MOST_YAML_NODES + 1  # until it is counted: a node that is met again before holds itself
        if node.id == "mapping":
            _refuse_repeated([key for key, _ in node.value if key.id == "scalar"])
        parts = [] if node.id == "scalar" else node.value
        size = 1
        for part in parts:
            for child in part if isinstance(part, tuple) else (part,):
                size += _size_of_node(child, sizes)
        sizes[id(node)] = size
    if sizes[id(node)] > MOST_YAML_NODES:
        raise ValueError(
            f"its aliases (`*name`) stand for more than {MOST_YAML_NODES:,} values; write the settings without them"
        )
    return sizes[id(node)]


def _refuse_repeated(keys: Iterable[Any]) -> None:
    """Raise ValueError, with the lines, if a key occurs twice in a mapping."""
    lines: dict[str, int] = {}
    for key in keys:
        line = key.start_mark.line + 1
        if key.value in lines:
            first = lines[key.value]
            where = f"line {line}" if first == line else f"lines {first} and {line}"
            raise ValueError(f"{brief(key.value)} stands twice, in {where}; keep one of them")
        lines[key.value] = line


def nearest_names(name: str, candidates: Iterable[str]) -> list[str]:
    """Return at most three candidates that are similar to a misspelled name, the nearest first."""
    return get_close_matches(name, list(dict.fromkeys(candidates)), cutoff=0.6)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return the end of a sentence, such as `; did you mean mmlu or mmmu`; empty if no candidate is similar."""
    *others, last = nearest_names(name, candidates) or [""]
    return f"; did you mean {' or '.join(filter(None, [', '.join(others), last]))}" if last else ""
