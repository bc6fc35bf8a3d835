"""Where a text may be cut so that the tokens of its parts, joined, are certainly those of the whole text.

It is cut after a line break between two visible characters. Two arguments show that no token crosses such a cut; each
needs every other step of the tokenizer to work on both sides independently.

1. Its pre-tokenizer splits there: no alternative of its regular expression matches a line break followed by something
   visible (PATTERNS lists those for which that was checked).
2. Its model is a BPE, and no entry of its vocabulary contains the two characters at the cut in a row. Since everything
   that BPE merges is an entry, nothing merges across the cut, and the merges on both sides do not affect each other.

A part is encoded after a guard, a letter and a line break, so that what a tokenizer adds to the beginning of a text (a
space, for example) is not added to each part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

from tokenizers import Tokenizer, models

Step = dict[str, Any]  # the settings of a normalizer or pre-tokenizer, as in a tokenizer.json

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# Alternatives whose matches never cross a cut; a `/` may follow a line break in those with `[\r\n/]*`.
PATTERNS = {
    *GPT2.split("|"),
    SUFFIXES,
    r"(?i:[sdmt]|ll|ve|re)",
    r"'(?i:[sdmt]|ll|ve|re)",
    r"\p{N}",
    r"\p{N}+",
    r"\p{N}{1,2}",
    r"\p{N}{1,3}",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+",
    r"\s*[\r\n]+",
    r"\s*[\r\n]",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SUFFIXES}?",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SUFFIXES}?",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
}
NOT_AFTER_LINE_BREAK = "/"
ALL_SPACES = r"\s+"  # must be among the alternatives, or white space may not be matched
SPLIT_AT_SPACE = ("Whitespace", "WhitespaceSplit")


@dataclass(frozen=True)
class Cut:
    """at: matches the line breaks after which a text may be cut; guard: what may stand before a cut"""

    at: re.Pattern[str]
    guard: str

    def parts(self, text: str) -> list[str]:
        """Lines, with their line breaks; those together between which a cut is not safe."""
        *ended, last = self.at.split(text)
        return [*(f"{part}\n" for part in ended), last]


def safe_cut(tokenizer: Any) -> Cut | None:
    """Where texts for this tokenizer may be cut; None if not known to be safe."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer) or not type(tokenizer).__module__.startswith("transformers."):
        return None
    normalizers, splitters = _steps(backend.normalizer), _steps(backend.pre_tokenizer)
    if not all(map(_normalizes_each_side, normalizers)) or not all(map(_splits_each_side, splitters)):
        return None
    if any(step["type"] == "ByteLevel" for step in splitters[:-1]) or getattr(backend.model, "dropout", None):
        return None  # a later step would see bytes, or tokens are random
    crossing = _crossing(backend, normalizers, splitters)
    return None if crossing is None else _cut(backend, crossing | {NOT_AFTER_LINE_BREAK})


# ---------------------------------------------------------------------- normalizers and pre-tokenizers


def _steps(part: Any) -> list[Step]:
    """The steps of a normalizer or pre-tokenizer in order, nested sequences flattened."""
    if part is None:
        return []
    try:
        return _flat(json.loads(part.__getstate__()))
    except Exception:  # a step written in Python
        return [{"type": "unknown"}]


def _flat(step: Step) -> list[Step]:
    inner = step.get("normalizers", step.get("pretokenizers"))
    return [step] if inner is None else [one for each in inner for one in _flat(each)]


def _normalizes_each_side(step: Step) -> bool:
    """Whether a normalizer changes the text before a cut and after it independently, and keeps visible characters
    visible. NFC and NFD do, since a line break combines with nothing."""
    if step["type"] == "Replace":
        return bool(step["pattern"] == {"String": " "} and step["content"] == "▁")
    return step["type"] in ("NFC", "NFD", "Lowercase") or (step["type"] == "Prepend" and "\n" not in step["prepend"])


def _splits_each_side(step: Step) -> bool:
    """Whether a pre-tokenizer splits the text before a cut and after it independently."""
    if step["type"] == "Split":
        if "String" in step["pattern"]:
            return bool(step["pattern"]["String"] == " ")
        return (step["behavior"], step["invert"]) in (("Isolated", False), ("Removed", True)) and all(
            alternative in PATTERNS for alternative in _alternatives(step["pattern"]["Regex"])
        )
    if step["type"] == "Punctuation":
        return step["behavior"] in ("Isolated", "Contiguous")
    return step["type"] in ("ByteLevel", "Digits", "Metaspace", *SPLIT_AT_SPACE)


def _splits_at_cuts(step: Step) -> bool:
    """Whether a cut is certainly one of the places at which a pre-tokenizer splits."""
    if step["type"] == "Split" and "Regex" in step["pattern"]:
        return ALL_SPACES in _alternatives(step["pattern"]["Regex"])
    return step["type"] in SPLIT_AT_SPACE or (step["type"] == "ByteLevel" and step["use_regex"])


def _alternatives(pattern: str) -> list[str]:
    """The alternatives of a regular expression, without looking into groups and classes."""
    found, depth, in_class = [""], 0, False
    for atom in re.findall(r"\\.|.", pattern, re.DOTALL):
        if atom == "|" and not depth and not in_class:
            found.append("")
            continue
        in_class = atom == "[" or (in_class and atom != "]")
        depth += 0 if in_class else (atom == "(") - (atom == ")")
        found[-1] += atom
    return found


# ---------------------------------------------------------------------- tokens across a cut


def _crossing(backend: Tokenizer, normalizers: Sequence[Step], splitters: Sequence[Step]) -> set[str] | None:
    """Characters that a token could contain right after a line break. None if it could be any."""
    kinds = {step["type"] for step in normalizers}
    if any(map(_splits_at_cuts, splitters)):
        return set()
    is_in_bytes = any(step["type"] == "ByteLevel" for step in splitters)
    if kinds <= {"Replace", "Prepend"} and _only_merges(backend.model) and not is_in_bytes:
        return _in_vocabulary(backend)
    return None


def _in_vocabulary(backend: Tokenizer) -> set[str] | None:
    """The same for a tokenizer that only merges, by the entries of its vocabulary."""
    vocabulary = backend.get_vocab(with_added_tokens=False)
    if "\n" in vocabulary:
        found = {each for entry in vocabulary for each in re.findall(r"\n(<0x..>|[^\n])", entry)}
        is_known = all(len(each) == 1 for each in found)
        return found if is_known else None  # else some are bytes of unknown characters
    if backend.model.byte_fallback and all(f"<0x{byte:02X}>" in vocabulary for byte in range(256)):
        # Every byte is there, so nothing is unknown, and nothing unknown is merged with its neighbour.
        merged = any("<0x0A>" in entry and entry != "<0x0A>" for entry in vocabulary)
        return None if merged else set()
    return None


def _only_merges(model: Any) -> bool:
    """Whether the model is a BPE whose every token comes from merging characters."""
    return isinstance(model, models.BPE) and not (
        model.ignore_merges or model.continuing_subword_prefix or model.end_of_word_suffix
    )


# ---------------------------------------------------------------------- added tokens


def _cut(backend: Tokenizer, not_after: set[str]) -> Cut | None:
    """The cut beside which no added token is; those are found before everything else, and some take the white space
    beside them."""
    not_before: set[str] = set()
    for token in backend.get_added_tokens_decoder().values():
        for content in _as_found(token, backend.normalizer):
            if token.single_word or re.search(r"\n[^\n]|[^\n]\n$", content):
                return None
            not_before |= {*content[-1:]}
            not_after |= {*content[:1]} if token.lstrip else set()
    guard = next((letter for letter in ascii_lowercase if letter not in not_before), None)
    before, after = (re.escape("".join(sorted(some))) for some in (not_before, not_after))
    return Cut(re.compile(rf"\n(?<=[^\s{before}]\n)(?=[^\s{after}])"), f"{guard}\n") if guard else None


def _as_found(token: Any, normalizer: Any) -> Iterator[str]:
    """What an added token looks like in a text: some are looked for after normalizing, as themselves normalized."""
    yield token.content
    if token.normalized and normalizer is not None:
        yield re.sub(r"\s", "\n", normalizer.normalize_str(token.content))  # a space may have been a line break
