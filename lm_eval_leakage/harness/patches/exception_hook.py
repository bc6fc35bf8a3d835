"""Sets sys.excepthook, so that errors meant for users end a run of lm_eval in one sentence without a traceback.

`lm_eval run` catches no exceptions of an evaluation, so what a task raises reaches the interpreter; exiting the
process ourselves would hide the exception from code that called `simple_evaluate`. A command line of lm_eval that
prints errors meant for users without a traceback would replace this. `sys.excepthook` is documented for this purpose;
the previous hook is called for every other exception.
"""

from __future__ import annotations

import sys
from types import TracebackType

ENDS_IN_SENTENCES = "_ends_in_sentences_of_lm_eval_leakage"


class Refusal(ValueError):
    """A run whose results would be wrong or lost; the message says why, and what to do."""


def hide_tracebacks() -> None:
    """Makes Ctrl-C and our refusals end the interpreter without a traceback; reports other exceptions as before."""
    before = sys.excepthook
    if hasattr(before, ENDS_IN_SENTENCES):
        return

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
        elif isinstance(error, Refusal):
            print(f"error: {error}", file=sys.stderr)
        else:
            before(kind, error, trace)

    setattr(report, ENDS_IN_SENTENCES, True)
    sys.excepthook = report
