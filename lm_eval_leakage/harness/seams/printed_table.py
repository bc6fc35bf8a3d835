"""Changes the table that lm_eval prints, and adds lines below it: patches `make_table`, which makes its text.

Results and files are not changed. A hook of lm_eval on the printed table would replace this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval_leakage.harness.seams.patching import patched_once

TABLE = "lm_eval.utils:make_table"
Results = Mapping[str, Any]
Shorten = Callable[[Results, str], Results]
Explain = Callable[[Results, str], Sequence[str]]


def shorten_table(shorten: Shorten, explain: Explain) -> None:
    """Print tables of what `shorten` returns, with the lines of `explain` below them.

    Both get the results of a run and the name of the section that is printed: `results` or `groups`.
    """

    def wrap(original: Callable[..., str]) -> Callable[..., str]:
        def make_table(result_dict: Results, column: str = "results", sort_results: bool = False) -> str:
            shown = shorten(result_dict, column)
            return "\n".join([original(shown, column, sort_results), *explain(shown, column)])

        return make_table

    patched_once(TABLE, wrap)
