"""Batched tokenisation against the harness's own, which encodes one pair at a time; and tokens joined from lines
against those of the whole text, for tokenizers of all kinds."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models import tokenising
from lm_eval_leakage.harness.models.safe_cuts import safe_cut
from lm_eval_leakage.harness.models.tokenising import encoded_by_lines, encoded_pairs
from tests.harness.test_prefix_tree_lm import tokenizer_over_bytes
from tests.harness.tokenizer_families import FAMILIES, tokenizer_of

PIECES = [*"\n \t\u00a0\u2028\u3000▁ĠĊ/aA'.é\u0301の🦊ſ¨\x1c\u200b\u200d\x00İßﬁ"]
PIECES += ("\n\n", "  ", "\r\n", "//", "B.", "the", "the Earth", "Mars", "12", "345", "(1)", "it's", "?\n", "...")
PIECES += ("\nA. ", "\nB. the ", "I've", "</s>", "<s>", "<fim>", "<|end|>", "<b>", "e\u0301", "中文", "👩‍🚀")
PIECES += ("[UNK]", "<unk>", "<0x0A>")
RICH_TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), min_size=1, max_size=14).map("".join)
BESIDE_CUTS = [
    "x the Earth",
    "the x",
    "x <fim> a",
    "A.  b",
    "A. \u0301",
    "A. /",
    "A. 12",
    "x\nA.",
    "x \nA.",
    "x.\n/a",
    "x\n A.",
    "</s>\nA. b",
    "a ▁b",
    "<|end|> a",
    "a <fim>",
    "a\n<fim>",
]
LETTERED = [f"{label}. {option}\n" for label in "AB" for option in ("Mars", "the Earth", "", "12 ", "</s>")]
TEXTS = st.text(st.sampled_from("ab \nä中🦊</s>"), max_size=8) | st.sampled_from(["<s>", "<s>a", "a<s>"])


class OnlyTokens(HFLM):
    """The tokenising part of the harness's `hf`."""

    def __init__(self, adds_bos: bool, add_bos_token: bool | None, tokenizer: Any = None) -> None:
        self.tokenizer = tokenizer or tokenizer_over_bytes(adds_bos)
        self.add_bos_token = add_bos_token
        self.backend, self.custom_prefix_token_id, self.enable_thinking = "causal", None, None

    def _loglikelihood_tokens(self, requests: Any, **_: Any) -> Any:
        return requests


def assert_as_the_harness(lm: OnlyTokens, pairs: list[tuple[str, str]]) -> None:
    pairs = [pair for pair in pairs if pair[0].strip() or (not pair[0] and lm.tokenizer.tokenize(pair[1]))]
    instances = [Instance("loglikelihood", {}, pair, 0) for pair in pairs]
    expected = [(context, continuation) for _, context, continuation in lm.loglikelihood(instances, disable_tqdm=True)]
    encoded = [(context.tolist(), continuation.tolist()) for context, continuation in encoded_pairs(lm, pairs)]
    assert encoded == expected


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("add_bos_token", [None, False, True])
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS.filter(bool)), min_size=1, max_size=6))
def test_batches_are_encoded_as_the_harness_encodes_pairs(adds_bos, add_bos_token, pairs) -> None:
    assert_as_the_harness(OnlyTokens(adds_bos, add_bos_token), pairs)


@pytest.fixture
def always_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenising, "FEWEST_PAIRS", 0)
    monkeypatch.setattr(tokenising, "N_CHECKED", 0)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(st.tuples(RICH_TEXTS, RICH_TEXTS), min_size=1, max_size=6),
    lines=st.lists(RICH_TEXTS, min_size=3, max_size=3),
    add_bos_token=st.sampled_from([None, False, True]),
)
@example(pairs=list(itertools.product(BESIDE_CUTS, ["x"])), lines=["a", "A. b", "B. a"], add_bos_token=None)
@example(pairs=list(itertools.permutations(LETTERED, 2)), lines=["a", "A. b", "B. a"], add_bos_token=False)
def test_orders_of_options_are_joined_to_what_the_harness_encodes(
    family, pairs, lines, add_bos_token, always_joined
) -> None:
    stem, *_ = lines
    orders = [(f"{stem}", "\n" + "\n".join(order)) for order in itertools.permutations(lines)]
    lm = OnlyTokens(False, add_bos_token, tokenizer_of(family))
    lm.custom_prefix_token_id = lm.tokenizer.convert_tokens_to_ids("a")
    assert_as_the_harness(lm, pairs + orders + [("", stem), (f"{stem} ", "x")])


def test_joined_tokens_that_are_wrong_are_noticed_and_replaced_in_one_line(monkeypatch, caplog) -> None:
    monkeypatch.setattr(tokenising, "FEWEST_PAIRS", 0)
    monkeypatch.setattr(tokenising, "AT_ONCE", 2)
    tokenizer = tokenizer_of("another pattern")
    cut = safe_cut(tokenizer_of("GPT-2"))  # a line break may begin a word of this tokenizer
    monkeypatch.setattr(tokenising, "safe_cut", lambda _: cut)
    assert_as_the_harness(OnlyTokens(False, None, tokenizer), [("a", f"\nA. x\nA. {n}") for n in range(6)])
    (line,) = [record.message for record in caplog.records]
    assert "are not those of its parts joined" in line


def test_a_context_of_spaces_alone_is_named_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="the context '  ' .before 'x'. is only white space"):
        list(encoded_pairs(OnlyTokens(False, None), [("  ", "x")]))


# ---------------------------------------------------------------------- lines


@pytest.mark.parametrize("family", FAMILIES)
def test_a_proof_is_found_for_the_families_that_have_one(family: str) -> None:
    assert (safe_cut(tokenizer_of(family)) is not None) == FAMILIES[family][1]


def test_equal_parts_of_lines_are_encoded_once() -> None:
    tokenizer = tokenizer_of("Llama 3")
    encoded: list[str] = []

    class Counting:
        def __call__(self, strings, **options):  # to find the special tokens
            return tokenizer(strings, **options)

        @property
        def backend_tokenizer(self):
            return self

        def encode_batch_fast(self, strings, **options):
            encoded.extend(strings)
            return tokenizer.backend_tokenizer.encode_batch_fast(strings, **options)

    texts = ["a b\n" + "\n".join(lines) for lines in itertools.permutations(["c d", "e f", "g d"])]
    encoded_by_lines(Counting(), safe_cut(tokenizer), texts, None)
    assert sorted(encoded) == sorted(["a", " b\n", "c", "e", "g", " d", " d\n", " f", " f\n"])
