"""The methods by which audits ask models, in words."""

from __future__ import annotations

from typing import Any

MEANING = {
    "loglikelihood": "gives no log-likelihoods of given texts",
    "generate_until": "does not generate text",
    "token_scores": "does not give the next-token distribution (`hf` and `hf-prefix-tree` do)",
}


def refuses(method: Any, *arguments: object) -> bool:
    """Whether a backend answers nothing by a method: it has none, or only one that raises NotImplementedError, as chat
    models inherit it.

    arguments: an empty list of requests, after any object if the method is that of a class
    """
    try:
        method(*arguments)
    except NotImplementedError:
        return True
    except Exception:  # the method needs requests, or a loaded model
        return method is None
    return False
