"""Checks that a command can write its output, before it reads or computes anything."""

from __future__ import annotations

import argparse
import functools

from lm_eval_leakage.files import check_writable
from lm_eval_leakage.harness.patches.cli_parser import Command

WRITES_FOLDER = ("annotate", "clean")
WRITES_FILE = ("calibrate", "identify", "report", "leaderboard")


def checked(command: Command) -> Command:
    """`command`, made to raise ValueError before any work if its output cannot be written."""

    @functools.wraps(command)
    def run(args: argparse.Namespace) -> None:
        name = command.__name__
        place = getattr(args, "output_path", None)
        if place is not None and name in WRITES_FOLDER + WRITES_FILE:
            check_writable(place, folder=name in WRITES_FOLDER)
        command(args)

    return run
