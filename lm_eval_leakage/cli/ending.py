"""How a command ends: with its own exit code, or with one sentence and a code that says why; without a traceback for
what the user can mend."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

from lm_eval_leakage.texts import visible

CONDITION_MET, REFUSED, INTERRUPTED = 1, 2, 130
UNHEARD = 141  # as of a program that a closed pipe ends
NESTED = "a file is nested too deep to be read; JSON of lm_eval and of this package is a few levels deep"


def refuse(reason: object) -> NoReturn:
    """End with a sentence for what the user must mend."""
    note(reason)
    sys.exit(REFUSED)


def say(text: str) -> None:
    """Print; where nobody reads any more, as in `| head`, go on in silence, since the exit code still counts."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _mute(sys.stdout)


def note(text: object) -> None:
    """One line beside what is printed."""
    try:
        print(visible(str(text)), file=sys.stderr, flush=True)
    except BrokenPipeError:
        _mute(sys.stderr)


def end_in_words(command: Callable[[], None], *, refusals: tuple[type[Exception], ...] = ()) -> None:
    """Run a command.

    refusals: errors that are meant for the user, beside those of files, as their text says them
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        try:
            command()
        finally:
            sys.stdout.flush()  # here, since at the interpreter's end nothing can be caught
    except BrokenPipeError:
        _mute(sys.stdout)
        sys.exit(UNHEARD)
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(INTERRUPTED)
    except OSError as error:
        refuse(in_words(error))
    except refusals as error:
        refuse(NESTED if isinstance(error, RecursionError) else str(error) or repr(error))


def in_words(error: OSError) -> str:
    """With the file and the reason, where the error has them."""
    if error.filename is None or error.strerror is None:
        return str(error) or repr(error)
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"cannot use {' -> '.join(names)} ({error.strerror}); name another place, or make this one usable"


def _mute(stream: TextIO) -> None:
    """What is left in the stream goes nowhere, now and when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
