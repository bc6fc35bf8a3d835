"""Tokens of many texts that share lines and words: each distinct one is encoded once, and their tokens are joined."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from lm_eval_leakage.harness.models.safe_cuts import Cut, SafeCuts, safe_cuts
from lm_eval_leakage.scoring.prefix_tree import IntArray

TOKEN_SIZE = 4  # bytes of an id in `token_bytes`
# How many parts of one kind are remembered from batch to batch: few lines are in several questions.
WORDS_REMEMBERED = 1 << 16
LINES_REMEMBERED = 1 << 12
# Token ids of strings, as bytes, by string: encode(strings, guard, suffix). The guard is text before each string whose
# tokens are left out, the suffix text after it whose tokens are included.
Encode = Callable[[Collection[str], str, str], dict[str, bytes]]


def joined_tokens(tokenizer: Any) -> JoinedTokens | None:
    """Encodes for `tokenizer`; None if no cuts are known to be safe for it."""
    cuts = safe_cuts(tokenizer)
    return JoinedTokens(tokenizer, cuts) if cuts.lines or cuts.words else None


class JoinedTokens:
    """Encodes texts by their lines, and lines by their words, as far as the cuts are safe."""

    def __init__(self, tokenizer: Any, cuts: SafeCuts) -> None:
        self.tokenizer = tokenizer
        self._n_guard: dict[str, int] = {}
        self._encode: Encode = self._guarded
        for cut, most in ((cuts.words, WORDS_REMEMBERED), (cuts.lines, LINES_REMEMBERED)):
            if cut is not None:
                self._encode = _Parts(cut, self._encode, most).encoded

    def encoded(self, strings: Sequence[str], special: bool | None) -> dict[str, bytes]:
        """As `encoded_whole`; `special`: whether special tokens are added, None for the tokenizer's default."""
        frame = self._frame(special)
        if frame is None:
            return encoded_whole(self.tokenizer, strings, special)
        found = self._encode(strings, "", "")
        return {string: frame + tokens for string, tokens in found.items()} if frame else found

    def _frame(self, special: bool | None) -> bytes | None:
        """The special tokens at the beginning of every text; None if there are some at its end too."""
        (bare,), (framed,) = (_rows(self.tokenizer, ["a"], added) for added in (False, special))
        return framed.removesuffix(bare) if framed.endswith(bare) else None

    def _guarded(self, strings: Collection[str], guard: str, suffix: str) -> dict[str, bytes]:
        if guard not in self._n_guard:
            # a space belongs to what follows
            (alone,) = _rows(self.tokenizer, [guard.removesuffix(" ")], False)
            self._n_guard[guard] = len(alone) // TOKEN_SIZE if guard else 0
        first = self._n_guard[guard]
        # `encoded` has just called the tokenizer itself, which turned off padding and truncation; its own work on each
        # string would take twice as long again
        rows = self.tokenizer.backend_tokenizer.encode_batch_fast(
            [f"{guard}{string}{suffix}" for string in strings], add_special_tokens=False
        )
        return {string: token_bytes(row.ids[first:]) for string, row in zip(strings, rows, strict=True)}


class _Parts:
    """Encodes strings by their parts between cuts of one kind; `below` encodes the parts, of which `most` of a kind
    are remembered from call to call."""

    def __init__(self, cut: Cut, below: Encode, most: int) -> None:
        self.cut, self.below, self.most = cut, below, most
        self._separator = cut.before + cut.after
        self._tables: dict[tuple[str, str], dict[str, bytes]] = {}
        self._clean: set[str] = set()  # parts that may be before a cut as well as after one

    def encoded(self, strings: Collection[str], guard: str, suffix: str) -> dict[str, bytes]:
        rows = {string: self._parts(string) for string in strings}
        cut = [row for row in rows.values() if len(row) > 1]
        own_guard = self.cut.guard + self._separator
        first = self._known({row[0] for row in cut}, guard, self.cut.before)
        middle = self._known({part for row in cut for part in row[1:-1]}, own_guard, self.cut.before)
        last = self._known({row[-1] for row in cut}, own_guard, suffix)
        found = self.below([string for string, row in rows.items() if len(row) == 1], guard, suffix)
        for string, row in rows.items():
            if len(row) > 1:
                found[string] = b"".join([first[row[0]], *map(middle.__getitem__, row[1:-1]), last[row[-1]]])
        return found

    def _known(self, parts: set[str], guard: str, suffix: str) -> dict[str, bytes]:
        table = self._tables.setdefault((guard, suffix), {})
        if len(table) > self.most:  # a new one, since the caller still reads the old one
            table = self._tables[guard, suffix] = {}
        table |= self.below([part for part in parts if part not in table], guard, suffix)
        return table

    def _parts(self, string: str) -> list[str]:
        pieces = string.split(self._separator)
        return pieces if self._clean.issuperset(pieces) else self._merged(pieces)

    def _merged(self, pieces: Iterable[str]) -> list[str]:
        """The pieces, of which those are joined again between which a cut is not safe."""
        if len(self._clean) > self.most:
            self._clean.clear()
        parts: list[str] = []
        may_end = False
        for piece in pieces:
            ends = begins = piece in self._clean
            if not ends:
                ends, begins = self.cut.may_end(piece), self.cut.may_begin(piece)
                if ends and begins:
                    self._clean.add(piece)
            if may_end and begins:
                parts.append(piece)
            else:
                parts[-1:] = [self._separator.join([*parts[-1:], piece])]
            may_end = ends
        return parts


def encoded_whole(tokenizer: Any, strings: Sequence[str], special: bool | None) -> dict[str, bytes]:
    """Token ids, as `token_bytes`, by string, each string encoded on its own."""
    return dict(zip(strings, _rows(tokenizer, [*strings], special), strict=True))


def token_bytes(ids: Sequence[int]) -> bytes:
    """Token ids as bytes, which are joined, cut and compared in less time than arrays."""
    return array("i", ids).tobytes()


def tokens_in(joined: bytes) -> IntArray:
    """The ids that were turned into bytes, read-only."""
    return np.frombuffer(joined, np.int32)


def _rows(tokenizer: Any, strings: list[str], special: bool | None) -> list[bytes]:
    if not strings:
        return []
    asked = {} if special is None else {"add_special_tokens": special}
    rows = tokenizer(strings, return_attention_mask=False, return_token_type_ids=False, **asked)["input_ids"]
    return [token_bytes(row) for row in rows]
