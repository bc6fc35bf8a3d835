"""Changes the results of a run before lm_eval prints and saves them: patches EvalAcc, which assembles them.

Wrapping `evaluate` itself is not enough: code that imported it before the patch would still call the original. A
callback of lm_eval on finished results would replace this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval_leakage.harness.seams.patching import patched_once

ASSEMBLED = "lm_eval.evaluator_utils:EvalAcc._to_eval_results"
Finish = Callable[[dict[str, Any]], None]
_registered: list[Finish] = []
_of_next: list[Finish] = []


def on_results(finish: Finish) -> None:
    """Register `finish`, which may modify what `evaluate` is about to return."""
    _register(finish, _registered)


def on_next_results(finish: Finish) -> None:
    """Register `finish` for the next results only."""
    _register(finish, _of_next)


def _register(finish: Finish, among: list[Finish]) -> None:
    patched_once(ASSEMBLED, _finished)
    if finish not in among:
        among.append(finish)


def _finished(original: Callable[..., Any]) -> Callable[..., Any]:
    def _to_eval_results(self: Any, **kwargs: Any) -> Any:
        results = original(self, **kwargs)
        once = [*_of_next]
        _of_next.clear()
        for finish in (*_registered, *once):
            finish(results)
        return results

    return _to_eval_results
