"""Up to which length texts may share a forward pass, by tiny models of the transformers that is installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lm_eval_leakage.scoring.positions import most_rows, steady_window
from lm_eval_leakage.scoring.prefix_tree import Text
from lm_eval_leakage.scoring.scorers import TokenBudget, TreeScorer, disagreement, plain_score
from tests.scoring.trees import EXCHANGEABLE, SLIDING, TINY, orders_of_options, tiny_model

CPU = torch.device("cpu")
LONGEST, WINDOW = 200, 64
USUAL = {"rope_type": "default", "rope_theta": 10_000.0}
DYNAMIC = USUAL | {"rope_type": "dynamic", "factor": 2.0}
YARN = USUAL | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": WINDOW}
BY_LAYER = SLIDING | {"layer_types": ["full_attention", "sliding_attention"]}


def longrope(n_frequencies: int) -> dict[str, Any]:
    factors = {"short_factor": [1.0] * n_frequencies, "long_factor": [3.0] * n_frequencies}
    return YARN | factors | {"rope_type": "longrope"}


def by_layer(full: dict[str, Any], sliding: dict[str, Any]) -> dict[str, Any]:
    return BY_LAYER | {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}


UNSTEADY: dict[str, tuple[str, dict[str, Any], int]] = {
    "longrope of one type of layers": ("gemma3_text", by_layer(longrope(4), USUAL), WINDOW),
    "dynamic of the other type": (
        "gemma3_text",
        by_layer(USUAL, DYNAMIC) | {"max_position_embeddings": 50},
        50,
    ),
    "dynamic": ("llama", TINY | {"max_position_embeddings": 70, "rope_parameters": DYNAMIC}, 70),
    "longrope": ("llama", TINY | {"rope_parameters": longrope(2)}, WINDOW),
    "longrope of Phi-3": (
        "phi3",
        TINY | {"original_max_position_embeddings": WINDOW, "rope_parameters": longrope(2), "eos_token_id": 1},
        WINDOW,
    ),
    "longrope with its own scales": (
        "phimoe",
        TINY | {"num_local_experts": 2, "rope_parameters": longrope(2) | {"short_mscale": 1.0, "long_mscale": 1.2}},
        WINDOW,
    ),
    "attention scaled by rows": (
        "llama4_text",
        EXCHANGEABLE["llama4_text"] | {"floor_scale": WINDOW + 1, "no_rope_layers": [0, 1]},
        WINDOW,
    ),
}
STEADY: dict[str, tuple[str, dict[str, Any]]] = {
    "YaRN of one type of layers": ("gemma3_text", by_layer(YARN, USUAL)),
    "scale by positions": (
        "ministral3",
        TINY | {"head_dim": 8, "rope_parameters": YARN | {"llama_4_scaling_beta": 0.1}},
    ),
} | {name: (name, config) for name, config in EXCHANGEABLE.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", UNSTEADY)
def test_the_window_ends_where_a_longer_text_changes_how_shorter_ones_are_read(case: str, dtype: torch.dtype) -> None:
    name, config, window = UNSTEADY[case]
    assert steady_window(tiny_model(name, config, dtype), CPU, LONGEST) == window


@pytest.mark.parametrize("case", STEADY)
def test_other_embeddings_of_positions_have_no_such_window(case: str) -> None:
    assert steady_window(tiny_model(*STEADY[case]), CPU, LONGEST) == LONGEST


@pytest.mark.parametrize("case", UNSTEADY)
def test_texts_are_exact_up_to_that_window_and_only_up_to_it(case: str) -> None:
    name, config, window = UNSTEADY[case]
    model = tiny_model(name, config)

    def error_beside(n_tokens: int) -> float:
        """Return the error of short texts beside one that has so many tokens before its last."""
        some = [Text([3 + (7 * place) % 50 for place in range(n_tokens + 1)], 1), *orders_of_options(1)]
        scorer = TreeScorer(model, CPU, TokenBudget(most_rows(model, 1000)))
        return disagreement(scorer.answers(some), [plain_score(model, CPU, text)[0] for text in some], some)

    assert error_beside(window) < 1e-4
    assert error_beside(LONGEST) > 1e-3


def test_a_model_keeps_its_frequencies_of_short_texts() -> None:
    model = tiny_model("llama", TINY | {"max_position_embeddings": 70, "rope_parameters": DYNAMIC})
    (text, *_) = orders_of_options(1)
    before = plain_score(model, CPU, text)
    steady_window(model, CPU, LONGEST)
    assert plain_score(model, CPU, text) == before
