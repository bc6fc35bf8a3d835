"""Stands between lm_eval's models and their private parts: scoring, logits, requests.

- The scoring of `local-completions` is checked, and `hf` gives its logits.
- A model gets a request type: lm_eval calls the model's method that is named like the request's type. lm_eval has no
  other way to make requests beyond its three types. A registry of request types, or tasks that may call the model
  themselves, would replace this.
- Requests of models behind an API wait: lm_eval 0.4.13 builds sessions and waits after errors where nothing can be
  given from outside. An argument for either would replace this.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any

from lm_eval_leakage.harness.seams.patching import patched_once, seam_object

COMPLETIONS = "lm_eval.models.openai_completions"
API = "lm_eval.models.api_models"
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
HF = "lm_eval.models.huggingface:HFLM"


def before_completions(kind: Any, prepare: Callable[[Any], None]) -> None:
    """Calls `prepare` with each model of the class `local-completions` once, before it sends its first texts to score.

    kind: the class of a run's model; nothing is done unless it is that class or derived from it
    """
    completions = sys.modules.get(COMPLETIONS)
    if completions is None or not isinstance(kind, type) or not issubclass(kind, completions.LocalCompletionsAPI):
        return

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _loglikelihood_tokens(self: Any, requests: Any, **kwargs: Any) -> Any:
            if reads_as_completions(type(self)) and "parse_logprobs" not in vars(self):
                prepare(self)
            return original(self, requests, **kwargs)

        return _loglikelihood_tokens

    patched_once(f"{COMPLETIONS}:LocalCompletionsAPI._loglikelihood_tokens", wrap)


def reads_as_completions(kind: Any) -> bool:
    """Return whether a model class sends and reads texts as `local-completions` does."""
    usual = getattr(sys.modules.get(COMPLETIONS), "LocalCompletionsAPI", None)
    return usual is not None and getattr(kind, "parse_logprobs", None) is usual.parse_logprobs


def around_requests(kind: Any, session: Callable[[Any], Any], call: Wrap) -> None:
    """Lets models behind an API send their requests by what stands around their sessions and calls.

    kind: the class of a run's model; nothing is done unless it is one of those
    session: makes another aiohttp session of one, for concurrent requests; call: another `model_call`, for the others
    """
    api = sys.modules.get(API)
    if api is None or not isinstance(kind, type) or not issubclass(kind, api.TemplateAPI):
        return

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        async def amodel_call(self: Any, *args: Any, **kwargs: Any) -> Any:
            asyncio.get_running_loop().set_exception_handler(_only_the_first_error)
            return await original(self, *args, **{**kwargs, "session": session(kwargs["session"])})

        return amodel_call

    patched_once(f"{API}:TemplateAPI.amodel_call", wrap)
    patched_once(f"{API}:TemplateAPI.model_call", call)


def _only_the_first_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Print no traceback of a request that failed beside the one whose error lm_eval raises: each is logged."""
    if not context["message"].endswith("exception was never retrieved"):
        loop.default_exception_handler(context)


def is_hf(lm: Any) -> bool:
    """Return whether a model is lm_eval's `hf`, or of a class derived from it.

    Importing that class takes two seconds, and a model of it exists only where somebody has imported it.
    """
    module, _, name = HF.partition(":")
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(lm, kind)


def offer_method(lm: Any, name: str, method: Callable[..., Any]) -> bool:
    """Adds a method that reads the logits to an HFLM model. Returns whether it was added."""
    if seam_object(f"{HF}._model_call") is None:
        return False
    setattr(lm, name, MethodType(method, lm))
    return True


def logits_of(lm: Any, tokens: Any) -> Any:
    """Return the logits for every position, in the model's own precision."""
    return lm._model_call(tokens)


def offer_request_type(lm: Any, name: str, answer: Callable[..., list[Any]]) -> None:
    """Adds the method to the model's class, since the harness's response cache forwards unknown attributes to the
    model that it wraps."""
    if not hasattr(type(lm), name):
        setattr(type(lm), name, answer)
