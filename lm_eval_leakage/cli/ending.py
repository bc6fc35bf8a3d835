"""Ends commands: with their own exit code, or with a sentence and exit code 2, whatever error was raised.

The traceback of an error that nobody foresaw is in a file that the sentence names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TextIO

from lm_eval_leakage.cli.output import RED, mute, warn
from lm_eval_leakage.harness.seams.refusals import INTERRUPTED, REFUSED, Refusal, unforeseen

CONDITION_MET = 1
UNHEARD = 141  # 128 + SIGPIPE: whoever read the output has closed the pipe


def refuse(reason: object) -> NoReturn:
    """Exit with a sentence about what the user has to fix."""
    warn(reason, RED)
    sys.exit(REFUSED)


def end_in_words(command: Callable[[], None], *, refusals: tuple[type[Exception], ...] = (Refusal,)) -> None:
    """Run a command; every error is printed as one sentence and ends with exit code 2.

    refusals: errors whose text is meant for the user, in addition to OSError
    """
    sys.stdout, sys.stderr = _open(sys.stdout), _open(sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[attr-defined]
    try:
        try:
            command()
        finally:
            sys.stdout.flush()  # here, since an error while the interpreter exits cannot be caught
    except BrokenPipeError:
        mute(sys.stdout)
        sys.exit(UNHEARD)
    except KeyboardInterrupt:
        warn("interrupted")
        sys.exit(INTERRUPTED)
    except OSError as error:
        refuse(os_error_in_words(error))
    except SystemExit as end:  # lm_eval and libraries exit with texts, which Python turns into exit code 1
        if isinstance(end.code, str):
            refuse(end.code)
        raise
    except refusals as error:
        refuse(str(error) or repr(error))
    except Exception as error:  # a backend, a server or a task may raise anything
        refuse(unforeseen(error))


def _open(stream: TextIO | None) -> TextIO:
    """Return the stream, or one to nowhere if whoever started the command has closed it (`>&-`)."""
    return Path(os.devnull).open("w", encoding="utf-8") if stream is None else stream


def os_error_in_words(error: OSError) -> str:
    """Return the error as a sentence, with the file and the reason if the error has them."""
    address = getattr(getattr(error, "request", None), "url", None)  # of an error that `requests` raises
    if address is not None and getattr(error, "response", None) is None:
        reason = str(error).rpartition(": ")[2].rstrip("'\")>")  # the innermost, as `requests` nests them
        return f"{address} cannot be reached ({reason}); start the server, or correct base_url"
    if error.filename is None or error.strerror is None:
        return " ".join(str(error).split()) or repr(error)
    return f"cannot use {error.filename} ({error.strerror}); choose another path, or make this one accessible"
