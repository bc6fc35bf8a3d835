"""Cuts texts where the tokens of the parts, joined, are certainly those of the whole text.

It is cut after a line break, and before a space, between two visible characters, if the tokenizer's pre-tokenizer
splits there: no alternative of its regular expression matches a line break followed by something visible, or a space
between two visible characters (PATTERNS lists those for which that was checked), and every other step works on both
sides independently. This is so for most tokenizers over bytes, but not for those that merge characters of the whole
text (Llama 2, Mistral 7B, Gemma).
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from tokenizers import Tokenizer

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


class SafeCuts(NamedTuple):
    """The places at which texts for a tokenizer may be cut.

    line_end: matches a line break after which a text may be cut
    space: matches before a space at which a text may be cut
    """

    line_end: re.Pattern[str]
    space: re.Pattern[str]


def safe_cut(tokenizer: Any) -> SafeCuts | None:
    """Return where a text for this tokenizer may be cut; None if no cut is known to be safe."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer) or not type(tokenizer).__module__.startswith("transformers."):
        return None
    normalizers, splitters = _steps(backend.normalizer), _steps(backend.pre_tokenizer)
    # NFC changes the text on both sides independently, since a line break combines with nothing
    if any(step["type"] != "NFC" for step in normalizers) or not all(map(_splits_each_side, splitters)):
        return None
    if any(step["type"] == "ByteLevel" for step in splitters[:-1]) or not any(map(_splits_at_cuts, splitters)):
        return None  # a later step would see bytes, or a token may cross a line break
    return _away_from_added_tokens(backend)


def cut_into_lines(text: str, cuts: SafeCuts) -> list[str]:
    """Return the lines, with their line breaks; those between which a cut is not safe stay together."""
    *ended, last = cuts.line_end.split(text)
    return [*(f"{line}\n" for line in ended), last]


def cut_at_space(line: str, cuts: SafeCuts) -> list[str]:
    """Return a line cut before its first space that allows it: an option's text, without its letter, is one part."""
    return cuts.space.split(line, maxsplit=1)


# ---------------------------------------------------------------------- steps of a tokenizer


def _steps(part: Any) -> list[Step]:
    """Return the steps of a normalizer or pre-tokenizer in order, nested sequences flattened."""
    if part is None:
        return []
    try:
        return _flat(json.loads(part.__getstate__()))
    except Exception:  # a step written in Python
        return [{"type": "unknown"}]


def _flat(step: Step) -> list[Step]:
    inner = step.get("normalizers", step.get("pretokenizers"))
    return [step] if inner is None else [part for each in inner for part in _flat(each)]


def _splits_each_side(step: Step) -> bool:
    """Return whether a pre-tokenizer splits the text before a cut and after it independently, and adds nothing to
    either."""
    if step["type"] == "Split":
        return (step["behavior"], step["invert"]) in (("Isolated", False), ("Removed", True)) and all(
            alternative in PATTERNS for alternative in _alternatives(step["pattern"].get("Regex", ""))
        )
    return step["type"] == "Digits" or (step["type"] == "ByteLevel" and not step["add_prefix_space"])


def _splits_at_cuts(step: Step) -> bool:
    """Return whether a cut is certainly one of the places at which a pre-tokenizer splits."""
    if step["type"] == "Split":
        return ALL_SPACES in _alternatives(step["pattern"]["Regex"])
    return step["type"] == "ByteLevel" and bool(step["use_regex"])


def _alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a regular expression, without looking into groups and classes."""
    parts, depth, in_class = [""], 0, False
    for atom in re.findall(r"\\.|.", pattern, re.DOTALL):
        if atom == "|" and not depth and not in_class:
            parts.append("")
            continue
        in_class = atom == "[" or (in_class and atom != "]")
        depth += 0 if in_class else (atom == "(") - (atom == ")")
        parts[-1] += atom
    return parts


# ---------------------------------------------------------------------- added tokens


def _away_from_added_tokens(backend: Tokenizer) -> SafeCuts | None:
    """Return the cuts beside which no added token is; those are found before everything else, and some take the white
    space beside them."""
    not_before: set[str] = set()
    not_before_space: set[str] = set()
    not_after = {NOT_AFTER_LINE_BREAK}
    for token in backend.get_added_tokens_decoder().values():
        if token.single_word or re.search(r"\n[^\n]|[^\n]\n$", token.content):
            return None
        not_before |= {*token.content[-1:]}
        not_before_space |= {*re.findall(r"(\S) ", token.content)}
        not_after |= {*token.content[:1]} if token.lstrip else set()
    not_before_space |= not_before
    before, before_space, after = (
        re.escape("".join(sorted(some))) for some in (not_before, not_before_space, not_after)
    )
    return SafeCuts(
        re.compile(rf"\n(?<=[^\s{before}]\n)(?=[^\s{after}])"),
        re.compile(rf"(?<=[^\s{before_space}])(?= [^\s{after}])"),
    )
