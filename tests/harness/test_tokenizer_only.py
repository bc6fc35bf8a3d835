"""A tokenizer that is loaded without its model encodes as lm_eval's `hf` would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lm_eval.models.huggingface import HFLM
from tokenizers.pre_tokenizers import ByteLevel
from transformers import GPT2TokenizerFast

from lm_eval_leakage.harness.models.request_tokens import tokens_of
from lm_eval_leakage.harness.models.tokenizer_only import TokenizerOnly, tokenizer_on_disk
from tests.harness.test_prefix_tree_lm import checkpoint, tokenizer_over_bytes
from tests.harness.tokenizer_families import FAMILIES, tokenizer_of

TEXTS = ["What is 12 + 345?\n", "A. Mars\nB. the  Earth", "</s> begins", "中文の選択肢。", " a space before"]
TEMPLATE = (
    "{% for turn in messages %}{% if turn.role == 'system' %}{{ raise_exception('none') }}{% endif %}"
    "<{{turn.role}}>{{turn.content}}{% endfor %}"
)


def model_with(folder: Path, tokenizer: Any) -> str:
    checkpoint(folder, max_position_embeddings=100, vocab_size=len(tokenizer))
    tokenizer.save_pretrained(folder)
    return str(folder)


def same_tokens(model: str, **arguments: Any) -> TokenizerOnly:
    """The tokenizer alone, if it encodes as the model's backend does."""
    stock = HFLM(pretrained=model, device="cpu", **arguments)
    alone = TokenizerOnly(model, arguments)
    assert alone.max_length == stock.max_length
    assert alone.prefix_token_id == stock.prefix_token_id
    assert [alone.tok_encode(text) for text in TEXTS] == [stock.tok_encode(text) for text in TEXTS]
    requests = [(context, text) for context in ("", "Question:", *TEXTS) for text in TEXTS]
    ours, theirs = (tokens_of(lm, "loglikelihood", requests) for lm in (alone, stock))
    assert [row.tolist() for row in ours] == [row.tolist() for row in theirs]
    return alone


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_the_models_backend(family: str, tmp_path) -> None:
    same_tokens(model_with(tmp_path, tokenizer_of(family)))


@pytest.mark.parametrize("arguments", [{"add_bos_token": True}, {"prefix_token_id": 5}, {"max_length": 20}])
def test_arguments_that_change_tokens_are_heeded(arguments: dict[str, Any], tmp_path) -> None:
    same_tokens(model_with(tmp_path, tokenizer_over_bytes(adds_bos=True)), **arguments)


def test_special_tokens_that_only_the_class_knows_are_used(tmp_path) -> None:
    checkpoint(tmp_path, max_position_embeddings=100)
    vocabulary = {"<|endoftext|>": 0} | {token: at for at, token in enumerate(sorted(ByteLevel.alphabet()), 1)}
    GPT2TokenizerFast(vocab=vocabulary, merges=[]).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert same_tokens(str(tmp_path)).tokenizer.eos_token == "<|endoftext|>"


def test_a_chat_template_that_refuses_a_system_turn_gets_none(tmp_path) -> None:
    tokenizer = tokenizer_over_bytes(adds_bos=False)
    tokenizer.chat_template = TEMPLATE
    model = model_with(tmp_path, tokenizer)
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    stock = HFLM(pretrained=model, device="cpu")
    assert TokenizerOnly(model, {}).apply_chat_template(turns) == stock.apply_chat_template(turns) == "<user>u"


def test_without_a_tokenizer_on_this_machine_there_is_none(tmp_path) -> None:
    assert tokenizer_on_disk({"pretrained": str(tmp_path)}) is None
    assert tokenizer_on_disk({"pretrained": "nobody/has-this-model"}) is None
    (tmp_path / "tokenizer.json").write_text("{")
    assert tokenizer_on_disk({"pretrained": str(tmp_path)}) is None


def test_a_window_that_only_the_models_class_knows_is_used(tmp_path) -> None:
    model = model_with(tmp_path, tokenizer_over_bytes(adds_bos=False))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert TokenizerOnly(model, {}).max_length == 2048


def test_a_usual_tokenizer_is_loaded_without_torch(tmp_path) -> None:
    model = model_with(tmp_path, tokenizer_over_bytes(adds_bos=True))
    code = (
        "import sys\n"
        "from lm_eval_leakage.harness.models.tokenizer_only import tokenizer_on_disk\n"
        f"tokenizer = tokenizer_on_disk({{'pretrained': {model!r}}})\n"
        "print(len(tokenizer.tok_encode('abc')), 'torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["4", "False"]
