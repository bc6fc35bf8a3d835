"""Token counts against the sets of prefixes that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.scoring.prefix_tree import Text, prefix_tree
from lm_eval_leakage.scoring.token_counts import token_counts

TEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), max_size=12)


def counts(texts, block: int = 16):
    return token_counts([np.array(text, np.int32) for text in texts], block)


@given(TEXTS)
def test_tree_tokens_are_the_distinct_prefixes_that_predict_a_token(texts) -> None:
    prefixes = {text[:stop] for text in texts for stop in range(1, len(text))}
    found = counts(texts)
    assert found.n_tree_tokens == len(prefixes)
    assert found.n_row_tokens == sum(len(text) - 1 for text in texts)
    assert (found.n_texts, found.n_prompt_tokens) == (len(texts), sum(map(len, texts)))


@given(TEXTS, st.integers(1, 5))
def test_an_engine_reads_what_no_full_block_of_an_earlier_text_holds_and_every_last_token(texts, block: int) -> None:
    held: set[tuple[int, ...]] = set()
    n_read = 0
    for text in sorted(texts):
        n_cached = max(stop for stop in range(0, len(text), block) if not stop or text[:stop] in held)
        n_read += len(text) - n_cached
        held |= {text[:stop] for stop in range(block, len(text) + 1, block)}
    assert counts(texts, block).n_block_tokens == n_read


@given(TEXTS)
def test_the_counts_are_those_of_the_tree_that_is_computed(texts) -> None:
    longer = [text for text in texts if len(text) > 1]
    tree = prefix_tree([Text(np.array(text), 1) for text in longer])
    found = counts(longer)
    assert (found.n_tree_tokens, found.n_row_tokens) == (len(tree.node_tokens), tree.n_row_tokens)


def test_orders_of_four_options_share_the_question_once_and_full_blocks_only() -> None:
    question = tuple(range(100, 120))
    orders = [(*question, first, second) for first in range(4) for second in range(4)]
    found = counts(orders, block=8)
    assert (found.n_row_tokens, found.n_tree_tokens) == (16 * 21, 20 + 4)
    assert found.n_block_tokens == 22 + 15 * (22 - 16)


def test_without_texts_nothing_is_read_and_an_empty_text_is_refused() -> None:
    assert counts([]).n_block_tokens == counts([]).n_tree_tokens == 0
    with pytest.raises(ValueError, match="leave it out"):
        counts([(1, 2), ()])
