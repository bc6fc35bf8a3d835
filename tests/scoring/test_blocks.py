from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from lm_eval_leakage.scoring.blocks import blocks_of, last_at_each_depth
from lm_eval_leakage.scoring.layout import COSTS, TreeLayout
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
