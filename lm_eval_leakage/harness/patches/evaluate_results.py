"""Patches EvalAcc, where lm_eval assembles the results and samples of a run, to post-process them.

Wrapping `evaluate` itself is not enough: code that imported it before the patch would still call the original. A
callback of lm_eval on finished results would replace this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval_leakage.harness.patches.patching import patched_once


def on_results(finish: Callable[[dict[str, Any]], None]) -> None:
    """Registers `finish`, which modifies what `evaluate` is about to return."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _to_eval_results(self: Any, **kwargs: Any) -> Any:
            results = original(self, **kwargs)
            finish(results)
            return results

        return _to_eval_results

    patched_once("lm_eval.evaluator_utils:EvalAcc._to_eval_results", wrap)
