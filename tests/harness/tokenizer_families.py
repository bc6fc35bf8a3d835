"""Tiny tokenizers of the families that language models use, trained here on a few lines."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as pre

CORPUS = [
    "Which of these is the third planet?\nA. Mars\nB. the Earth\nC. Venus\nD. none of the above",
    "What is 12 + 345?\n(1) 357\n(2) 12345\n\n(3) it's 1,000.\nIt isn't: we'll see, they've said.",
    "Ein süßes Öl?\nA. die Hälfte\nB. zwei  Drittel\n\tC. def f(x):\n    return x\n",
    "中文の選択肢。\nＡ. 一つ\nB. 二つ\n🦊 fox\n/path/to\n//file.\n/ ... </s> <b> x",
] * 3
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _split(pattern: str) -> pre.PreTokenizer:
    return pre.Split(Regex(pattern), "isolated")


def _byte_level(
    *steps: Any, prefix_space: bool = False, regex: bool = False, normalizer: Any = None, **model: Any
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre.Sequence([*steps, pre.ByteLevel(add_prefix_space=prefix_space, use_regex=regex)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False)
    )
    return tokenizer


def _llama2() -> Tokenizer:
    """BPE on characters with spaces replaced, unknown characters as bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>", *BYTES], show_progress=False)
    )
    return _bos(tokenizer)


def _bos(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def _starcoder() -> Tokenizer:
    tokenizer = _byte_level(pre.Digits(individual_digits=True), regex=True)
    tokenizer.add_special_tokens([AddedToken("<fim>", lstrip=True), AddedToken("<|end|>", rstrip=True)])
    tokenizer.add_tokens([AddedToken("the Earth", normalized=True), AddedToken("    ", normalized=False)])
    return tokenizer


# whether cuts between lines are known to be safe for them
FAMILIES = {
    "GPT-2": (lambda: _byte_level(regex=True), True),
    "Llama 3": (lambda: _bos(_byte_level(_split(LLAMA3), ignore_merges=True)), True),
    "Qwen": (lambda: _byte_level(_split(LLAMA3.replace("{1,3}", "")), normalizer=normalizers.NFC()), True),
    "GPT-4o": (lambda: _byte_level(_split(GPT4O)), True),
    "DeepSeek V3": (lambda: _bos(_byte_level(*map(_split, DEEPSEEK))), True),
    "StarCoder": (_starcoder, True),
    # a part would get a space of its own
    "GPT-2 with a prefix space": (lambda: _byte_level(regex=True, prefix_space=True), False),
    "Llama 2": (_llama2, False),
    # nothing splits it at line breaks, and its vocabulary has entries across them
    "bytes without a pattern": (_byte_level, False),
    # its words may begin with a line break
    "another pattern": (lambda: _byte_level(_split(r"\s?\p{L}+|\s?[^\s\p{L}]+|\s+")), False),
}


@cache
def tokenizer_of(family: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=FAMILIES[family][0](), eos_token="</s>")
