"""Reports each answer of a backend as it comes, through the hook by which lm_eval fills its response cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lm_eval.api.model import CacheHook

Report = Callable[[str, Any, Any], object]  # takes the method, the arguments of the request, and the response


class Reporting(CacheHook):  # type: ignore[misc]
    """The hook by which lm_eval fills its response cache, and which reports every answer.

    before: the hook of the run's own cache
    """

    def __init__(self, before: Any, report: Report) -> None:
        super().__init__(None)
        self._before, self._report = before, report

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        self._before.add_partial(attr, req, res)
        self._report(attr, req, res)


@contextmanager
def answers_reported(model: Any, report: Report) -> Iterator[None]:
    """Call `report` with every response of the model within the `with` block."""
    before = model.cache_hook
    model.set_cache_hook(Reporting(before, report))
    try:
        yield
    finally:
        model.set_cache_hook(before)
