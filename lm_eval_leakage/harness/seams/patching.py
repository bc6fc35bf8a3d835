"""Sets sys.excepthook, so that errors end a run of lm_eval in one sentence, with exit code 2 and without a traceback.

`lm_eval run` catches no exceptions of an evaluation, so what a task raises reaches the interpreter; exiting the
process ourselves would hide the exception from code that called `simple_evaluate`. A command line of lm_eval that
prints errors meant for users without a traceback would replace this. `sys.excepthook` is documented for this purpose;
where something else has set it before us, that is called for errors that nobody foresaw, and prints them.

Applies patches to lm_eval: each once, only if its target is as the table describes it, else with a message.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.seams.table import KNOWN_VERSION, SEAMS, Seam
from lm_eval_leakage.texts import in_one_sentence

ENDS_IN_SENTENCES = "_ends_in_sentences_of_lm_eval_leakage"
REFUSED, INTERRUPTED = 2, 130  # exit codes; 1 is that of a condition that was met


class Refusal(ValueError):
    """A run whose results would be wrong or lost; the message says why, and what to do."""


def hide_tracebacks() -> None:
    """Makes errors and Ctrl-C end the interpreter in one sentence, with an exit code that no condition has."""
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
    """An error of a backend, a server, a task or this package as a sentence, with the file that has its traceback."""
    told = in_one_sentence(error)
    file = Path(tempfile.gettempdir()) / f"lm_eval_leakage_traceback_{uuid4().hex[:12]}.txt"
    text = "".join(traceback.format_exception(error))
    try:
        atomic_write(file, text)
    except OSError:  # then the terminal is the only place left
        return f"{text}{told}"
    return f"{told} (traceback: {file})"


logger = logging.getLogger(__name__)

PATCHED = "_patched_by_lm_eval_leakage"


class UnsupportedHarness(Refusal):
    """The installed lm_eval lacks something that leakage tasks need."""


def patched_once(target: str, wrap: Callable[[Any], Any], owner: Any = None) -> bool:
    """Replaces a function of lm_eval by `wrap(function)`, unless that was done before. Returns whether it is replaced
    now; if not, logs what is lost or raises UnsupportedHarness, according to the table.

    owner: the object whose attribute the function is, if the caller already has it
    """
    seam = seam_of(target)
    try:
        owner = _owner_of(target) if owner is None else owner
        original = getattr(owner, seam.attribute)
    except (ImportError, AttributeError) as error:
        return report_missing(seam, str(error))
    if hasattr(original, PATCHED):
        return True
    if difference := difference_of(original, seam):
        return report_missing(seam, difference)
    replacement = functools.wraps(original)(wrap(original))
    setattr(replacement, PATCHED, True)
    setattr(owner, seam.attribute, replacement)
    return True


def is_as_known(target: str) -> bool:
    """Whether an object of lm_eval is as the table says; if not, logs or raises as in `patched_once`."""
    return found(target) is not None


def found(target: str) -> Any:
    """The object itself if it is as the table says, else None, with a log message or UnsupportedHarness."""
    seam = seam_of(target)
    try:
        there = getattr(_owner_of(target), seam.attribute)
    except (ImportError, AttributeError) as error:
        report_missing(seam, str(error))
        return None
    if difference := difference_of(there, seam):
        report_missing(seam, difference)
        return None
    return there


def report_missing(seam: Seam, difference: str) -> bool:
    """Logs what the user loses and returns False; raises UnsupportedHarness if leakage tasks need what is missing."""
    try:
        installed = version("lm_eval")
    except PackageNotFoundError:
        installed = "(of unknown version)"
    sentence = (
        f"{seam.without}: the lm_eval here ({installed}) differs from the one that lm_eval_leakage supports "
        f"({KNOWN_VERSION}): {difference}; install lm_eval {KNOWN_VERSION} or a newer lm_eval_leakage"
    )
    if seam.refuses:
        raise UnsupportedHarness(sentence)
    logger.warning("%s", sentence)
    return False


@functools.cache
def seam_of(target: str) -> Seam:
    return next(seam for seam in SEAMS if seam.target == target)


def _owner_of(target: str) -> Any:
    module, _, path = target.partition(":")
    owner: Any = import_module(module)
    for name in path.split(".")[:-1]:
        owner = getattr(owner, name)
    return owner


def difference_of(there: Any, seam: Seam) -> str:
    """What the function lacks compared with the table, in words; empty if nothing. Wrappers by other packages are
    unwrapped first."""
    there = there.fget if isinstance(there, property) else inspect.unwrap(there)
    if there is object.__init__:
        return f"{seam.target} does not exist"
    known = inspect.signature(there).parameters if seam.parameters else {}
    takes_anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    if missing := [name for name in seam.parameters if name not in known and not takes_anything]:
        return f"{seam.target} has no parameter {', '.join(missing)}"
    code = getattr(there, "__code__", None)
    if code is not None and str(there.__module__).startswith("lm_eval."):
        named = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
        if missing := [name for name in seam.names if name not in named]:
            return f"{seam.target} does not use {', '.join(missing)}"
    return ""
