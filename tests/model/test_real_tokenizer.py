"""Joined tokens with a tokenizer that people use."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from lm_eval_leakage.harness.models.safe_cuts import safe_cut
from tests.harness.test_tokenising import LETTERED, PIECES, assert_joined_as_whole

pytestmark = pytest.mark.model


def test_joined_tokens_of_a_real_tokenizer_are_those_of_the_whole_text(model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    assert safe_cut(tokenizer)
    texts = ["\n".join(["Which of these?", *order]) for order in itertools.permutations(LETTERED, 3)]
    texts += [f"{before}the Earth{between}{after} is" for before, between, after in itertools.permutations(PIECES, 3)]
    assert_joined_as_whole(tokenizer, texts[:: max(1, len(texts) // 6000)])
