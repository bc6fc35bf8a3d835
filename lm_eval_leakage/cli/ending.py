"""Runs commands so that an error of any kind ends them with one sentence on stderr and exit code 2.

The sentence about an unexpected error names the file with its traceback (`harness.seams.refusals.unforeseen`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TextIO

from lm_eval_leakage.cli.output import RED, mute, warn
from lm_eval_leakage.harness.seams.refusals import INTERRUPTED, REFUSED, Refusal, unforeseen

# Exit codes next to REFUSED (2) and INTERRUPTED (130)
CONDITION_MET = 1  # a condition of --fail-on is met
PIPE_CLOSED = 141  # 128 + SIGPIPE: the program that read stdout has closed the pipe


def refuse(reason: object) -> NoReturn:
    """Print a sentence about what the user has to fix, and exit with code 2."""
    warn(reason, RED)
    sys.exit(REFUSED)


def run_or_exit(command: Callable[[], None], *, user_errors: tuple[type[Exception], ...] = (Refusal,)) -> None:
    """Run a command, and exit if it fails: an error is printed as one sentence, and the exit code is 2.

    Ctrl-C and a closed pipe have exit codes of their own. An exit of the command with a number passes through.

    user_errors: errors whose text is written for the user and printed alone; an OSError gets a sentence of its own,
        and any other error a sentence with the file of its traceback
    """
    sys.stdout, sys.stderr = _stream_or_null(sys.stdout), _stream_or_null(sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[attr-defined]  # the encoding may lack a character
    try:
        try:
            command()
        finally:
            sys.stdout.flush()  # here, since an error while the interpreter exits cannot be caught
    except BrokenPipeError:
        mute(sys.stdout)
        sys.exit(PIPE_CLOSED)
    except KeyboardInterrupt:
        warn("interrupted")
        sys.exit(INTERRUPTED)
    except OSError as error:
        refuse(os_error_in_words(error))
    except SystemExit as end:  # lm_eval and libraries exit with texts, which Python turns into exit code 1
        if isinstance(end.code, str):
            refuse(end.code)
        raise
    except user_errors as error:
        refuse(str(error) or repr(error))
    except Exception as error:  # a backend, a server or a task may raise anything
        refuse(unforeseen(error))


def _stream_or_null(stream: TextIO | None) -> TextIO:
    """Return the stream, or an open null device in place of None: Python's value of a stream that `>&-` closed."""
    return Path(os.devnull).open("w", encoding="utf-8") if stream is None else stream


def os_error_in_words(error: OSError) -> str:
    """Return a sentence about an OSError: a server that cannot be reached, a file that cannot be used and why, or else
    the error's own text."""
    address = getattr(getattr(error, "request", None), "url", None)  # `requests` raises OSErrors, too
    if address is not None and getattr(error, "response", None) is None:
        reason = str(error).rpartition(": ")[2].rstrip("'\")>")  # of the innermost error: `requests` nests their texts
        return f"{address} cannot be reached ({reason}); start the server, or correct base_url"
    if error.filename is None or error.strerror is None:
        return " ".join(str(error).split()) or repr(error)
    return f"cannot use {error.filename} ({error.strerror}); choose another path, or make this one accessible"
