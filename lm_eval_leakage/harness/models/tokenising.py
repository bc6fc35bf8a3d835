"""Tokenises requests by the harness's own rules, but in batches and each distinct string once.

The harness encodes each context and each whole text separately, which takes longer than scoring them on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from lm_eval_leakage.scoring.prefix_tree import IntArray

AT_ONCE = 2048  # requests


def encoded_pairs(
    lm: Any, pairs: Sequence[tuple[str, str]], disable_tqdm: bool = True
) -> Iterator[tuple[IntArray, IntArray]]:
    """Tokens of each (context, continuation), as `lm` would encode them one by one: the continuation is what follows
    the context's tokens in the whole text, trailing spaces of the context are moved to the continuation, and a text
    without context follows the prefix token."""
    bar = tqdm(total=len(pairs), disable=disable_tqdm, desc="Tokenizing inputs")
    for first in range(0, len(pairs), AT_ONCE):
        some = [_spaces_moved(*pair) for pair in pairs[first : first + AT_ONCE]]
        alone = _encoded(lm, {continuation for context, continuation in some if not context}, special=False)
        contexts = _encoded(lm, {context for context, _ in some if context})
        wholes = _encoded(lm, {context + continuation for context, continuation in some if context})
        for context, continuation in some:
            if context:
                before = contexts[context]
                yield before, wholes[context + continuation][len(before) :]
            else:
                yield _after_prefix_token(lm, alone[continuation])
            bar.update()
    bar.close()


def _spaces_moved(context: str, continuation: str) -> tuple[str, str]:
    kept = context.rstrip()
    if context and not kept:
        raise ValueError(
            f"the context {context!r} (before {continuation[:60]!r}) is only white space, which is moved to the "
            "continuation; give an empty context, or one with text"
        )
    return kept, context[len(kept) :] + continuation


def _after_prefix_token(lm: Any, tokens: IntArray) -> tuple[IntArray, IntArray]:
    if len(tokens) and tokens[0] == lm.prefix_token_id:
        return tokens[:1], tokens[1:]
    return np.array([lm.prefix_token_id], np.int32), tokens


def _encoded(lm: Any, strings: set[str], special: bool | None = None) -> dict[str, IntArray]:
    """Token ids by string. `special`: whether to add special tokens; None leaves it to the model's arguments, and adds
    none to a string that begins with one."""
    prefix = lm.tokenizer.decode(lm.prefix_token_id)
    marked = {string for string in strings if special is None and string.startswith(prefix)}
    usual = lm.add_bos_token if special is None else special
    return _batch(lm, [*marked], False) | _batch(lm, [string for string in strings if string not in marked], usual)


def _batch(lm: Any, strings: list[str], special: bool | None) -> dict[str, IntArray]:
    if not strings:
        return {}
    asked = {} if special is None else {"add_special_tokens": special}
    rows = lm.tokenizer(strings, return_attention_mask=False, return_token_type_ids=False, **asked)["input_ids"]
    return {string: np.array(row, np.int32) for string, row in zip(strings, rows, strict=True)}
