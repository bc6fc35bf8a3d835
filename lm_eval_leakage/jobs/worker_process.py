"""A worker as a process: `python -m lm_eval_leakage.jobs.worker_process FOLDER MODEL WORKER [UNIT ...]`.

Without units on the command line it reads them from stdin, one id per line, until stdin ends. For each it writes the
attempt to stdout as one line of JSON; everything else goes to the unit's log or to stderr. If stdin ends during a
unit, whoever handed it out has died: then the process ends itself and its children, so that a restarted campaign
finds nobody at work.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.plan import Unit
from lm_eval_leakage.jobs.unit_worker import only_for_us

BAR_SECONDS = "10"  # between two states of a progress bar in a log
END_OF_STDIN = ""  # in place of a line: stdin has ended


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model")
    parser.add_argument("worker")
    parser.add_argument("units", nargs="*", type=Unit.of_id)
    args = parser.parse_args(arguments)
    os.environ.setdefault("TQDM_MININTERVAL", BAR_SECONDS)
    with only_for_us() as answers:
        handed = None if args.units else _Handed(sys.stdin)
        work(args.folder, args.model, args.worker, handed or args.units, answers)


def work(folder: Path, model: str, worker: str, units: Iterable[Unit], answers: TextIO) -> None:
    """Runs the units, and writes each attempt to `answers`."""
    from lm_eval_leakage.jobs.unit_worker import UnitWorker  # seconds: imports torch and lm_eval

    campaign = CampaignFolder(folder)
    with UnitWorker(campaign.plan, model, campaign, worker) as own:
        for unit in units:
            answers.write(f"{own.run(unit).as_line}\n")
            answers.flush()


class _Handed:
    """Units from a stream, read by a thread that notices its end at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lines = stream, queue.Queue[str]()
        self._n_read = self._n_done = 0
        threading.Thread(target=self._read, daemon=True).start()

    def __iter__(self) -> Iterator[Unit]:
        while line := self._lines.get():
            yield Unit.of_id(line)
            self._n_done += 1

    def _read(self) -> None:
        for line in self._stream:
            self._n_read += 1
            self._lines.put(line.strip())
        if self._n_done < self._n_read:
            _end_at_once()
        self._lines.put(END_OF_STDIN)


def _end_at_once() -> None:
    """With the children, such as the processes of an engine, if this process leads its group."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
