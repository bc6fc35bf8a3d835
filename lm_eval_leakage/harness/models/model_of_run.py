"""What a run's model can do for our tasks, settled before anything is computed."""

from __future__ import annotations

from typing import Any

from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.token_scores import offer_token_scores

MEANING = {
    "loglikelihood": "gives no log-likelihoods of a given text",
    "generate_until": "does not generate text",
    "token_scores": "does not show the distribution of the next token (`hf` and `hf-prefix-tree` do)",
}


def lacking(lm: Any, need: str) -> str | None:
    """What `lm` cannot do of what a probe needs, in words; None where it can."""
    model = getattr(lm, "lm", lm)  # below the harness's response cache
    if need == "token_scores":
        can = offer_token_scores(lm)
    else:
        can = isinstance(model, HFLM) or _answers_nothing(getattr(model, need, None))
    return None if can else f"{type(model).__name__} {MEANING[need]}"


def _answers_nothing(method: Any) -> bool:
    """Whether a method takes an empty list. Chat models have it by inheritance and raise NotImplementedError."""
    try:
        method([])
    except NotImplementedError:
        return False
    except Exception:  # a method that needs requests to work is there
        return method is not None
    return True
