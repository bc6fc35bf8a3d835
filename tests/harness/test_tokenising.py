"""Batched tokenisation against the harness's own, which encodes one pair at a time."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.tokenising import encoded_pairs
from tests.harness.test_prefix_tree_lm import tokenizer_over_bytes

TEXTS = st.text(st.sampled_from("ab \nä中🦊</s>"), max_size=8) | st.sampled_from(["<s>", "<s>a", "a<s>"])


class OnlyTokens(HFLM):
    """The tokenising part of the harness's `hf`."""

    def __init__(self, adds_bos: bool, add_bos_token: bool | None) -> None:
        self.tokenizer = tokenizer_over_bytes(adds_bos)
        self.add_bos_token = add_bos_token
        self.backend, self.custom_prefix_token_id, self.enable_thinking = "causal", None, None

    def _loglikelihood_tokens(self, requests: Any, **_: Any) -> Any:
        return requests


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("add_bos_token", [None, False, True])
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS.filter(bool)), min_size=1, max_size=6))
def test_batches_are_encoded_as_the_harness_encodes_pairs(adds_bos, add_bos_token, pairs) -> None:
    from lm_eval.api.instance import Instance

    lm = OnlyTokens(adds_bos, add_bos_token)
    pairs = [pair for pair in pairs if not pair[0] or pair[0].strip()]
    asked = [Instance("loglikelihood", {}, pair, 0) for pair in pairs]
    expected = [(context, continuation) for _, context, continuation in lm.loglikelihood(asked, disable_tqdm=True)]
    found = [(context.tolist(), continuation.tolist()) for context, continuation in encoded_pairs(lm, pairs)]
    assert found == expected


def test_more_requests_than_a_batch_keep_their_order(monkeypatch) -> None:
    monkeypatch.setattr("lm_eval_leakage.harness.models.tokenising.AT_ONCE", 2)
    lm = OnlyTokens(False, None)
    pairs = [("abc"[:n], "xyz"[:m]) for n in (1, 2, 3) for m in (1, 2, 3)]
    assert [(len(context), len(continuation)) for context, continuation in encoded_pairs(lm, pairs)] == [
        (n, m) for n in (1, 2, 3) for m in (1, 2, 3)
    ]


def test_a_context_of_spaces_alone_is_named_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="the context '  ' .before 'x'. is only white space"):
        list(encoded_pairs(OnlyTokens(False, None), [("  ", "x")]))
