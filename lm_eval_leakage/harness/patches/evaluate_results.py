"""Patches EvalAcc, where lm_eval assembles the results and samples of a run, to post-process them.

Wrapping `evaluate` itself is not enough: code that imported it before the patch would still call the original. A
callback of lm_eval on finished results would replace this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval_leakage.harness.patches.patching import patched_once

ASSEMBLED = "lm_eval.evaluator_utils:EvalAcc._to_eval_results"
Finish = Callable[[dict[str, Any]], None]
_registered: list[Finish] = []
_of_next: list[Finish] = []


def on_results(finish: Finish) -> None:
    """Registers `finish`, which may modify what `evaluate` is about to return."""
    patched_once(ASSEMBLED, _finished)
    if finish not in _registered:
        _registered.append(finish)


def on_next_results(finish: Finish) -> None:
    """The same for the next results only."""
    patched_once(ASSEMBLED, _finished)
    if finish not in _of_next:
        _of_next.append(finish)


def _finished(original: Callable[..., Any]) -> Callable[..., Any]:
    def _to_eval_results(self: Any, **kwargs: Any) -> Any:
        results = original(self, **kwargs)
        for finish in [*_registered, *_of_next]:
            finish(results)
        _of_next.clear()
        return results

    return _to_eval_results
