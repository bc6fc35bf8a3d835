"""Ways to score texts, each exact for the models that it suits; they answer as they go along."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from lm_eval_leakage.scoring.budget import TokenBudget
from lm_eval_leakage.scoring.prefix_tree import PathSums, PrefixTree, ScoredText, Text, prefix_tree
from lm_eval_leakage.scoring.tree_attention import Carried, Piece, index_tensor
from lm_eval_leakage.scoring.tree_model import TreeModel, logprobs_and_greedy


class Scorer(Protocol):
    """Scores texts in any order; `name` is for messages."""

    name: str
    budget: TokenBudget

    def answers(self, texts: Sequence[Text]) -> Iterator[ScoredText]: ...


class TreeScorer:
    """Every prefix is computed once, by tree attention."""

    name = "tree attention"

    def __init__(self, model: Any, device: torch.device, budget: TokenBudget) -> None:
        self.model = TreeModel(model)
        self.device = device
        self.budget = budget

    def answers(self, texts: Sequence[Text]) -> Iterator[ScoredText]:
        tree = prefix_tree(texts)
        sums, carried, first, n_nodes = PathSums(tree), Carried(), 0, len(tree.node_tokens)
        while first < n_nodes:
            try:
                carried, first = self._advance(tree, sums, carried, first)
            except RuntimeError as error:
                self.budget.lower(error)
                continue
            yield from sums.answers(first)

    def _advance(self, tree: PrefixTree, sums: PathSums, carried: Carried, first: int) -> tuple[Carried, int]:
        piece = Piece(tree, first, min(first + self.budget.max_tokens, len(tree.node_tokens)), carried)
        targets, logprobs, greedy = self.model.score(piece, self.device)
        sums.logprobs[targets], sums.greedy[targets] = logprobs, greedy
        return piece.passed_on, piece.stop


def reference(model: Any, device: torch.device, text: Text) -> tuple[float, bool]:
    """The model's own answer on one text, as a row of its own: what every other way has to agree with."""
    known = inspect.signature(getattr(model, "get_base_model", lambda: model)().forward).parameters
    # A long text's logits may not fit; where the model can be told which are wanted, it is.
    wanted = {"logits_to_keep": text.n_scored} if "logits_to_keep" in known else {}
    with torch.inference_mode():
        logits = model(tokens_of(text, device)[None, :-1], **wanted).logits[0]
    return summed(logits, text)


def summed(logits: Tensor, text: Text) -> tuple[float, bool]:
    """Sum over the scored tokens of a row of logits, and whether each is the likeliest."""
    asked = logits[-text.n_scored :]
    tokens = tokens_of(text, logits.device)[-text.n_scored :]
    logprobs, greedy = logprobs_and_greedy(asked, torch.arange(len(asked), device=logits.device), tokens)
    return float(logprobs.double().sum()), bool(greedy.all())


def tokens_of(text: Text, device: torch.device) -> Tensor:
    return index_tensor(text.tokens, device)
