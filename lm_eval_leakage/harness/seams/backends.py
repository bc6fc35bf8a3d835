"""Uses of private parts of lm_eval's models: the scoring that ours override, the logits of `hf`.

Adds a request type to a model: lm_eval calls the model's method that is named like the request's type.

lm_eval has no other way to make requests beyond its three types. A registry of request types, or tasks that may call
the model themselves, would replace this.

Reports a backend's answers as they come, through the hook by which lm_eval fills its response cache.

lm_eval 0.4.13 has no callback for answers; a callback per response would replace this.

Stands around the requests of models behind an API.

lm_eval 0.4.13 builds sessions and waits after errors where nothing can be given from outside; an argument for either
would replace this.

Keeps the model of a run for the next run of the same command, by a wrapper of lm_eval's `get_model`.

`simple_evaluate` builds its model from name and arguments on every call. It also takes a model as an object, but then
the results file names neither the model nor its arguments, and the saved answers could not be told from those of
another model. A `simple_evaluate` that takes a model together with its name would replace this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from types import MethodType
from typing import Any

from lm_eval_leakage.harness.seams.patching import (
    difference_of,
    found,
    is_as_known,
    patched_once,
    report_missing,
    seam_of,
)

SCORING = "lm_eval.api.model:TemplateLM._loglikelihood_tokens"
COMPLETIONS = "lm_eval.models.openai_completions"


def refuse_other_scoring(base: type) -> None:
    """Raises UnsupportedHarness, before a model is loaded, if `base`, a model class of lm_eval, is not scored by the
    method that our model overrides."""
    if is_as_known(SCORING) and (difference := difference_of(base._loglikelihood_tokens, seam_of(SCORING))):  # type: ignore[attr-defined]
        report_missing(seam_of(SCORING), difference)


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
    """Whether a model class sends and reads texts as `local-completions` does."""
    usual = getattr(sys.modules.get(COMPLETIONS), "LocalCompletionsAPI", None)
    return usual is not None and getattr(kind, "parse_logprobs", None) is usual.parse_logprobs


API = "lm_eval.models.api_models"
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


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
            return await original(self, *args, **{**kwargs, "session": session(kwargs["session"])})

        return amodel_call

    patched_once(f"{API}:TemplateAPI.amodel_call", wrap)
    patched_once(f"{API}:TemplateAPI.model_call", call)


HF = "lm_eval.models.huggingface:HFLM"


def offer_method(lm: Any, name: str, method: Callable[..., Any]) -> bool:
    """Adds a method that reads the logits to an HFLM model. Returns whether it was added."""
    if found(f"{HF}._model_call") is None:
        return False
    setattr(lm, name, MethodType(method, lm))
    return True


def logits_of(lm: Any, tokens: Any) -> Any:
    """The logits for every position, in the model's own precision."""
    return lm._model_call(tokens)


def offer_request_type(lm: Any, name: str, answer: Callable[..., list[Any]]) -> None:
    """Adds the method to the model's class, since the harness's response cache forwards unknown attributes to the
    model that it wraps."""
    if not hasattr(type(lm), name):
        setattr(type(lm), name, answer)


Report = Callable[[str, Any, Any], None]  # takes the method, the arguments of the request, and the response


@contextmanager
def answers_reported(model: Any, report: Report, to_cache: Callable[[str], bool]) -> Iterator[None]:
    """Calls `report` with every response of the model within the `with` block. With another lm_eval, responses are
    known only when a call returns.

    to_cache: whether responses of a method are also passed to the run's own cache
    """
    before = getattr(model, "cache_hook", None)
    if before is None or not hasattr(model, "set_cache_hook"):
        yield
        return
    # by the class's method: a run that hears every answer has changed the instance's, and hears `before` already
    type(model).set_cache_hook(model, _reporting(before, report, to_cache))
    try:
        yield
    finally:
        model.set_cache_hook(before)


def _reporting(before: Any, report: Report, to_cache: Callable[[str], bool]) -> Any:
    from lm_eval.api.model import CacheHook

    class Reporting(CacheHook):  # type: ignore[misc]
        def add_partial(self, attr: str, req: Any, res: Any) -> None:
            if to_cache(attr):
                before.add_partial(attr, req, res)
            report(attr, req, res)

    return Reporting(None)


GET_MODEL = "lm_eval.api.registry:get_model"


@dataclass(eq=False)
class KeptModels:
    """given: a model that is handed out whatever is asked for; None builds one
    prepare: called with a model each time that it is handed out
    seconds_of_loading: of all models
    identity: of the model, as it was before it was loaded
    """

    given: Any = None
    prepare: Callable[[Any], None] = lambda lm: None
    identity: dict[str, str] = field(default_factory=dict)
    models: dict[str, Any] = field(default_factory=dict)
    seconds_of_loading: float = 0.0


_keeping: list[KeptModels] = []  # of each block that is being executed, innermost last


def identity_before_loading() -> dict[str, str]:
    """Of the model that is kept; empty if none is."""
    return dict(_keeping[-1].identity) if _keeping else {}


@contextmanager
def models_kept(given: Any = None) -> Iterator[KeptModels]:
    """Within the block, a model that was built by name is used again for the same name and arguments.

    given: a model that is used instead
    """
    patched_once(GET_MODEL, _kept)
    kept = KeptModels(given)
    _keeping.append(kept)
    try:
        yield kept
    finally:
        _keeping.remove(kept)
        kept.models.clear()


def _kept(original: Callable[[str], Any]) -> Callable[[str], Any]:
    def get_model(model_name: str) -> Any:
        kind = original(model_name)
        return _Kept(model_name, kind, _keeping[-1]) if _keeping else kind

    return get_model


class _Kept:
    """Stands in for a model's class: hands out the model that was built before, if there is one."""

    def __init__(self, name: str, kind: Any, kept: KeptModels) -> None:
        self._name, self._kind, self._of_block = name, kind, kept

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kind, name)
        return partial(self._made, name) if name.startswith("create_from_arg") else found

    def _made(self, how: str, *arguments: Any) -> Any:
        key = repr((self._name, how, arguments))
        models = self._of_block.models
        if key not in models:
            begun = perf_counter()
            given = self._of_block.given
            models[key] = getattr(self._kind, how)(*arguments) if given is None else given
            self._of_block.seconds_of_loading += perf_counter() - begun
        self._of_block.prepare(models[key])
        return models[key]
