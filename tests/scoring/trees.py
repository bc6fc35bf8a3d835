"""Random texts that share prefixes, and tiny models of many architectures."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch
from hypothesis import strategies as st

from lm_eval_leakage.scoring.prefix_tree import PrefixTree, Text

VOCABULARY = 61
Config = dict[str, Any]
TINY: Config = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
OLDER: Config = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
OLDEST: Config = {"vocab_size": VOCABULARY, "hidden_size": 16, "n_layer": 2, "n_head": 4}
SLIDING: Config = TINY | {"head_dim": 8, "sliding_window": 9}
MLA: Config = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 6}
EXPERTS: Config = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_group": 1}

EXCHANGEABLE: dict[str, Config] = {
    "llama": TINY,
    "qwen2": TINY | {"tie_word_embeddings": True},
    "qwen3": TINY | {"head_dim": 8},  # norms on queries and keys
    "mistral": TINY | {"sliding_window": 9},
    "gemma2": SLIDING  # caps on scores and logits; the sdpa of older versions of transformers leaves the caps out
    | {"query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0, "attn_implementation": "eager"},
    "gemma3_text": SLIDING,  # two rotary bases
    "gpt_oss": SLIDING | {"num_local_experts": 4},  # sinks
    "gpt2": {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 256},
    "opt": OLDER | {"ffn_dim": 24, "word_embed_proj_dim": 16, "max_position_embeddings": 256},  # learned positions
    "mixtral": TINY | {"num_local_experts": 4},
    "cohere": TINY,  # scaled logits
    "phi": TINY,  # rotary on a part of each head
    "llama4_text": TINY
    | {"head_dim": 8, "attention_chunk_size": 8, "num_local_experts": 2, "intermediate_size_mlp": 24},
    "deepseek_v3": TINY  # keys and values of different sizes
    | MLA
    | EXPERTS
    | {"num_key_value_heads": 4, "topk_group": 1, "first_k_dense_replace": 1},
}
UNSUITED: dict[str, Config] = {  # to tree attention
    "bloom": OLDEST,  # ALiBi
    "falcon": OLDER | {"alibi": True},
    "gpt_neo": {"vocab_size": VOCABULARY, "hidden_size": 16, "num_layers": 2, "num_heads": 4, "window_size": 9}
    | {"attention_types": [[["global", "local"], 1]], "max_position_embeddings": 256},  # attention of its own
    "mamba": {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},  # recurrent
    "recurrent_gemma": TINY
    | {"num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 8, "attention_window_size": 8, "lru_width": 16},
}


def tiny_model(name: str, config: Config, dtype: torch.dtype = torch.float32) -> Any:
    """Return a model with random weights, large enough that every token of a text affects the probability of the next
    one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.4)
    return model.to(dtype)


@st.composite
def texts(draw: st.DrawFn, n_tokens: int = 3, longest: int = 14) -> list[Text]:
    """Draw a few texts over a small vocabulary: many share prefixes, some are equal, some are prefixes of others."""
    token = st.integers(1, n_tokens)
    rows = draw(st.lists(st.lists(token, min_size=2, max_size=longest), min_size=1, max_size=9))
    rows += [rows[0]] * draw(st.integers(0, 1))
    rows += [row[:-1] for row in rows[:1] if len(row) > 2]
    return [Text(row, draw(st.integers(1, len(row) - 1))) for row in rows]


def orders_of_options(n_questions: int = 3, seed: int = 0) -> list[Text]:
    """Return questions with three options in every order, and with a single last token to score."""
    rng = random.Random(seed)

    def some(fewest: int, most: int) -> list[int]:
        return [rng.randrange(3, VOCABULARY) for _ in range(rng.randint(fewest, most))]

    texts = []
    for _ in range(n_questions):
        stem, options = some(6, 18), [some(1, 6) for _ in range(3)]
        for order in itertools.permutations(options):
            block = [token for option in order for token in option]
            texts.append(Text(stem + block, len(block)))
        texts.append(Text(stem + options[0], 1))
    return texts


def path_to(tree: PrefixTree, node: int) -> list[int]:
    """Return the nodes from the root to `node`: at each smaller depth, the last one before it."""
    path = [node]
    for before in range(node - 1, -1, -1):
        if tree.node_depths[before] == tree.node_depths[path[-1]] - 1:
            path.append(before)
    return path[::-1]


def prefix_at(tree: PrefixTree, node: int) -> tuple[int, ...]:
    return tuple(int(tree.node_tokens[step]) for step in path_to(tree, node))
