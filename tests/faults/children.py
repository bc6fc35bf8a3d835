"""Commands in processes of their own, forked from this one so that nothing is imported twice, and ways to end them."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import tests.forks  # noqa: F401

KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """The end of a process.

    code: the exit status, negative for a signal; seconds: until then; output: of stdout and stderr together
    """

    code: int
    seconds: float
    output: str


def child(
    run: Callable[[], object], log: Path, *, kill_after: float | None = None, size_limit: int | None = None
) -> Ended:
    """Runs `run` in a fork, with its output in `log`.

    kill_after: seconds until SIGKILL
    size_limit: bytes that a file may have, which is what a full disk does to a file: OSError in the middle of it
    """
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _be_child(run, log, size_limit)
    code = _wait(pid, start, kill_after)
    output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""  # killed before it wrote
    return Ended(code, time.monotonic() - start, output)


def _wait(pid: int, start: float, kill_after: float | None) -> int:
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if kill_after is not None and time.monotonic() - start >= kill_after:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _be_child(run: Callable[[], object], log: Path, size_limit: int | None) -> None:
    """Never returns. The exit status is what the interpreter would give."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    if size_limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_limit, resource.RLIM_INFINITY))
    code = 1
    try:
        code = _exit_code(run)
    finally:
        os._exit(code)


def _exit_code(run: Callable[[], object]) -> int:
    """Return the exit code of a process that does nothing else; a hook for exceptions may end it with another one."""
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:
        unforeseen, code = error, 130 if isinstance(error, KeyboardInterrupt) else 1
    else:
        return 0
    hook = sys.excepthook
    return _exit_code(lambda: hook(type(unforeseen), unforeseen, unforeseen.__traceback__)) or code


@contextmanager
def kill_at(owner: Any, name: str, at_call: int, *, after: bool) -> Iterator[None]:
    """Children that are forked meanwhile are killed before or after the so many-th call of `owner.name`."""
    function, calls = getattr(owner, name), count(1)

    def killer(*args: object, **kwargs: object) -> object:
        is_last = next(calls) == at_call
        if is_last and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, killer)
    try:
        yield
    finally:
        setattr(owner, name, function)


def has_traceback(ended: Ended) -> bool:
    return "Traceback (most recent call last)" in ended.output
