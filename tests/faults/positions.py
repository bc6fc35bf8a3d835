"""Models that read a text's positions by the longest text beside it, scored by `hf-prefix-tree`."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from lm_eval.models.huggingface import HFLM

from tests.faults.tally import Tally, attack
from tests.harness.test_prefix_tree_lm import checkpoint, instances, lm_of
from tests.scoring.test_positions import BY_LAYER, DYNAMIC, USUAL, YARN, longrope
from tests.scoring.trees import EXCHANGEABLE, TINY

WORDS = ["the", "sky", "is", "blue", "and", "a", "baker", "needs", "flour", "while", "fish", "swim", "in", "water"]


def _rotary(rng: random.Random, n_frequencies: int, window: int) -> dict[str, Any]:
    kind = rng.choice([USUAL, DYNAMIC, YARN, longrope(n_frequencies)])
    return kind | ({"original_max_position_embeddings": window} if kind["rope_type"] in ("yarn", "longrope") else {})


def _config(rng: random.Random, window: int) -> tuple[str, dict[str, Any]]:
    """An architecture, and how it embeds positions."""
    name = rng.choice(["gemma3_text", "llama", "phi3", "llama4_text"])
    if name == "gemma3_text":
        types = {kind: _rotary(rng, 4, window) for kind in BY_LAYER["layer_types"]}
        return name, BY_LAYER | {"rope_parameters": types, "max_position_embeddings": window}
    if name == "llama4_text":
        return name, EXCHANGEABLE[name] | {"floor_scale": window, "no_rope_layers": [0, 1]}
    if name == "phi3":
        return name, TINY | {"rope_parameters": longrope(2), "original_max_position_embeddings": window}
    return name, TINY | {"rope_parameters": _rotary(rng, 2, window), "max_position_embeddings": window}


def _pairs(rng: random.Random) -> list[tuple[str, str]]:
    """Texts of one to twenty words."""

    def some(most: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))

    return [(some(rng.choice([3, 20])), " " + some(2)) for _ in range(8)]


@attack("models that read positions by the longest text", 40, 1)
def positions_by_length(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Rotary embeddings that depend on length, in all layers or in one type, and attention scaled by rows: each
    text must have the value that `hf` gives it alone."""
    for number in range(tries):
        name, config = _config(rng, rng.randint(20, 90))
        pairs = _pairs(rng)
        model = checkpoint(folder / str(number), name, config)
        expected = HFLM(pretrained=model, device="cpu", max_length=150, dtype="float32", batch_size=1)
        right = [value for value, _ in expected.loglikelihood(instances(pairs), disable_tqdm=True)]
        values = [
            value for value, _ in lm_of(model, max_length=150).loglikelihood(instances(pairs), disable_tqdm=True)
        ]
        tally.tries += 1
        off = [not math.isclose(*pair, abs_tol=2e-3) for pair in zip(values, right, strict=True)]
        tally.record(f"{name} {config}: {values} instead of {right}", wrong=sum(off))
