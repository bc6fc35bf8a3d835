"""Joined tokens with a tokenizer that people use."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from lm_eval_leakage.harness.models.safe_cuts import safe_cut
from lm_eval_leakage.harness.models.tokenising import encoded_by_lines, tokens_in
from tests.harness.test_tokenising import LETTERED, PIECES

pytestmark = pytest.mark.model


def test_joined_tokens_of_a_real_tokenizer_are_those_of_the_whole_text(model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    cut = safe_cut(tokenizer)
    assert cut
    texts = ["".join(["Which of these?\n", *order]) for order in itertools.permutations(LETTERED, 3)]
    texts += [f"{before}the Earth{between}{after} is" for before, between, after in itertools.permutations(PIECES, 3)]
    for special in (None, False):
        options = {} if special is None else {"add_special_tokens": special}
        encoded = encoded_by_lines(tokenizer, cut, [*dict.fromkeys(texts[:: max(1, len(texts) // 6000)])], special)
        assert len(encoded) > 1000
        for text, tokens in encoded.items():
            assert tokens_in(tokens).tolist() == tokenizer.encode(text, **options), text
