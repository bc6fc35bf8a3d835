"""Prints what commands say, in colour where a terminal has it, and ends them.

Verdict words, notes and errors have colours, but none in files and pipes, with NO_COLOR, or on a terminal that has
none.

A command ends with its own exit code, or with a sentence and exit code 2, whatever error was raised; the traceback of
one that nobody foresaw is in a file that the sentence names.

`say` prints results, `note` progress and remarks (not with --quiet), `warn` what the user must know.

Before a command reads or computes anything, it is checked that it can write its output. Before lm_eval's tasks are
indexed or a model is loaded, what the command names is checked.

Commands, options and file names are completed in a shell by a script of shtab, which runs no Python.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

import shtab
from tqdm import tqdm

from lm_eval_leakage.files import QUESTION_FILES, check_writable
from lm_eval_leakage.harness.seams.command_line import arguments_of
from lm_eval_leakage.harness.seams.refusals import INTERRUPTED, REFUSED, Refusal, unforeseen
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.questions.named_fields import fields_named
from lm_eval_leakage.texts import visible

RED, GREEN, YELLOW, DIM = "31", "32", "33", "2"
BY_SUSPICION = (DIM, GREEN, DIM, YELLOW, RED)  # of verdict words
CONDITION_MET = 1
UNHEARD = 141  # 128 + SIGPIPE: whoever read the output has closed the pipe
WRITES_FOLDER = ("annotate", "clean", "simulate")
WRITES_FILE = ("report", "leaderboard")
NAMING_TASKS = ("run", "ls", "validate", "simulate")  # commands that need lm_eval's tasks
LISTINGS = (None, "tasks", "groups", "subtasks", "tags")  # what `ls` lists
SHELLS = ("bash", "zsh", "tcsh")
FOLDERS = ("FOLDER", "DIR", "RUNS")  # metavars


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


def refuse(reason: object) -> NoReturn:
    """Exit with a sentence about what the user has to fix."""
    warn(reason, RED)
    sys.exit(REFUSED)


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
        _mute(stream)


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
        _mute(sys.stdout)
        sys.exit(UNHEARD)
    except KeyboardInterrupt:
        warn("interrupted")
        sys.exit(INTERRUPTED)
    except OSError as error:
        refuse(in_words(error))
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


def in_words(error: OSError) -> str:
    """Return the error as a sentence, with the file and the reason if the error has them."""
    address = getattr(getattr(error, "request", None), "url", None)  # of an error that `requests` raises
    if address is not None and getattr(error, "response", None) is None:
        reason = str(error).rpartition(": ")[2].rstrip("'\")>")  # the innermost, as `requests` nests them
        return f"{address} cannot be reached ({reason}); start the server, or correct base_url"
    if error.filename is None or error.strerror is None:
        return " ".join(str(error).split()) or repr(error)
    return f"cannot use {error.filename} ({error.strerror}); choose another path, or make this one accessible"


def _mute(stream: TextIO) -> None:
    """Discard what is left in the stream, now and when the interpreter exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def check_early(args: argparse.Namespace) -> None:
    """Raise ValueError, ImportError or OSError, with the remedy, for a command that cannot succeed, such as one whose
    output cannot be written."""
    place = getattr(args, "output_path", None)
    if place is not None and args.command in WRITES_FOLDER + WRITES_FILE:
        check_writable(place, folder=args.command in WRITES_FOLDER)
    if args.command in NAMING_TASKS:
        _check_named(args)


def _check_named(args: argparse.Namespace) -> None:
    """Check what a command names, its tasks above all."""
    from lm_eval_leakage.harness.model_checks import check_model
    from lm_eval_leakage.harness.preflight import parsed_args, preflight

    if args.command == "run":
        _check_run(args)
        return
    of_ls = args.command == "ls" and args.what not in LISTINGS
    if args.command == "ls" and not of_ls and args.orders:
        raise ValueError("--orders is for a task; name it, as in `lm-eval-leakage ls mmlu --orders`")
    audits = getattr(args, "audits", [FIRST_AUDIT] if of_ls and args.orders else ())
    named, models, metadata = _names(args), [], getattr(args, "metadata", None) or {}
    if args.command == "simulate":
        models = [(args.model, parsed_args(text)) for text in (args.model_args, args.reference) if text]
        check_model(args.model, audits)
    preflight(
        [name for name in named if not name.endswith(QUESTION_FILES)],
        models,
        audits=audits,
        include_path=args.include_path,
        data_files=metadata.get("data_files"),
        files=[name for name in named if name.endswith(QUESTION_FILES)],
        fields=fields_of_files(getattr(args, "fields", None), named),
    )


def fields_of_files(given: str | None, named: Sequence[str]) -> Mapping[str, str]:
    """Return which fields --fields names. Raises ValueError if it is wrong, or if no file is named."""
    if given is None:
        return {}
    if not any(name.endswith(QUESTION_FILES) for name in named):
        raise ValueError(f"--fields is {given!r}, but no file of questions is named; name one, or leave out --fields")
    return fields_named(given)


def _check_run(args: argparse.Namespace) -> None:
    """Check the options of `run`. With --config, what the file says is checked when lm_eval has read it."""
    from lm_eval_leakage.harness.preflight import check_run_options

    if args.config is None:
        check_run_options(args)
    else:
        from lm_eval_leakage.jobs.plan import names_in_file

        names_in_file(Path(args.config))


def _names(args: argparse.Namespace) -> list[str]:
    """Return the tasks that a command names."""
    if args.command == "ls":
        return [] if args.what in LISTINGS else args.what.split(",")
    given = [args.tasks] if isinstance(args.tasks, str) else args.tasks or []
    return [name for task in given for name in task.split(",")]


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add an option that prints a completion script.

    The script completes the commands of `parser`, their options, choices, files and folders.
    """
    for action in arguments_of(parser):
        if action.metavar in FOLDERS or action.dest == "output_path":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar == "FILE" or action.dest == "config":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    parser.add_argument(
        "--print-completion",
        action=shtab.completion_action(),
        choices=SHELLS,
        help="print a completion script for this shell (docs/cli.md)",
    )
