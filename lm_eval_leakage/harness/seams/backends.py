"""Use and patch private parts of lm_eval's models.

- `local-completions`: our code is called before it scores texts, to check the server's answers.
- `hf`: its logits are read.
- Any model: it gets a method for our own request type, since lm_eval calls the model's method that is named like the
  request's type, and has no other way to make requests beyond its three types. A registry of request types, or tasks
  that may call the model themselves, would replace this.
- Models behind an API: their sessions and calls are wrapped, to wait as long as the server asks. lm_eval 0.4.13 takes
  no session and no rule of waiting from outside. An argument for either would replace this.
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


def prepare_completions(kind: Any, prepare: Callable[[Any], None]) -> None:
    """Have `prepare` called with a model of the class `local-completions` before it sends its first texts to score.

    A model is not prepared again once `prepare` has set its attribute `parse_logprobs`. A derived class that reads
    responses in its own way is left alone.

    kind: the class of a run's model; nothing is done unless it is `local-completions` or derived from it
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
    completions_class = getattr(sys.modules.get(COMPLETIONS), "LocalCompletionsAPI", None)
    if completions_class is None:
        return False
    return getattr(kind, "parse_logprobs", None) is completions_class.parse_logprobs


def wrap_requests(kind: Any, wrap_session: Callable[[Any], Any], wrap_call: Wrap) -> None:
    """Have models behind an API send their requests through wrappers.

    kind: the class of a run's model; nothing is done unless its requests go to an API
    wrap_session: returns the aiohttp session to use instead of the given one, for concurrent requests
    wrap_call: returns the method to use instead of `model_call`, for requests one after another
    """
    api = sys.modules.get(API)
    if api is None or not isinstance(kind, type) or not issubclass(kind, api.TemplateAPI):
        return

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        async def amodel_call(self: Any, *args: Any, **kwargs: Any) -> Any:
            asyncio.get_running_loop().set_exception_handler(_without_unretrieved_errors)
            return await original(self, *args, **{**kwargs, "session": wrap_session(kwargs["session"])})

        return amodel_call

    patched_once(f"{API}:TemplateAPI.amodel_call", wrap)
    patched_once(f"{API}:TemplateAPI.model_call", wrap_call)


def _without_unretrieved_errors(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle errors of an event loop as usual, except those of tasks whose results nobody retrieves.

    These are requests that failed beside the one whose error lm_eval raises; each has been logged.
    """
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
    """Add a method, which may call `logits_of`, to an HFLM model; return whether this lm_eval allows it."""
    if seam_object(f"{HF}._model_call") is None:
        return False
    setattr(lm, name, MethodType(method, lm))
    return True


def logits_of(lm: Any, tokens: Any) -> Any:
    """Return an HFLM model's logits for every position of a batch of tokens, in the model's own precision."""
    return lm._model_call(tokens)


def offer_request_type(lm: Any, name: str, answer: Callable[..., list[Any]]) -> None:
    """Make lm_eval call `answer(lm, instances)` for the requests of type `name`, by adding a method of this name.

    The model's class gets it, since the harness's response cache forwards unknown attributes to the model that it
    wraps.
    """
    if not hasattr(type(lm), name):
        setattr(type(lm), name, answer)
