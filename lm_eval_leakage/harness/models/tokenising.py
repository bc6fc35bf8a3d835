"""Tokenises requests by the harness's own rules, but in batches and each distinct word once.

The harness encodes each context and each whole text separately, which takes longer than scoring them on a GPU.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from lm_eval_leakage.harness.models.joined_tokens import (
    TOKEN_SIZE,
    encoded_whole,
    joined_tokens,
    token_bytes,
    tokens_in,
)
from lm_eval_leakage.scoring.prefix_tree import IntArray, Texts

logger = logging.getLogger(__name__)
AT_ONCE = 4096  # requests
FEWEST_PAIRS = 256  # for fewer, it is not worth looking for safe cuts
N_CHECKED = (
    32,
    4,
)  # strings whose joined tokens are compared with their own, in the first batch and in each later one


def encoded_pairs(
    lm: Any, pairs: Sequence[tuple[str, str]], disable_tqdm: bool = True
) -> Iterator[tuple[IntArray, IntArray]]:
    """Tokens of each (context, continuation), as `lm` would encode them one by one: the continuation is what follows
    the context's tokens in the whole text, trailing spaces of the context are moved to the continuation, and a text
    without context follows the prefix token. The arrays are read-only."""
    encoder = PairEncoder(lm, len(pairs))
    with tqdm(total=len(pairs), disable=disable_tqdm, desc="Tokenizing inputs") as bar:
        for first in range(0, len(pairs), AT_ONCE):
            some = encoder.batch(pairs[first : first + AT_ONCE])
            yield from some.pairs()
            bar.update(len(some))


class PairEncoder:
    """Encodes batches of (context, continuation) pairs for `lm`, by lines and words where the tokenizer allows it."""

    def __init__(self, lm: Any, n_pairs: int) -> None:
        self.lm = lm
        self._prefix = lm.tokenizer.decode(lm.prefix_token_id)
        self._prefix_token = token_bytes([lm.prefix_token_id])
        self._joined = joined_tokens(lm.tokenizer) if n_pairs >= FEWEST_PAIRS else None
        self._n_checked = N_CHECKED[0]

    def batch(self, pairs: Sequence[tuple[str, str]]) -> Texts:
        """As `encoded_pairs`, of which the continuations are scored; equal lines are encoded once per batch."""
        some = [(_without_spaces(*pair), "".join(pair)) for pair in pairs]
        contexts = self._encoded([context for context, _ in some if context])
        wholes = self._encoded([whole for context, whole in some if context])
        alone = self._encoded([whole for context, whole in some if not context], special=False)
        rows: list[bytes] = []  # a context, its continuation, the next context ...
        for context, whole in some:
            if context:
                before = contexts[context]
                rows += before, wholes[whole][len(before) :]
            else:
                rows += self._prefix_token, alone[whole].removeprefix(self._prefix_token)
        lengths = np.fromiter(map(len, rows), np.int32, len(rows)) // TOKEN_SIZE
        return Texts(tokens_in(b"".join(rows)), lengths[::2] + lengths[1::2], lengths[1::2])

    def _encoded(self, strings: Sequence[str], special: bool | None = None) -> dict[str, bytes]:
        """Token ids by string. `special`: whether to add special tokens; None leaves it to the model's arguments, and
        adds none to a string that begins with one."""
        distinct = dict.fromkeys(strings)
        marked = [string for string in distinct if special is None and string.startswith(self._prefix)]
        usual = self.lm.add_bos_token if special is None else special
        found = self._of_each(marked, False)
        return found | self._of_each([string for string in distinct if string not in found], usual)

    def _of_each(self, strings: list[str], special: bool | None) -> dict[str, bytes]:
        if self._joined is None:
            return encoded_whole(self.lm.tokenizer, strings, special)
        joined = self._joined.encoded(strings, special)
        checked = random.Random(len(strings)).sample(strings, min(self._n_checked, len(strings)))
        self._n_checked = N_CHECKED[1]
        for string, tokens in encoded_whole(self.lm.tokenizer, checked, special).items():
            if joined[string] != tokens:
                return self._not_joined(strings, special, string)
        return joined

    def _not_joined(self, strings: list[str], special: bool | None, example: str) -> dict[str, bytes]:
        logger.warning(
            "the tokens of %r are not those of its parts joined, so from here on texts are tokenised whole, which is "
            "slower; please report this tokenizer (%s)",
            example[:200],
            type(self.lm.tokenizer).__name__,
        )
        self._joined = None
        return encoded_whole(self.lm.tokenizer, strings, special)


def _without_spaces(context: str, continuation: str) -> str:
    """The context without trailing spaces, which are moved to the continuation."""
    kept = context.rstrip()
    if context and not kept:
        raise ValueError(
            f"the context {context!r} (before {continuation[:60]!r}) is only white space, which is moved to the "
            "continuation; give an empty context, or one with text"
        )
    return kept
