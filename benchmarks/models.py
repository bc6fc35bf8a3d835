"""Loads models as the harness does, and asks them."""

from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from lm_eval_leakage.harness.seams.registries import add_models
from lm_eval_leakage.stats.order_scores import find_device


def load_model(model: str, model_args: str) -> Any:
    """A harness model by name and arguments, as on the command line; on an accelerator by default, if there is one."""
    add_models()
    device = {} if "device=" in model_args else {"device": str(find_device())}
    return get_model(model).create_from_arg_string(model_args, device)


def loglikelihoods(lm: Any, texts: Sequence[tuple[str, str]]) -> list[float]:
    """Return the log-likelihood of each continuation given its context, in nats."""
    instances = [Instance("loglikelihood", {}, text, place) for place, text in enumerate(texts)]
    return [answer[0] for answer in lm.loglikelihood(instances, disable_tqdm=True)]
