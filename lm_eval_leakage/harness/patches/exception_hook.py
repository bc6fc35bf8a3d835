"""Sets sys.excepthook, so that a run of lm_eval that must end early ends in a sentence where we know what to say.

`lm_eval run` catches nothing around an evaluation, so that what a task raises reaches the interpreter; ending the
process ourselves would hide the exception from code that called `simple_evaluate`. A command line of lm_eval that
prints errors meant for users without a traceback would replace this. `sys.excepthook` is documented for this purpose;
the hook that was there before is called for every other exception.
"""

from __future__ import annotations

import sys
from types import TracebackType

ENDS_IN_SENTENCES = "_ends_in_sentences_of_lm_eval_leakage"


class Refusal(ValueError):
    """A run that would be wrong, or would be lost; its message says why, and what to do."""


def end_in_sentences() -> None:
    """Ctrl-C and refusals of ours end the interpreter without a traceback; everything else is reported as before."""
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
