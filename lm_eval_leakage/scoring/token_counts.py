"""How many tokens a model has to read for given tokenised texts: each in a row of its own, or shared prefixes once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.scoring.prefix_tree import IntArray, shared_with_previous

ENGINE_BLOCK = 16  # tokens: what vLLM's prefix cache holds as one, unless `block_size` is given


@dataclass(frozen=True)
class TokenCounts:
    """Of texts whose tokens' log-likelihoods are asked for.

    n_row_tokens: all tokens but the last of each text, which predicts nothing: what `hf` reads, without its padding
    n_tree_tokens: the distinct prefixes among them: what `hf-prefix-tree` reads
    n_prompt_tokens: all tokens: what an inference engine reads without a prefix cache, since a prompt is read whole
    n_block_tokens: what an engine reads that keeps full blocks of `block` tokens and gets the texts in lexicographic
        order: a block that begins an earlier text is not read again, but the last token of a text always is
    """

    n_texts: int
    n_row_tokens: int
    n_tree_tokens: int
    n_prompt_tokens: int
    n_block_tokens: int


def token_counts(texts: Iterable[IntArray], block: int = ENGINE_BLOCK) -> TokenCounts:
    """texts: token ids `(n_tokens,)` of each, at least one, as a model would get them; they may be equal."""
    keys = sorted(np.asarray(text).astype(">u4").tobytes() for text in texts)  # big-endian bytes sort like the tokens
    rows = [np.frombuffer(key, ">u4") for key in keys]
    lengths = np.array([len(row) for row in rows], np.int64)
    if not lengths.all():
        raise ValueError("a text has no token; an empty request is not sent to a model, so leave it out")
    shared = shared_with_previous(rows).astype(np.int64)
    before = np.concatenate([[0], lengths[:-1]])[: len(rows)]
    # a text's last token is no input, so a text that continues another one adds that token as an input
    in_tree = np.minimum(shared, np.maximum(np.minimum(lengths, before) - 1, 0))
    cached = np.minimum(shared, lengths - 1) // block * block
    n_row_tokens = int((lengths - 1).sum())
    return TokenCounts(
        n_texts=len(rows),
        n_row_tokens=n_row_tokens,
        n_tree_tokens=n_row_tokens - int(in_tree.sum()),
        n_prompt_tokens=int(lengths.sum()),
        n_block_tokens=int((lengths - cached).sum()),
    )
