from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lm_eval_leakage.scoring.prefix_tree import Text, Texts, lexicographic, prefix_tree
from lm_eval_leakage.scoring.scorers import PathSums
from tests.scoring.trees import prefix_at, texts


@given(texts())
def test_the_nodes_are_the_distinct_prefixes_in_depth_first_order(some: list[Text]) -> None:
    tree = prefix_tree(some)
    prefixes = {tuple(text.tokens[:end]) for text in some for end in range(1, len(text.tokens))}
    # depth-first with sorted siblings is the order of tuples, where a prefix comes before its continuations
    assert [prefix_at(tree, node) for node in range(len(tree.node_tokens))] == sorted(prefixes)
    assert [len(prefix) - 1 for prefix in sorted(prefixes)] == tree.node_depths.tolist()


@given(texts())
def test_the_targets_are_the_distinct_scored_tokens_below_their_prefixes(some: list[Text]) -> None:
    tree = prefix_tree(some)
    asked = {
        tuple(text.tokens[: end + 1])
        for text in some
        for end in range(len(text.tokens) - text.n_scored, len(text.tokens))
    }
    found = [
        (*prefix_at(tree, parent), int(token))
        for parent, token in zip(tree.target_parents, tree.target_tokens, strict=True)
    ]
    assert sorted(found) == sorted(asked)
    assert [len(target) - 1 for target in found] == tree.target_depths.tolist()


@given(texts(), st.integers(1, 6))
def test_sums_along_the_texts_do_not_depend_on_the_pieces(some: list[Text], size: int) -> None:
    def logprob(text: tuple[int, ...]) -> float:
        return -float(hash(text) % 1000)

    tree, found = prefix_tree(some), {}
    sums = PathSums(tree)
    for stop in range(size, len(tree.node_tokens) + size, size):
        for target in tree.targets_below(stop - size, min(stop, len(tree.node_tokens))):
            whole = (*prefix_at(tree, tree.target_parents[target]), int(tree.target_tokens[target]))
            sums.logprobs[target], sums.greedy[target] = logprob(whole), hash(whole) % 3 > 0
        for answer in sums.answers(stop):
            assert answer.text not in found, "answered twice"
            found[answer.text] = answer
    assert sorted(found) == list(range(len(some)))
    for index, text in enumerate(some):
        scored = [tuple(text.tokens[: end + 1]) for end in range(len(text.tokens) - text.n_scored, len(text.tokens))]
        assert found[index].loglikelihood == sum(map(logprob, scored))
        assert found[index].greedy == all(hash(whole) % 3 > 0 for whole in scored)


def test_a_text_is_yielded_as_soon_as_its_tokens_are_read() -> None:
    tree = prefix_tree([Text([5, 1, 1], 1), Text([5, 2, 2], 1)])
    sums = PathSums(tree)
    sums.logprobs[:], sums.greedy[:] = 0, True
    assert [answer.text for answer in sums.answers(1)] == []
    assert [answer.text for answer in sums.answers(2)] == [0]
    assert [answer.text for answer in sums.answers(3)] == [1]


def test_without_texts_the_tree_is_empty() -> None:
    tree = prefix_tree([])
    assert len(tree.node_tokens) == 0
    assert list(PathSums(tree).answers(0)) == []


def test_large_token_ids_sort_as_numbers() -> None:
    tree = prefix_tree([Text([1, token, 2], 1) for token in (70_001, 9, 70_000, 10, 300)])
    assert tree.order.tolist() == [1, 3, 4, 2, 0]


@pytest.mark.parametrize(("n_tokens", "n_scored"), [(3, 3), (3, 0), (1, 1), (0, 0)])
def test_a_text_needs_a_scored_token_and_one_before_it(n_tokens: int, n_scored: int) -> None:
    with pytest.raises(ValueError, match=f"{n_scored} of {n_tokens} tokens"):
        Text([1] * n_tokens, n_scored)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.integers(0, 2**32))
def test_texts_that_are_summed_together_are_rounded_as_if_summed_alone(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = prefix_tree([Text(rng.integers(0, 3, length + 1), length) for length in lengths])
    sums = PathSums(tree)
    sums.logprobs[:] = -np.exp(rng.normal(0, 12, len(sums.logprobs)))
    sums.greedy[:] = True
    rows: dict[int, list[float]] = {}  # the log-likelihoods on the path of each text
    path, begin = np.zeros(302), 0
    for text, end, length in zip(tree.order, tree.targets_until, tree.lengths, strict=True):
        path[tree.target_depths[begin:end]] = sums.logprobs[begin:end]
        rows[text], begin = path[1:length].tolist(), end
    for answer in sums.answers(len(tree.node_tokens)):
        assert answer.loglikelihood == np.add.reduce(np.array(rows[answer.text]))


def told(some) -> list[tuple[list[int], int]]:
    return [(text.tokens.tolist(), text.n_scored) for text in some]


@given(texts(), st.integers(1, 9))
def test_texts_in_one_array_are_the_same_texts(some: list[Text], longest: int) -> None:
    joined = Texts.of(some)
    assert told(joined) == told(some) == told(joined[:])
    assert told(joined[1:]) == told(some[1:])
    assert lexicographic(joined) == lexicographic(some)
    assert Texts.of(joined) is joined
    assert told(Texts.of_pairs(joined.pairs())) == told(some)
    longest += max((text.n_scored for text in some), default=0)
    cut = [Text(text.tokens[-longest:], text.n_scored) for text in some]
    assert told(joined.without_beginnings(longest)) == told(cut)
