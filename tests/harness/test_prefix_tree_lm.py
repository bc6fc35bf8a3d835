"""`hf-prefix-tree` against `hf`, through the harness's own entry points."""

from __future__ import annotations

import threading
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models import tokenising as portions
from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM
from lm_eval_leakage.harness.models.tokenising import AS_VLLM, FittedTexts, in_portions, one_ahead
from lm_eval_leakage.scoring.prefix_tree import Texts
from tests.scoring.trees import EXCHANGEABLE, TINY, UNSUITED, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
N_BYTES = 256 + 2
MIXED = [
    ("The sky is", " blue"),
    ("The sky is", " blue as the sea"),
    ("The sky is", " green"),
    ("The sky is", " blue"),  # the same again
    ("The sky is ", "blue"),  # the space moves to the continuation
    ("", "No context at all"),
    ("", "No"),
    ("Ein süßes ", "Öl, 中文の選択肢, 🦊 and e\u0301"),
    ("中文", "の"),
    ("A" * 90, "B" * 40),  # longer than the window
    ("A" * 90, "B" * 20),
    ("x", "y"),
]


def tokenizer_over_bytes(adds_bos: bool = False) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": 1} | {letter: index for index, letter in enumerate(alphabet, start=2)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def checkpoint(folder: Path, name: str = "llama", config: dict[str, Any] | None = None, **changes: Any) -> str:
    """A tiny model with a tokenizer over bytes, saved as a user's would be."""
    tokenizer_over_bytes().save_pretrained(folder)
    tiny_model(name, (config or TINY) | {"vocab_size": N_BYTES} | changes).save_pretrained(folder)
    return str(folder)


def lm_of(model: str, **arguments: Any) -> PrefixTreeLM:
    return PrefixTreeLM(pretrained=model, device="cpu", **({"max_length": 100, "dtype": "float32"} | arguments))


def instances(pairs: list[tuple[str, str]] = MIXED) -> list[Instance]:
    return [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)]


def assert_as_hf(model: str, lm: PrefixTreeLM, pairs: list[tuple[str, str]] = MIXED, **arguments: Any) -> None:
    stock = HFLM(pretrained=model, device="cpu", **({"max_length": 100, "dtype": "float32"} | arguments))
    expected = stock.loglikelihood(instances(pairs), disable_tqdm=True)
    values = lm.loglikelihood(instances(pairs), disable_tqdm=True)
    assert [greedy for _, greedy in values] == [greedy for _, greedy in expected]
    assert [value for value, _ in values] == pytest.approx([value for value, _ in expected], abs=1e-3)


@pytest.mark.parametrize("max_tokens", ["auto", 48])
def test_all_sorts_of_requests_are_answered_as_by_hf(llama, max_tokens) -> None:
    lm = lm_of(llama, max_tokens=max_tokens)
    assert lm.choice.scorer is not None
    assert_as_hf(llama, lm)


def test_answers_are_cached_one_by_one_as_they_come(llama) -> None:
    kept: list[tuple[str, tuple[str, str], tuple[float, bool]]] = []

    def stops_at_five(*arguments) -> None:
        kept.append(arguments)
        if len(kept) == 5:
            raise KeyboardInterrupt

    lm = lm_of(llama)
    lm.cache_hook = SimpleNamespace(add_partial=stops_at_five)
    with pytest.raises(KeyboardInterrupt):
        lm.loglikelihood(instances(), disable_tqdm=True)
    answers = dict(zip(MIXED, lm_of(llama).loglikelihood(instances(), disable_tqdm=True), strict=True))
    for method, request, answer in kept:
        assert (method, answer) == ("loglikelihood", pytest.approx(answers[request], abs=1e-4))


def counted(lm: PrefixTreeLM) -> list[int]:
    """Return a list of the number of texts of each portion that is scored from now on."""
    n_scored: list[int] = []
    usual = lm.choice.scorer.batches
    lm.choice.scorer.batches = lambda texts: n_scored.append(len(texts)) or usual(texts)
    return n_scored


# ---------------------------------------------------------------------- unsuitable models and requests


@pytest.mark.parametrize("name", UNSUITED)
def test_a_model_that_tree_attention_does_not_suit_is_scored_as_by_hf_and_one_line_says_so(
    name, tmp_path, caplog
) -> None:
    model = checkpoint(tmp_path, name, UNSUITED[name])
    lm = lm_of(model)
    (line,) = [record.message for record in caplog.records if "hf-prefix-tree" in record.message]
    assert "tree attention does not suit it (" in line or "tree attention is off by" in line
    assert line.endswith("; using stock `hf` scoring")
    assert lm.choice.scorer is None
    assert_as_hf(model, lm)


def adapter(model: str, folder: Path, config: Any) -> str:
    """An adapter with random weights for `model`, saved as a user's would be."""
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(model), config)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.3)
    adapted.save_pretrained(folder)
    return str(folder)


@pytest.mark.filterwarnings("ignore")
def test_a_lora_adapter_is_scored_by_the_tree(llama, tmp_path) -> None:
    from peft import LoraConfig

    lora = adapter(llama, tmp_path, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "up_proj"]))
    lm = lm_of(llama, peft=lora)
    assert lm.choice.scorer is not None
    assert_as_hf(llama, lm, peft=lora)
    plain = lm_of(llama).loglikelihood(instances(), disable_tqdm=True)
    assert lm.loglikelihood(instances(), disable_tqdm=True)[0][0] != pytest.approx(plain[0][0], abs=0.01)


@pytest.mark.filterwarnings("ignore")
def test_virtual_tokens_of_prompt_tuning_are_left_to_hf(llama, tmp_path) -> None:
    from peft import PromptTuningConfig

    tuned = adapter(llama, tmp_path, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    lm = lm_of(llama, peft=tuned)
    assert lm.choice.scorer is None
    assert_as_hf(llama, lm, MIXED[:8], peft=tuned)


def test_what_goes_wrong_only_on_long_texts_is_found_before_they_are_scored(llama, monkeypatch, caplog) -> None:
    from lm_eval_leakage.scoring import tree_model as tree_mask

    lm = lm_of(llama)
    usual = tree_mask._allowed

    def blind_beyond_90(mask_function, queries, keys):
        return usual(mask_function, queries, keys) & (keys[:, None, :] != 90)

    monkeypatch.setattr(tree_mask, "_allowed", blind_beyond_90)
    lm.choice.verified = 85  # as if the texts of the check had been shorter
    assert_as_hf(llama, lm)
    assert lm.choice.scorer is None
    assert "tree attention is off by" in caplog.text


def test_an_encoder_decoder_is_scored_as_hf_does(tmp_path, caplog) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    model = checkpoint(tmp_path)
    tiny = T5Config(
        vocab_size=N_BYTES, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    T5ForConditionalGeneration(tiny).save_pretrained(tmp_path)
    lm = lm_of(model)
    assert "encoder-decoder" in caplog.text
    assert_as_hf(model, lm, MIXED[:3])


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize("max_tokens", [47, "many", 2.5])
def test_a_budget_that_makes_no_sense_is_named(llama, max_tokens) -> None:
    with pytest.raises(ValueError, match=f"max_tokens is {max_tokens!r}; give `auto`"):
        lm_of(llama, max_tokens=max_tokens)


def test_a_batch_size_gets_a_warning_that_it_is_for_generation_only(llama, caplog) -> None:
    lm_of(llama, batch_size=16)
    assert "batch_size=16 applies to generation and rolling log-likelihoods only" in caplog.text


@pytest.mark.parametrize("arguments", [{"dtype": "bfloat16"}, {"mixed_precision_dtype": "bfloat16", "max_tokens": 64}])
def test_half_precision_is_scored_in_float32_log_softmax(llama, arguments) -> None:
    lm, differs = lm_of(llama, **arguments), []
    assert lm.softmax_dtype == torch.float32
    exact = dict(zip(MIXED, lm_of(llama).loglikelihood(instances(), disable_tqdm=True), strict=True))
    for pair, (value, _) in zip(MIXED, lm.loglikelihood(instances(), disable_tqdm=True), strict=True):
        assert value == pytest.approx(exact[pair][0], abs=0.1 * max(1, len(pair[1])))
        differs.append(value != pytest.approx(exact[pair][0], abs=1e-4))
    assert any(differs)


# ---------------------------------------------------------------------- portions


@pytest.mark.parametrize("n_requests", [0, 1, 4, 5, 11])
def test_portions_are_consecutive_and_of_one_size(n_requests, monkeypatch) -> None:
    monkeypatch.setattr(portions, "MOST_REQUESTS", 4)
    values = [[*range(n_requests)][some] for some in in_portions(n_requests)]
    assert [*chain.from_iterable(values)] == [*range(n_requests)]
    assert {len(portion) for portion in values[:-1]} <= {4}


def test_the_next_task_is_done_while_the_caller_works_on_one_and_no_more_than_that() -> None:
    done = [threading.Event() for _ in range(5)]

    def task(number: int) -> int:
        done[number].set()
        return number

    for number in one_ahead(task, range(5)):
        if number < 4:
            assert done[number + 1].wait(10)
        assert not any(event.is_set() for event in done[number + 2 :])


def test_an_error_in_the_thread_is_raised_where_its_result_is_due() -> None:
    seen = []
    with pytest.raises(ZeroDivisionError):
        seen.extend(one_ahead(lambda n: 1 // n, [1, 0, 3]))
    assert [*one_ahead(abs, [])] == []


@pytest.mark.parametrize(("fit", "longest", "argument"), [((), 9, "max_length"), (AS_VLLM, 7, "max_model_len")])
def test_a_window_of_eight_tokens_holds_nine_for_hf_and_seven_for_vllm(fit, longest, argument, caplog) -> None:
    fitted, tokens = FittedTexts(8, *fit), np.arange(20, dtype=np.int32)
    (fits,) = fitted.texts([("", "")], Texts.of_pairs([(tokens[:1], tokens[1:longest])]))
    assert (fits.tokens.tolist(), fits.n_scored) == ([*range(longest)], longest - 1)
    fitted.warn_if_cut()
    assert not caplog.messages
    (cut,) = fitted.texts([("", "")], Texts.of_pairs([(tokens[:2], tokens[2 : longest + 1])]))
    assert (cut.tokens.tolist(), cut.n_scored) == ([*range(1, longest + 1)], longest - 1)
    fitted.warn_if_cut()
    assert "1 of 2 texts are longer than the model's window of 8 tokens, and truncated on the left" in caplog.text
    assert f"as by `{fitted.backend}`" in caplog.text
    with pytest.raises(ValueError, match=f"at most {longest - 1} in the model's window of 8: raise {argument}, or"):
        fitted.texts([("", "")], Texts.of_pairs([(tokens[:1], tokens[:longest])]))


@pytest.mark.parametrize("most_requests", [1, 5])
def test_any_size_of_portions_gives_the_answers_of_hf_in_order(llama, most_requests, monkeypatch, caplog) -> None:
    monkeypatch.setattr(portions, "MOST_REQUESTS", most_requests)
    assert_as_hf(llama, lm_of(llama))
    assert caplog.text.count("2 of 12 texts are longer than the model's window") == 1


ROPE = {"rope_theta": 10_000.0, "rope_type": "dynamic", "factor": 2.0}
BY_LAYER: dict[str, Any] = {
    "head_dim": 8,
    "sliding_window": 9,
    "layer_types": ["full_attention", "sliding_attention"],
    "rope_parameters": {"full_attention": ROPE, "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}},
}


@pytest.mark.parametrize(("name", "config"), [("llama", {"rope_parameters": ROPE}), ("gemma3_text", BY_LAYER)])
def test_only_portions_with_texts_that_change_how_others_are_read_are_left_to_hf(
    name: str, config: dict[str, Any], tmp_path: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(portions, "MOST_REQUESTS", 1)
    model = checkpoint(tmp_path, name, max_position_embeddings=64, **config)
    lm = lm_of(model, batch_size=1)
    n_scored = counted(lm)
    assert_as_hf(model, lm, [("a" * 5, "b"), ("c" * 63, "bc")], batch_size=1)
    assert n_scored == [1, 1]
    assert "changes how this model reads" not in caplog.text
    assert_as_hf(model, lm, [("a" * 5, "b"), ("c" * 64, "bc"), ("d" * 80, "bc"), ("a" * 5, "c")], batch_size=1)
    assert n_scored == [1] * 4
    assert caplog.text.count("a text of more than 64 tokens changes how this model reads shorter texts") == 1


def test_short_texts_in_a_portion_with_a_long_one_are_answered_as_by_hf(tmp_path: Path) -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "original_max_position_embeddings": 40}
    rope = BY_LAYER["rope_parameters"] | {"full_attention": ROPE | {"rope_type": "longrope"} | factors}
    model = checkpoint(tmp_path, "gemma3_text", **BY_LAYER | {"rope_parameters": rope})
    assert_as_hf(
        model, lm_of(model), [("The sky is", " blue"), ("The sky is", " green"), ("d" * 97, "bc")], batch_size=1
    )


def test_a_forward_pass_has_no_more_rows_than_attention_that_is_scaled_by_rows_allows(tmp_path: Path) -> None:
    model = checkpoint(tmp_path, "llama4_text", EXCHANGEABLE["llama4_text"], floor_scale=101, no_rope_layers=[0, 1])
    lm = lm_of(model)
    assert lm.budget.max_tokens == 100
    assert_as_hf(model, lm, [(letter * 30, "b") for letter in "acdef"], batch_size=1)
