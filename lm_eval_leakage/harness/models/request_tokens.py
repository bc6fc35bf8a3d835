"""Counts the tokens of requests: by the model's own tokenizer if it is on this machine, else four bytes per token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lm_eval_leakage.harness.models.tokenising import encoded_pairs
from lm_eval_leakage.harness.models.tokenizer_only import TokenizerOnly
from lm_eval_leakage.harness.seams.backends import is_hf
from lm_eval_leakage.harness.seams.registries import OUR_MODELS
from lm_eval_leakage.scoring.prefix_tree import (
    IntArray,
    Lengths,
    TokenCounts,
    TokenEstimate,
    estimate_tokens,
    without_sharing,
)

BYTES_OF_A_TOKEN = 4  # of English text, by most tokenizers
SCORED = "loglikelihood"  # the only method whose texts share prefixes
AS_TREE, IN_BLOCKS, MERGED, ALONE = "n_tree_tokens", "n_block_tokens", "n_merged_tokens", "n_row_tokens"
FALLS_BACK_TO: Mapping[str, str] = {
    "hf-prefix-tree": "hf",
    "vllm-prefix-tree": "vllm",
}
READ_BY: Mapping[str, str] = {  # others: ALONE
    "hf-prefix-tree": AS_TREE,
    "vllm-prefix-tree": IN_BLOCKS,
    "hf": MERGED,
}


def read_by(model: str, counts: TokenCounts) -> int:
    """Return the tokens that a backend reads.

    model: as `--model` names it; empty for one without a name
    """
    return int(getattr(counts, READ_BY.get(model, ALONE)))


def size_estimated(
    method: str, texts: Sequence[Sequence[IntArray]], n_questions: int, lengths: Lengths | None = None
) -> TokenEstimate:
    """Return what `estimate_tokens` does, for requests of one of the model's methods."""
    size = estimate_tokens(texts, n_questions, lengths)
    return size if method == SCORED else without_sharing(size)


def backend_name(lm: Any) -> str:
    """Return the name by which READ_BY knows the backend of a model; empty if it is another one.

    That of the harness's own where ours has found out, when it was loaded or before the first request, that it must
    score as that does.
    """
    ours = {OUR_MODELS[name].split(":")[1]: name for name in FALLS_BACK_TO}
    name = next((ours[kind.__name__] for kind in type(lm).__mro__ if kind.__name__ in ours), "")
    if not name:
        return "hf" if _encodes_as_hf(lm) else ""
    scores_as_ours = lm.choice.scorer is not None if is_hf(lm) else lm.reports_as_it_goes
    return name if scores_as_ours else FALLS_BACK_TO[name]


def has_tokenizer(lm: Any) -> bool:
    """Return whether the model's tokens can be counted in this process, without a request to a server."""
    if _encodes_as_hf(lm):
        return True
    if getattr(lm, "tokenizer_backend", None) == "remote" or getattr(lm, "tok_encode", None) is None:
        return False
    return all(not isinstance(token, str) for token in lm.tok_encode("a"))


def tokens_of(lm: Any, method: str, requests: Iterable[Sequence[Any]]) -> list[IntArray]:
    """Return the token ids of each request's text, as `hf` would read it, or as `has_tokenizer` allows.

    requests: arguments of the model's method
    """
    pairs = [_texts(method, arguments) for arguments in requests]
    if _encodes_as_hf(lm):
        window = lm.max_length + 1
        return [np.concatenate(pair)[-window:] for pair in encoded_pairs(lm, pairs)]
    if has_tokenizer(lm):
        encoded = [lm.tok_encode(context + continuation) for context, continuation in pairs]
        return [np.array(tokens if len(tokens) else [0], np.int32) for tokens in encoded]
    return [_pieces(context + continuation) for context, continuation in pairs]


def n_generated(arguments: Sequence[Any]) -> int:
    """Return how many tokens a request lets the model write at most; 0 if it only scores."""
    return sum(int(part.get("max_gen_toks") or 0) for part in arguments if isinstance(part, dict))


def _encodes_as_hf(lm: Any) -> bool:
    return is_hf(lm) or isinstance(lm, TokenizerOnly)


def _texts(method: str, arguments: Sequence[Any]) -> tuple[str, str]:
    """Return context and continuation; chat models behind an API get the turns as a tuple with a JSON text."""
    first = arguments[0] if isinstance(arguments[0], str) else str(arguments[0][0])
    if method == SCORED:
        return first, str(arguments[1])
    return (first, "") if method == "generate_until" else ("", first)


def _pieces(text: str) -> IntArray:
    """Return every four bytes as a number, so that equal beginnings have equal numbers."""
    data = text.encode("utf-8", "surrogatepass")
    padded = data + b"\0" * (-len(data) % BYTES_OF_A_TOKEN or BYTES_OF_A_TOKEN * (not data))
    return np.frombuffer(padded, "<i4").astype(np.int32)
