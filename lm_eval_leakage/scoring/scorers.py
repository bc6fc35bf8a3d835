"""Computes log-likelihoods of many texts, and yields them as soon as they are complete, in tree order.

The number of tokens of a forward pass is estimated from free memory, and halved when memory runs out. By default glibc
returns every large tensor to the system when it is freed and requests it again, zeroed page by page, in the next
layer. On a CPU that takes a fifth of the time of a dense forward pass of SmolLM2-135M, and a tenth of a tree's.
`keep_freed_memory` prevents it.
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import math
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lm_eval_leakage.scoring.pieces import Carried, Piece, index_tensor
from lm_eval_leakage.scoring.prefix_tree import PrefixTree, Text, prefix_tree
from lm_eval_leakage.scoring.tree_model import TreeModel, logprobs_and_greedy, rows_at_once

logger = logging.getLogger(__name__)
FEWEST_TOKENS = 16
MOST_TOKENS = {"cuda": 16384, "cpu": 4096}  # more is no faster on a CPU (measured); a guess for GPUs
# Parameters of mallopt, and values: no allocation is mapped by itself, nothing is returned, memory grows in steps of
# 64 MiB (M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD).
MALLOC_SETTINGS = {-4: 0, -1: 2**31 - 1, -2: 2**26}
USUAL_TOKENS = 256  # whatever the memory
# Of a forward pass on a CPU, some 20 seconds of one core, so that progress is seen. A pass of 512 tokens instead of
# 4096 costs SmolLM2-135M 6 % more CPU time, one of 1024 tokens nothing that could be measured.
MOST_OPERATIONS = 2e12


@dataclass
class TokenBudget:
    """The maximum number of tokens per forward pass, which is halved when memory runs out and never raised again.

    agree: a function that maps this process's budget to the smallest one of all processes that hold parts of the model
    """

    max_tokens: int
    agree: Callable[[int], int] = int

    def lower(self, error: Exception) -> None:
        """Halve the budget if `error` says that memory ran out; re-raise any other error."""
        from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

        if not should_reduce_batch_size(error) or self.max_tokens <= FEWEST_TOKENS:
            raise error
        self.max_tokens = self.agree(max(FEWEST_TOKENS, self.max_tokens // 2))
        logger.warning("out of memory; continuing with max_tokens=%d", self.max_tokens)
        clear_device_cache(garbage_collection=True)


def default_max_tokens(model: Any, device: torch.device) -> int:
    """Return as many tokens as fit into half of the free memory, at most the number needed for full speed, and on a
    CPU as many as it reads in a short time.

    A power of 2, so that a little more or less free memory changes no value by rounding.
    """
    fit = free_memory(device) // 2 // bytes_per_token(model)
    if device.type == "cpu" and (count := getattr(model, "num_parameters", None)) is not None:
        fit = min(fit, int(MOST_OPERATIONS / (2 * max(1, count()))))
    fit = max(1, fit)
    return max(USUAL_TOKENS, min(1 << (fit.bit_length() - 1), MOST_TOKENS.get(device.type, MOST_TOKENS["cpu"])))


def slows_down(dtype: torch.dtype | None, device: torch.device) -> bool:
    """Return whether a model computes several times slower in `dtype` than in float32 on a device.

    An x86 processor without AVX-512 emulates bfloat16.
    """
    emulates = device.type == "cpu" and torch.backends.cpu.get_cpu_capability() == "AVX2"
    return emulates and dtype == torch.bfloat16


def free_memory(device: torch.device) -> int:
    """Return the number of bytes that could be allocated on `device` now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    import psutil

    return int(psutil.virtual_memory().available)


def bytes_per_token(model: Any) -> int:
    """Return a generous estimate of the memory for one more token in a forward pass, in bytes.

    It is twice a layer's activations, which include keys and values gathered for it and masks of its block, and twice
    its keys and values in all layers, as a piece may pass all of them on. Logits are not counted, since memory for
    them is bounded (`tree_model.LOGITS_AT_ONCE`).
    """
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    hidden = int(getattr(config, "hidden_size", 1024))
    inner = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    layers, heads = (int(getattr(config, f"num_{what}", None) or 0) for what in ("hidden_layers", "attention_heads"))
    key_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    head_size = int(getattr(config, "head_dim", None) or hidden // max(1, heads))
    passed_on = 2 * layers * key_heads * head_size
    return 2 * int(model.dtype.itemsize) * (16 * hidden + 4 * inner + passed_on)


def keep_freed_memory() -> None:
    """Make glibc keep freed memory, if it is the C library."""
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        for parameter, value in MALLOC_SETTINGS.items():
            library.mallopt(parameter, value)


class TextScore(NamedTuple):
    """The result of one text, given by its number: the summed log-likelihood of its scored tokens (nats), and whether
    each of them was the most likely one."""

    text: int
    loglikelihood: float
    greedy: bool


def disagreement(scores: Iterable[TextScore], plain: Iterable[float], texts: Sequence[Text]) -> float:
    """Return the root mean square, over texts, of the difference between two log-likelihoods of each (nats).

    The difference is taken per square root of a scored token. The result is infinite if one is NaN.

    scores: by a scorer, in any order
    plain: by the model's usual forward pass, in the order of the texts
    """
    in_order = sorted(scores, key=lambda score: score.text)
    squares = [
        (score.loglikelihood - loglikelihood) ** 2 / text.n_scored
        for score, loglikelihood, text in zip(in_order, plain, texts, strict=True)
    ]
    error = math.sqrt(sum(squares) / len(squares))
    return math.inf if math.isnan(error) else error


class PathSums:
    """Sums the log-likelihoods of a tree's targets along each text.

    logprobs, greedy: of each target, `(n_targets,)`; the caller fills them in as the targets are computed
    """

    def __init__(self, tree: PrefixTree) -> None:
        self.tree = tree
        self.logprobs = np.empty(len(tree.target_tokens))
        self.greedy = np.empty(len(tree.target_tokens), np.bool_)
        self._path = np.zeros(int(tree.lengths.max(initial=0)), np.int32)  # at each depth, the last target so far
        self._n_answered = self._n_targets = 0

    def answers(self, n_nodes: int) -> list[TextScore]:
        """Return the results that are complete after the first `n_nodes` nodes and have not been returned yet."""
        tree, scores = self.tree, []
        stop = int(np.searchsorted(tree.nodes_until, n_nodes, side="right"))
        edges = (tree.order, tree.scored_from, tree.lengths, tree.targets_until)
        columns = (edge[self._n_answered : stop].tolist() for edge in edges)
        for text, first, length, until in zip(*columns, strict=True):
            new = np.arange(self._n_targets, until, dtype=np.int32)
            self._path[tree.target_depths[self._n_targets : until]] = new
            scored = self._path[first:length]
            scores.append(TextScore(text, float(self.logprobs[scored].sum()), bool(self.greedy[scored].all())))
            self._n_targets = until
        self._n_answered = max(self._n_answered, stop)
        return scores


class TreeScorer:
    """Scores texts by tree attention, which computes every shared prefix once."""

    def __init__(self, model: Any, device: torch.device, budget: TokenBudget) -> None:
        self.model, self.device, self.budget = TreeModel(model), device, budget

    def answers(self, texts: Sequence[Text]) -> Iterator[TextScore]:
        """Yield the result of each text, in any order."""
        return chain.from_iterable(self.batches(texts))

    def batches(self, texts: Sequence[Text]) -> Iterator[list[TextScore]]:
        """Yield the results of the texts, in lists of those that are complete at the same time."""
        tree = prefix_tree(texts)
        sums, carried, first, n_nodes = PathSums(tree), Carried(), 0, len(tree.node_tokens)
        while first < n_nodes:
            try:
                carried, first = self._advance(tree, sums, carried, first)
            except RuntimeError as error:
                self.budget.lower(error)
                continue
            yield sums.answers(first)

    def _advance(self, tree: PrefixTree, sums: PathSums, carried: Carried, first: int) -> tuple[Carried, int]:
        """Score the piece that begins with the node `first`; return what it passes on, and the node after it."""
        n_left = len(tree.node_tokens) - first
        # of equal size, since a last piece of a few tokens would take as long as a whole one
        n_pieces = -(-n_left // self.budget.max_tokens)
        piece = Piece(tree, first, first - (-n_left // n_pieces), carried, device_type=self.device.type)
        targets, logprobs, greedy = self.model.score(piece, self.device)
        sums.logprobs[targets], sums.greedy[targets] = logprobs, greedy
        return piece.passed_on, piece.stop


def plain_score(model: Any, device: torch.device, text: Text) -> tuple[float, bool]:
    """Return a text's summed log-likelihood (nats) by the model's usual forward pass, and whether all tokens are the
    most likely ones: the ground truth that tree attention must agree with."""
    parameters = forward_parameters(model)
    tokens, n_tokens = index_tensor(text.tokens, device), len(text.tokens)
    # A long text's logits may not fit into memory, so request only some if the model supports it: each is the same
    # whether tokens follow or not.
    step = rows_at_once(model, device) if "logits_to_keep" in parameters else text.n_scored
    total, greedy = 0.0, True
    with torch.inference_mode():
        for first in range(n_tokens - text.n_scored, n_tokens, step):
            wanted = tokens[first : first + step]
            kept = {"logits_to_keep": len(wanted)} if "logits_to_keep" in parameters else {}
            logits = model(tokens[None, : first + len(wanted) - 1], **kept).logits[0]
            some, likeliest = summed(logits[-len(wanted) :], wanted)
            total, greedy = total + some, greedy and likeliest
    return total, greedy


def forward_parameters(model: Any) -> Collection[str]:
    """Return the names of the parameters of a model's forward pass."""
    return inspect.signature(getattr(model, "get_base_model", lambda: model)().forward).parameters


def summed(logits: Tensor, tokens: Tensor) -> tuple[float, bool]:
    """Return the summed log-likelihood of one token per row of logits, and whether each is the most likely."""
    logprobs, greedy = logprobs_and_greedy(logits, torch.arange(len(tokens), device=logits.device), tokens)
    return float(logprobs.double().sum()), bool(greedy.all())
