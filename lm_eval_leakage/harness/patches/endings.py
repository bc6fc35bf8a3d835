"""How a run of the harness ends before its time: in a sentence where we know what to say."""

from __future__ import annotations

import sys
from types import TracebackType


class Refusal(ValueError):
    """A run that would be wrong, or would be lost; its message says why, and what to do."""


def end_in_sentences() -> None:
    """Ctrl-C and refusals of ours end the interpreter without a traceback; everything else is reported as before."""
    if getattr(sys.excepthook, "__module__", None) == __name__:
        return
    before = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
        elif isinstance(error, Refusal):
            print(f"error: {error}", file=sys.stderr)
        else:
            before(kind, error, trace)

    sys.excepthook = report
