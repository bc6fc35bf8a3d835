"""Tokens joined from lines and words are those of the whole text, for tokenizers of all kinds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lm_eval_leakage.harness.models import tokenising as joined_tokens
from lm_eval_leakage.harness.models.safe_cuts import safe_cuts
from lm_eval_leakage.harness.models.tokenising import JoinedTokens, tokens_in
from tests.harness.tokenizer_families import FAMILIES, tokenizer_of

PIECES = [*"\n \t\u00a0\u2028\u3000▁ĠĊ/aA'.é\u0301の🦊ſ¨\x1c\u200b\u200d\x00İßﬁ"]
PIECES += ("\n\n", "  ", "\r\n", "//", "B.", "the", "the Earth", "Mars", "12", "345", "(1)", "it's", "?\n", "...")
PIECES += ("\nA. ", "\nB. the ", "I've", "</s>", "<s>", "<fim>", "<|end|>", "<b>", "e\u0301", "中文", "👩‍🚀")
PIECES += ("[UNK]", "<unk>", "<0x0A>")
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), min_size=1, max_size=14).map("".join)
LETTERED = [f"{label}. {option}" for label in "AB" for option in ("Mars", "the Earth", "", "12 ", "</s>")]


def assert_joined_as_whole(tokenizer, texts: list[str]) -> None:
    cuts = safe_cuts(tokenizer)
    distinct = [*dict.fromkeys(text for text in texts if text)]
    for special in (None, False):
        asked = {} if special is None else {"add_special_tokens": special}
        found = JoinedTokens(tokenizer, cuts).encoded(distinct, special)
        for text in distinct:
            assert tokens_in(found[text]).tolist() == tokenizer.encode(text, **asked), text


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=12)
@given(texts=st.lists(TEXTS, min_size=1, max_size=5))
@example(texts=["\n".join(lines) for lines in itertools.permutations(LETTERED, 2)])
@example(texts=["x\nA.", "x \nA.", "x.\n/a", "x\n A.", "</s>\nA. b", "a ▁b", "<|end|> a", "a <fim>", "a\n<fim>"])
def test_joined_tokens_are_those_of_the_whole_text(family: str, texts: list[str]) -> None:
    assert_joined_as_whole(tokenizer_of(family), texts)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_proof_is_found_for_the_families_that_have_one(family: str) -> None:
    cuts = safe_cuts(tokenizer_of(family))
    assert (cuts.lines is not None, cuts.words is not None) == FAMILIES[family][1:]


def test_equal_words_and_lines_are_encoded_once() -> None:
    tokenizer = tokenizer_of("Llama 3")
    encoded: list[str] = []

    class Counting:
        def __call__(self, strings, **asked):  # of guards
            return tokenizer(strings, **asked)

        @property
        def backend_tokenizer(self):
            return self

        def encode_batch_fast(self, strings, **asked):
            encoded.extend(strings)
            return tokenizer.backend_tokenizer.encode_batch_fast(strings, **asked)

    joined = JoinedTokens(Counting(), safe_cuts(tokenizer))
    texts = ["a b\n" + "\n".join(lines) for lines in itertools.permutations(["c d", "e f", "g d"])]
    joined.encoded(texts, None)
    assert 0 < len(encoded) == len(set(encoded))
    assert max(map(len, encoded)) <= len("a g\n")
    joined.encoded([text + "\nc f" for text in texts], None)
    assert len(encoded) == len(set(encoded))


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_that_are_forgotten_in_the_middle_of_a_batch_are_still_joined(family: str, monkeypatch) -> None:
    monkeypatch.setattr(joined_tokens, "WORDS_REMEMBERED", 2)  # the sixty-five thousandth word of a benchmark
    monkeypatch.setattr(joined_tokens, "LINES_REMEMBERED", 2)
    tokenizer = tokenizer_of(family)
    joined = joined_tokens.JoinedTokens(tokenizer, safe_cuts(tokenizer))
    for number in range(4):
        texts = [f"the state's a{number} b{number}\nB. it is c{number}\nC. d d d{number} {word}" for word in "xyz"]
        for text, tokens in joined.encoded(texts, None).items():
            assert tokens_in(tokens).tolist() == tokenizer.encode(text), text
