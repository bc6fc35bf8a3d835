"""Trees and token counts against the sets of prefixes that they stand for."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lm_eval_leakage.scoring.prefix_tree import (
    Lengths,
    Text,
    Texts,
    estimate_tokens,
    lexicographic,
    prefix_tree,
    token_counts,
)
from lm_eval_leakage.scoring.scorers import PathSums
from tests.scoring.trees import prefix_at, texts


@given(texts())
def test_the_nodes_are_the_distinct_prefixes_in_depth_first_order(some: list[Text]) -> None:
    tree = prefix_tree(some)
    prefixes = {tuple(text.tokens[:end]) for text in some for end in range(1, len(text.tokens))}
    # depth-first with sorted siblings is the order of tuples, where a prefix comes before its continuations
    assert [prefix_at(tree, node) for node in range(len(tree.node_tokens))] == sorted(prefixes)
    assert [len(prefix) - 1 for prefix in sorted(prefixes)] == tree.node_depths.tolist()


@given(texts(), st.booleans())
def test_the_targets_are_the_distinct_scored_tokens_below_their_prefixes(some: list[Text], last_only: bool) -> None:
    some = [Text(text.tokens, 1) for text in some] if last_only else some
    tree = prefix_tree(some)
    scored_tokens = {
        tuple(text.tokens[: end + 1])
        for text in some
        for end in range(len(text.tokens) - text.n_scored, len(text.tokens))
    }
    targets = [
        (*prefix_at(tree, parent), int(token))
        for parent, token in zip(tree.target_parents, tree.target_tokens, strict=True)
    ]
    assert len(set(targets)) == len(targets)
    assert set(targets) == scored_tokens if last_only else set(targets) >= scored_tokens
    assert [len(target) - 1 for target in targets] == tree.target_depths.tolist()


@given(texts(), st.integers(1, 6))
def test_sums_along_the_texts_do_not_depend_on_the_pieces(some: list[Text], size: int) -> None:
    def logprob(text: tuple[int, ...]) -> float:
        return -float(hash(text) % 1000)

    tree, answers = prefix_tree(some), {}
    sums = PathSums(tree)
    for stop in range(size, len(tree.node_tokens) + size, size):
        for target in tree.targets_below(stop - size, min(stop, len(tree.node_tokens))):
            whole = (*prefix_at(tree, tree.target_parents[target]), int(tree.target_tokens[target]))
            sums.logprobs[target], sums.greedy[target] = logprob(whole), hash(whole) % 3 > 0
        for answer in sums.answers(stop):
            assert answer.text not in answers, "answered twice"
            answers[answer.text] = answer
    assert sorted(answers) == list(range(len(some)))
    for index, text in enumerate(some):
        scored = [tuple(text.tokens[: end + 1]) for end in range(len(text.tokens) - text.n_scored, len(text.tokens))]
        assert answers[index].loglikelihood == sum(map(logprob, scored))
        assert answers[index].greedy == all(hash(whole) % 3 > 0 for whole in scored)


def test_a_text_is_yielded_as_soon_as_its_tokens_are_read() -> None:
    tree = prefix_tree([Text([5, 1, 1], 1), Text([5, 2, 2], 1)])
    sums = PathSums(tree)
    sums.logprobs[:], sums.greedy[:] = 0, True
    assert [answer.text for answer in sums.answers(1)] == []
    assert [answer.text for answer in sums.answers(2)] == [0]
    assert [answer.text for answer in sums.answers(3)] == [1]


def test_large_token_ids_sort_as_numbers() -> None:
    tree = prefix_tree([Text([1, token, 2], 1) for token in (70_001, 9, 70_000, 10, 300)])
    assert tree.order.tolist() == [1, 3, 4, 2, 0]


@pytest.mark.parametrize(("n_tokens", "n_scored"), [(3, 3), (3, 0), (1, 1), (0, 0)])
def test_a_text_needs_a_scored_token_and_one_before_it(n_tokens: int, n_scored: int) -> None:
    with pytest.raises(ValueError, match=f"{n_scored} of {n_tokens} tokens"):
        Text([1] * n_tokens, n_scored)


def as_lists(some) -> list[tuple[list[int], int]]:
    return [(text.tokens.tolist(), text.n_scored) for text in some]


@given(texts(), st.integers(1, 9))
def test_texts_in_one_array_are_the_same_texts(some: list[Text], longest: int) -> None:
    joined = Texts.of(some)
    assert as_lists(joined) == as_lists(some)
    assert lexicographic(joined) == lexicographic(some)
    assert Texts.of(joined) is joined
    assert as_lists(Texts.of_pairs(joined.pairs())) == as_lists(some)
    longest += max((text.n_scored for text in some), default=0)
    cut = [Text(text.tokens[-longest:], text.n_scored) for text in some]
    assert as_lists(joined.without_beginnings(longest)) == as_lists(cut)


TEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), max_size=12)


def counts(texts, block: int = 16):
    return token_counts([np.array(text, np.int32) for text in texts], block)


@given(TEXTS)
def test_tree_tokens_are_the_distinct_prefixes_that_predict_a_token(texts) -> None:
    prefixes = {text[:stop] for text in texts for stop in range(1, len(text))}
    numbers = counts(texts)
    assert numbers.n_tree_tokens == len(prefixes)
    assert numbers.n_row_tokens == sum(len(text) - 1 for text in texts)
    assert numbers.n_merged_tokens == sum(map(len, {text[:-1] for text in texts}))
    assert numbers.n_texts == len(texts)


@given(TEXTS, st.integers(1, 5))
def test_an_engine_reads_what_no_full_block_of_an_earlier_text_holds_and_every_last_token(texts, block: int) -> None:
    held: set[tuple[int, ...]] = set()
    n_read = 0
    for text in sorted(texts):
        n_cached = max(stop for stop in range(0, len(text), block) if not stop or text[:stop] in held)
        n_read += len(text) - n_cached
        held |= {text[:stop] for stop in range(block, len(text) + 1, block)}
    assert counts(texts, block).n_block_tokens == n_read


def test_without_texts_nothing_is_read() -> None:
    assert counts([]).n_block_tokens == counts([]).n_tree_tokens == 0


def questions(n: int, rng: np.random.Generator, header: int) -> list[list[np.ndarray]]:
    """Return questions: a header that all share, a text of their own, and six endings, of which some differ only in
    the last token."""
    first = np.arange(header)
    texts = []
    for number in range(n):
        body = np.concatenate([[1000 + number], rng.integers(0, 9, rng.integers(5, 40))])
        texts.append([np.concatenate([first, body, [a, b]]) for a in range(3) for b in range(2)])
    return texts


@pytest.mark.parametrize("header", [0, 5, 200])
def test_a_sample_estimates_the_counts_of_all(header: int) -> None:
    rng = np.random.default_rng(0)
    every = questions(400, rng, header)
    exact = estimate_tokens(every, 400)
    assert exact.counts == token_counts([text for question in every for text in question])
    samples = [estimate_tokens([every[i] for i in rng.choice(400, 40, replace=False)], 400) for _ in range(40)]
    assert {(sample.n_measured, sample.n_questions) for sample in samples} == {(40, 400)}
    for name, n in vars(exact.counts).items():
        # one sample is off by a few per cent, their mean by a sixth of that
        assert np.mean([getattr(sample.counts, name) for sample in samples]) == pytest.approx(n, rel=0.03)


def test_known_lengths_of_all_questions_reduce_the_error() -> None:
    rng = np.random.default_rng(3)
    every = questions(300, rng, 10)
    lengths = [[len(question[0]), len(question)] for question in every]
    exact = estimate_tokens(every, 300).counts.n_tree_tokens
    errors = []
    for _ in range(20):
        drawn = rng.choice(300, 20, replace=False)
        known_lengths = Lengths([lengths[i] for i in drawn], np.mean(lengths, axis=0).tolist())
        plain, regressed = (estimate_tokens([every[i] for i in drawn], 300, given) for given in (None, known_lengths))
        errors.append((plain.counts.n_tree_tokens - exact, regressed.counts.n_tree_tokens - exact))
        assert regressed.counts.n_texts == 1800
    of_plain, of_found = np.sqrt((np.array(errors) ** 2).mean(axis=0))
    assert of_found < 0.2 * of_plain


def test_questions_that_cannot_be_asked_are_part_of_the_sample() -> None:
    sample = [[np.arange(11)], []]
    assert estimate_tokens(sample, 20).counts.n_row_tokens == 100
    assert estimate_tokens([], 5).counts.n_texts == 0
