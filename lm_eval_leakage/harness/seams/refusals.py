"""Ends a run of lm_eval in one sentence, with exit code 2 and without a traceback: sets `sys.excepthook`.

`lm_eval run` catches no exceptions of an evaluation, so what a task raises reaches the interpreter; exiting the
process ourselves would hide the exception from code that called `simple_evaluate`. A command line of lm_eval that
prints errors meant for users without a traceback would replace this. `sys.excepthook` is documented for this purpose;
where something else has set it before us, that is called for errors that nobody foresaw, and prints them.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.texts import in_one_sentence

ENDS_IN_SENTENCES = "_ends_in_sentences_of_lm_eval_leakage"
REFUSED, INTERRUPTED = 2, 130  # exit codes; 1 is that of a condition that was met


class Refusal(ValueError):
    """A run whose results would be wrong or lost; the message says why, and what to do."""


def hide_tracebacks() -> None:
    """Make errors and Ctrl-C end the interpreter in one sentence, with an exit code that no condition has."""
    before = sys.excepthook
    if hasattr(before, ENDS_IN_SENTENCES):
        return

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
            raise SystemExit(INTERRUPTED)
        if isinstance(error, Refusal):
            print(f"error: {error}", file=sys.stderr)
        elif before is sys.__excepthook__:
            print(f"error: {unforeseen(error)}", file=sys.stderr)
        else:
            before(kind, error, trace)
        raise SystemExit(REFUSED)

    setattr(report, ENDS_IN_SENTENCES, True)
    sys.excepthook = report


def unforeseen(error: BaseException) -> str:
    """Return an error of a backend, a server, a task or this package as a sentence, with the file of its traceback."""
    sentence = in_one_sentence(error)
    file = Path(tempfile.gettempdir()) / f"lm_eval_leakage_traceback_{uuid4().hex[:12]}.txt"
    text = "".join(traceback.format_exception(error))
    try:
        atomic_write(file, text)
    except OSError:  # then the terminal is the only place left
        return f"{text}{sentence}"
    return f"{sentence} (traceback: {file})"
