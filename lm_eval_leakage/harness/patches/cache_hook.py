"""Reports a backend's answers as they come, through the hook by which lm_eval fills its response cache.

lm_eval 0.4.13 has no callback for answers; a callback per response would replace this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from lm_eval_leakage.harness.patches.patching import is_as_known

HOOK = "lm_eval.api.model:CacheHook.add_partial"
Report = Callable[[str, Any, Any], None]  # takes the method, the arguments of the request, and the response
Answers = Sequence[tuple[float, bool]]
# Takes a call's requests, the places of some of them, and their answers; returns False if it does not know the call.
ReportTogether = Callable[[Sequence[Any], Sequence[int], Answers], bool]


@cache
def hook_is_known() -> bool:
    """Whether this lm_eval has the hook; otherwise the log says so, once."""
    return is_as_known(HOOK)


@contextmanager
def answers_reported(
    model: Any, report: Report, to_cache: Callable[[str], bool], report_together: ReportTogether = lambda *_: False
) -> Iterator[None]:
    """Calls `report` with every response of the model within the `with` block, except for those that a model of ours
    reports together. With another lm_eval, responses are known only when a call returns.

    to_cache: whether responses of a method are also passed to the run's own cache
    """
    before = getattr(model, "cache_hook", None)
    if before is None or not hasattr(model, "set_cache_hook") or not hook_is_known():
        yield
        return
    model.set_cache_hook(_reporting(before, report, to_cache, report_together))
    try:
        yield
    finally:
        model.set_cache_hook(before)


def report_answers(hook: Any, requests: Sequence[Any], places: Sequence[int], answers: Answers) -> None:
    """Reports log-likelihoods of some of a call's requests, at `places`. The hook of the harness wants the texts of
    each, which may have to be rendered for it; ours knows the requests of the call."""
    together = getattr(hook, "add_together", None)
    if together is None or not together(requests, places, answers):
        for place, answer in zip(places, answers, strict=True):
            hook.add_partial("loglikelihood", requests[place].args, answer)


def _reporting(before: Any, report: Report, to_cache: Callable[[str], bool], report_together: ReportTogether) -> Any:
    from lm_eval.api.model import CacheHook

    class Reporting(CacheHook):  # type: ignore[misc]
        def add_partial(self, attr: str, req: Any, res: Any) -> None:
            if to_cache(attr):
                before.add_partial(attr, req, res)
            report(attr, req, res)

        def add_together(self, requests: Sequence[Any], places: Sequence[int], answers: Answers) -> bool:
            """Returns False, and takes nothing, if the answers have to be reported one by one."""
            listens = type(before) is not CacheHook or before.dbdict is not None
            return not listens and report_together(requests, places, answers)

    return Reporting(None)
