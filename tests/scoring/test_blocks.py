from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from lm_eval_leakage.scoring import pieces as layout
from lm_eval_leakage.scoring.pieces import (
    BLOCK_SIZES,
    COSTS,
    KEYS_MULTIPLE,
    Costs,
    TreeLayout,
    blocks_of,
    cheapest_layout,
    last_at_each_depth,
    layout_of,
)
from lm_eval_leakage.scoring.prefix_tree import prefix_tree
from tests.scoring.trees import path_to, texts


@given(texts(), st.integers(1, 9), st.data())
def test_every_node_sees_its_ancestors_and_itself_and_nothing_else(some, size: int, data: st.DataObject) -> None:
    tree = prefix_tree(some)
    n_nodes = len(tree.node_tokens)
    first = data.draw(st.integers(0, n_nodes - 1))
    stop = data.draw(st.integers(first + 1, n_nodes))
    depths = tree.node_depths[first:stop]
    carried = path_to(tree, first)[:-1]
    nodes = np.array([*carried, *range(first, stop)])  # the nodes that the keys number
    met = []
    for blocks in blocks_of(depths, len(carried), TreeLayout(size))[1]:
        for index, keys, seen in zip(blocks.index, blocks.keys, blocks.seen, strict=True):
            for place, row in enumerate(seen):
                query = first + index * size + place
                if query >= stop:
                    continue  # a padded query, whose result is discarded
                met.append(query)
                assert nodes[keys[row]].tolist() == path_to(tree, query)
    assert sorted(met) == list(range(first, stop))


@given(texts(), st.integers(1, 9))
def test_depths_of_queries_and_seen_keys_are_their_positions(some, size: int) -> None:
    depths = prefix_tree(some).node_depths
    for blocks in blocks_of(depths, 0, TreeLayout(size))[1]:
        for index, keys, seen, queries, positions in zip(
            blocks.index, blocks.keys, blocks.seen, blocks.query_depths, blocks.key_depths, strict=True
        ):
            inside = depths[index * size : (index + 1) * size]
            assert queries[: len(inside)].tolist() == inside.tolist()
            for row in seen[: len(inside)]:
                assert positions[row].tolist() == depths[keys[row]].tolist()


@given(texts(), st.data())
def test_the_path_passed_on_is_that_of_the_next_node(some, data: st.DataObject) -> None:
    tree = prefix_tree(some)
    n_nodes = len(tree.node_tokens)
    first = data.draw(st.integers(0, n_nodes - 1))
    stop = data.draw(st.integers(first + 1, n_nodes))
    carried = path_to(tree, first)[:-1]
    nodes = np.array([*carried, *range(first, stop)])
    path = last_at_each_depth(tree.node_depths[first:stop], len(carried))
    if stop < n_nodes:
        assert nodes[path[: tree.node_depths[stop]]].tolist() == path_to(tree, stop)[:-1]


def test_a_padded_query_sees_itself_so_that_its_softmax_is_a_number() -> None:
    _, (blocks,) = blocks_of(np.array([0, 1, 2], np.int32), 0, TreeLayout(8))
    assert blocks.seen.any(axis=2).all()


def test_a_deep_path_does_not_widen_the_block_of_a_shallow_one() -> None:
    depths = np.array([*range(200), *range(1, 9)], np.int32)  # a long text, then a short branch from its root
    layout = TreeLayout(8, costs=replace(COSTS["cpu"], call=0))
    widths = {int(index): blocks.keys.shape[1] for blocks in blocks_of(depths, 0, layout)[1] for index in blocks.index}
    assert widths[25] <= 16 + 8 < 150 < widths[24]


SMALL = Costs(masked=1.15, gathered=2, joined=1, call=200)


@st.composite
def long_paths(draw: st.DrawFn) -> np.ndarray:
    """Depths of nodes in depth-first order, of few branches, so that blocks share long paths."""
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
        length = min(int(block.min()) for block in run) // KEYS_MULTIPLE * KEYS_MULTIPLE
        alone = sum((int(block[0]) + size) * per_key for block in run)
        dense = len(run) * size * (length + SMALL.joined) + SMALL.gathered * length + SMALL.call
        return min(alone, alone - len(run) * length * per_key + dense)

    divisions = [
        sum(cost(blocks[begin:end]) for begin, end in pairwise([0, *cuts, len(blocks)]))
        for n_cuts in range(len(blocks))
        for cuts in combinations(range(1, len(blocks)), n_cuts)
    ]
    found = layout_of(depths, size, SMALL)
    assert np.isclose(found.cost, min(divisions))
    for trunk in found.shared:
        assert depths[trunk.first : trunk.stop].min() >= trunk.length > 0


@given(long_paths(), st.sampled_from(["cpu", "cuda"]))
def test_sizes_of_blocks_that_are_not_tried_cost_no_less(depths: np.ndarray, device: str) -> None:
    several = np.tile(depths, 6)
    sizes = {min(size, len(several)) for size in BLOCK_SIZES}
    tried = [layout_of(several, size, COSTS[device]).cost for size in sizes]
    assert cheapest_layout(several, device).cost == min(tried)


def test_a_run_of_blocks_that_is_too_long_is_divided(monkeypatch) -> None:
    depths = np.concatenate([np.arange(600), np.tile(np.arange(600, 700), 20)]).astype(np.int32)
    whole = layout_of(depths, 64, COSTS["cpu"])
    monkeypatch.setattr(layout, "MOST_BLOCKS", 8)
    divided = layout_of(depths, 64, COSTS["cpu"])
    assert len(divided.shared) > len(whole.shared) > 0
    assert whole.cost < divided.cost < 1.1 * whole.cost
