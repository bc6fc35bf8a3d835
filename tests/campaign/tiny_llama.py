"""A Llama with random weights and a tokenizer of characters, as files that transformers loads."""

from __future__ import annotations

import string
from pathlib import Path


def tiny_llama(folder: Path, seed: int) -> Path:
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {text: place for place, text in enumerate(["<s>", "</s>", "<unk>", *string.printable])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        vocab_size=len(vocabulary), max_position_embeddings=512, bos_token_id=0, eos_token_id=1, **shape
    )
    LlamaForCausalLM(config).float().save_pretrained(folder)
    return folder
