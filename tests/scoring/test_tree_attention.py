"""Attention by trunks and blocks against a dense mask of ancestors, and the memory it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations, pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lm_eval_leakage.scoring import pieces, tree_model
from lm_eval_leakage.scoring.pieces import (
    Carried,
    Costs,
    Piece,
    SharedPath,
    cheapest_division,
    division_of,
    trunks_and_blocks,
)
from lm_eval_leakage.scoring.prefix_tree import PrefixTree, Text, prefix_tree
from lm_eval_leakage.scoring.scorers import TokenBudget, TreeScorer, plain_score
from lm_eval_leakage.scoring.tree_model import TreeMask, tree_attention
from tests.scoring.test_scorers import assert_agrees
from tests.scoring.trees import EXCHANGEABLE, TINY, path_to, texts, tiny_model

CPU = torch.device("cpu")
FREE_TRUNKS = Costs(masked=1, gathered=50, joined=0, call=0)  # so that even the smallest path is shared
MASKS = {
    "causal": lambda _b, _h, query, key: key <= query,
    "sliding": lambda _b, _h, query, key: (key <= query) & (key > query - 4),
    "chunked": lambda _b, _h, query, key: (key <= query) & (key // 3 == query // 3),
}


@contextmanager
def trunks_wherever_possible(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (pieces, tree_model):
            patch.setattr(module, "KEYS_MULTIPLE", 1)
        patch.setattr(pieces, "cheapest_division", lambda depths, _: division_of(depths, size, FREE_TRUNKS))
        yield


def few_shot(n_shared: int, n_questions: int = 12) -> list[Text]:
    """Return questions of different lengths after the same examples, two answers each."""
    rng = np.random.default_rng(0)
    shared = rng.integers(3, 60, n_shared).tolist()
    stems = [rng.integers(3, 60, rng.integers(2, 9)).tolist() for _ in range(n_questions)]
    return [Text([*shared, *stem, *answer], len(answer)) for stem in stems for answer in ([5, 6, 7], [5, 8])]


# ---------------------------------------------------------------------- exactness


@settings(max_examples=50)
@given(texts(), st.integers(1, 5), st.data())
def test_trunk_and_block_together_are_each_nodes_ancestors_once(some, size: int, data: st.DataObject) -> None:
    tree = prefix_tree(some)
    first = data.draw(st.integers(0, len(tree.node_tokens) - 1))
    depths, carried = tree.node_depths[first:], path_to(tree, first)[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "KEYS_MULTIPLE", 1)
        trunks, groups = trunks_and_blocks(depths, len(carried), division_of(depths, size, FREE_TRUNKS))
    nodes = np.array([*carried, *range(first, len(tree.node_tokens))])
    of_trunk: dict[int, list[int]] = {}
    for trunk in trunks:
        for node in range(trunk.first, trunk.stop):
            assert node not in of_trunk
            of_trunk[node] = nodes[trunk.keys].tolist()
    for blocks in groups:
        for index, keys, seen in zip(blocks.index, blocks.keys, blocks.seen, strict=True):
            for place, row in enumerate(seen):
                node = index * size + place
                if node < len(depths):
                    assert [*of_trunk.get(node, []), *nodes[keys[row]]] == path_to(tree, first + node)


def by_dense_mask(tree: PrefixTree, states: dict[str, Tensor], mask_function: Any, further: dict[str, Any]) -> Tensor:
    """Return the attention by its definition, `(n_nodes, n_heads, value size)`."""
    query, key, value = (states[name][0].double() for name in ("query", "key", "value"))
    key, value = (states_of_heads.repeat_interleave(len(query) // len(key), dim=0) for states_of_heads in (key, value))
    scores = query @ key.transpose(1, 2) * further.get("scaling", query.shape[2] ** -0.5)
    if "softcap" in further:
        scores = torch.tanh(scores / further["softcap"]) * further["softcap"]
    seen = torch.zeros(scores.shape[1:], dtype=torch.bool)
    depths = torch.from_numpy(tree.node_depths)
    for node in range(len(depths)):
        path = torch.tensor(path_to(tree, node))
        seen[node, path] = mask_function(0, 0, depths[node], depths[path])
    weights = scores.masked_fill(~seen, -torch.inf).exp()
    total = weights.sum(2, keepdim=True)
    if "sinks" in further:
        total = total + further["sinks"].double().exp()[:, None, None]
    return (weights / total @ value).transpose(0, 1)


@settings(max_examples=30)
@given(
    some=texts(),
    size=st.integers(1, 5),
    max_tokens=st.integers(1, 30),
    mask=st.sampled_from(sorted(MASKS)),
    further=st.sampled_from([{}, {"scaling": 0.3}, {"softcap": 1.5}, {"sinks": torch.tensor([0.5, -1, 2, 0])}]),
    value_size=st.sampled_from([3, 4, 6]),
)
def test_attention_of_a_tree_in_pieces_is_that_of_a_dense_mask_of_ancestors(
    some, size, max_tokens, mask, further, value_size
) -> None:
    tree = prefix_tree(some)
    rng = torch.Generator().manual_seed(0)
    sizes = {"query": (4, 4), "key": (2, 4), "value": (2, value_size)}
    states = {
        name: torch.randn(1, n_heads, len(tree.node_tokens), width, generator=rng)
        for name, (n_heads, width) in sizes.items()
    }
    carried, outputs = Carried(), []
    with trunks_wherever_possible(size):
        for first in range(0, len(tree.node_tokens), max_tokens):
            piece = Piece(tree, first, min(first + max_tokens, len(tree.node_tokens)), carried)
            part = {name: whole[:, :, piece.first : piece.stop] for name, whole in states.items()}
            outputs.append(tree_attention(**part, mask=TreeMask(piece, MASKS[mask], CPU), **further)[0])
            carried = piece.passed_on
    expected = by_dense_mask(tree, states, MASKS[mask], further)
    assert torch.allclose(torch.cat(outputs).double(), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gemma3_text", "gpt_oss", "deepseek_v3"])
def test_questions_after_a_long_shared_prompt_are_exact_for(name: str) -> None:
    model = tiny_model(name, EXCHANGEABLE[name])
    some = few_shot(100)
    with trunks_wherever_possible(16):
        assert Piece(prefix_tree(some), 110, 140, Carried()).trunks
        assert_agrees(model, TreeScorer(model, CPU, TokenBudget(60)), some)


# ---------------------------------------------------------------------- layout


def test_questions_after_a_long_prompt_share_a_trunk_and_separate_texts_do_not() -> None:
    questions = np.array([*range(600), *([*range(600, 660)] * 20)], np.int32)
    (shared,) = cheapest_division(questions[600:]).shared
    assert shared == SharedPath(0, 1200, 592)  # a multiple of 16
    assert not cheapest_division(np.array([*range(60)] * 30, np.int32)).shared


SMALL = Costs(masked=1.15, gathered=2, joined=1, call=200)


@st.composite
def long_paths(draw: st.DrawFn) -> np.ndarray:
    """Return depths of nodes in depth-first order, of few branches, so that blocks share long paths."""
    depths = [0]
    for back, length in draw(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=8)):
        begin = max(1, depths[-1] - back)
        depths += range(begin, begin + length)
    return np.array(depths, np.int32)


@given(long_paths())
def test_no_division_into_trunks_costs_less_than_the_chosen_one(depths: np.ndarray) -> None:
    size = -(-len(depths) // 7)
    blocks = [depths[first : first + size] for first in range(0, len(depths), size)]
    per_key = size * SMALL.masked + SMALL.gathered

    def cost(run: list[np.ndarray]) -> float:
        length = min(int(block.min()) for block in run) // pieces.KEYS_MULTIPLE * pieces.KEYS_MULTIPLE
        alone = sum((int(block[0]) + size) * per_key for block in run)
        dense = len(run) * size * (length + SMALL.joined) + SMALL.gathered * length + SMALL.call
        return min(alone, alone - len(run) * length * per_key + dense)

    divisions = [
        sum(cost(blocks[begin:end]) for begin, end in pairwise([0, *cuts, len(blocks)]))
        for n_cuts in range(len(blocks))
        for cuts in combinations(range(1, len(blocks)), n_cuts)
    ]
    chosen = division_of(depths, size, SMALL)
    assert np.isclose(chosen.cost, min(divisions))
    for trunk in chosen.shared:
        assert depths[trunk.first : trunk.stop].min() >= trunk.length > 0


# ---------------------------------------------------------------------- memory


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that any operation has returned."""

    n_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, Tensor):  # by what it holds, as an expanded tensor copies nothing
                self.n_bytes = max(self.n_bytes, leaf.untyped_storage().nbytes())
        return output


LARGE_VOCABULARY = TINY | {"vocab_size": 3000, "max_position_embeddings": 1024, "tie_word_embeddings": True}
N_LOGITS = 60_000  # 20 rows


@pytest.fixture(scope="module")
def large_vocabulary() -> Any:
    return tiny_model("llama", LARGE_VOCABULARY)


@pytest.mark.parametrize("way", ["TreeScorer", "plain_score"])
def test_memory_for_logits_is_bounded_whatever_the_vocabulary_and_length(way, large_vocabulary, monkeypatch) -> None:
    """500 scored tokens of a vocabulary of 3,000 would be 1.5 million logits at once."""
    text = Text(np.random.default_rng(0).integers(3, 3000, 501), 500)
    expected = plain_score(large_vocabulary, CPU, text)
    monkeypatch.setattr(tree_model, "LOGITS_AT_ONCE", {"cpu": N_LOGITS})
    monkeypatch.setattr(tree_model, "SOFTMAX_AT_ONCE", N_LOGITS)
    with trunks_wherever_possible(16), Largest() as memory:
        if way == "plain_score":
            result = plain_score(large_vocabulary, CPU, text)
        else:
            (answer,) = TreeScorer(large_vocabulary, CPU, TokenBudget(128)).answers([text])
            result = answer.loglikelihood, answer.greedy
    assert result == (pytest.approx(expected[0], abs=1e-3), expected[1])
    assert 4 * N_LOGITS / 2 < memory.n_bytes <= 4 * N_LOGITS


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_memory_for_attention_grows_with_the_piece_and_not_with_the_length_of_the_text(name: str) -> None:
    """At a depth of 900, a mask of 64 nodes and 2 heads per key over the whole path would have 493,000 bytes."""
    model = tiny_model(name, EXCHANGEABLE[name] | {"max_position_embeddings": 1024})
    rng = np.random.default_rng(0)
    shared = rng.integers(3, 60, 900).tolist()
    some = [Text([*shared, *rng.integers(3, 60, 10).tolist()], 10) for _ in range(24)]
    with trunks_wherever_possible(16), Largest() as memory:
        list(TreeScorer(model, CPU, TokenBudget(64)).answers(some))
    assert memory.n_bytes < 100_000
