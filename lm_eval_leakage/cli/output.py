"""Prints what commands report, in colour where a terminal has it.

`say` prints results, `note` progress and remarks (not with --quiet), `warn` what the user must know. Verdict words,
notes and errors have colours, but none in files and pipes, with NO_COLOR, or on a terminal that has none."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

from tqdm import tqdm

from lm_eval_leakage.texts import visible

RED, GREEN, YELLOW, DIM = "31", "32", "33", "2"
BY_SUSPICION = (DIM, GREEN, DIM, YELLOW, RED)  # of verdict words


def in_colour(text: str, colour: str, stream: TextIO) -> str:
    """Return the text for this stream; unchanged where there are no colours."""
    return f"\x1b[{colour}m{text}\x1b[0m" if shows_colours(stream) else text


def shows_colours(stream: TextIO) -> bool:
    """Return whether the stream is a terminal with colours that the user has not turned off (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def with_coloured_verdicts(text: str, stream: TextIO) -> str:
    """Colour verdict words that fill a cell of a table or begin a sentence after a name.

    Those within sentences stay as they are.
    """
    if not shows_colours(stream):
        return text
    from lm_eval_leakage.results.verdict import VerdictWord

    colours = dict(zip(map(str, VerdictWord), BY_SUSPICION, strict=True))
    words = "|".join(sorted(VerdictWord, key=len, reverse=True))
    alone = re.compile(rf"(^|  |: )({words}|{words.upper()})(?=  |[:;,.]|$)", re.M)
    return alone.sub(lambda match: match[1] + in_colour(match[2], colours[match[2].lower()], stream), text)


class _Quiet:
    """The setting whether notes are left out in this process; set by `be_quiet` when a command begins."""

    on = False


def be_quiet(quiet: bool) -> None:
    """Leave out notes from now on, or print them again."""
    _Quiet.on = quiet


def say(text: str) -> None:
    """Print to stdout."""
    _print(with_coloured_verdicts(text, sys.stdout), sys.stdout)


def note(text: object) -> None:
    """Print one line to stderr, unless notes are left out."""
    if not _Quiet.on:
        warn(text, DIM)


def warn(text: object, colour: str = YELLOW) -> None:
    """Print one line to stderr, also if notes are left out."""
    _print(in_colour(visible(str(text)), colour, sys.stderr), sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    """Print on a line of its own, also while a progress bar stands there.

    If the reader has closed the pipe (`| head`), continue silently: the exit code still counts.
    """
    try:
        tqdm.write(text, file=stream)
        stream.flush()
    except BrokenPipeError:
        mute(stream)


def mute(stream: TextIO) -> None:
    """Discard what is left in the stream, now and when the interpreter exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
