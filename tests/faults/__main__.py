"""The whole campaign: `python -m tests.faults [--small] [--seed N] [NAME ...]`. Prints the table of
docs/reliability/fault_injection.md.

Everything runs on this machine's CPUs with models that are made for it; nothing is fetched. Exits with 1 where
anything was lost, doubled or silently wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

from tests.faults import (  # noqa: F401
    audits,
    changes,
    commands,
    common,
    copies,
    endings,
    identity,
    naming,
    pairing,
    positions,
    ranks,
    runs,
    seals,
    servers,
    stores,
    units,
    weighed,
)
from tests.faults.tally import ATTACKS, Tally, as_markdown, attack
from tests.fuzzed_documents import documents, read_all


@attack("kill of simulate: at random, at a write", 30, 0)
def simulations(tally: Tally, _: Path, tries: int, rng: random.Random) -> None:
    """Half each at random and at one of its writes; in an interpreter of its own, since here every model is a paced
    one."""
    command = [sys.executable, "-m", "tests.lab.kills", str(tries // 2), str(rng.randrange(1000))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for simulation in map(json.loads, done.stdout.splitlines()):
        tally.tries += int(simulation["killed"])
        tally.record(
            f"{simulation}", lost=not simulation["resumed"], wrong=simulation["resumed"] and not simulation["same"]
        )


@attack("hostile documents", 20_000, 100)
def hostile_documents(tally: Tally, _: Path, tries: int, rng: random.Random) -> None:
    """Documents of hostile shapes are read in every way in which an audit reads them."""
    made = documents(rng)
    for _ in range(tries):
        try:
            read_all([next(made)])
        except AssertionError as error:
            tally.record(str(error), wrong=1)
        tally.tries += 1


def campaign(names: Iterable[str], small: bool, seed: int) -> Iterator[Tally]:
    for name in names:
        start = time.monotonic()
        try:
            tally = ATTACKS[name].tally(small, seed)
        except Exception as error:  # such as a name that the package no longer has; the other attacks still count
            tally = Tally(ATTACKS[name].words)
            tally.record(f"not carried out: {type(error).__name__}: {error}", wrong=1)
        print(f"{name}: {tally.tries} tries, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        for note in tally.notes:
            print(f"  {note}", file=sys.stderr, flush=True)
        yield tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of attacks; all by default")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in ATTACKS]:
        parser.error(f"there is no attack {', '.join(unknown)}; choose from {', '.join(ATTACKS)}")
    audits.prepare()
    with tempfile.TemporaryDirectory() as folder:
        weighed.prepare(Path(folder) / "first")
    names = args.names or [name for name, attack in ATTACKS.items() if attack.in_core or not args.small]
    tallies = list(campaign(names, args.small, args.seed))
    print(as_markdown(tallies))
    print(*(note for tally in tallies for note in tally.notes), sep="\n")
    today = datetime.now(timezone.utc).date()
    print(f"\n{today}, seed {args.seed}, {os.cpu_count()} CPU cores, {sys.platform}, Python {sys.version.split()[0]}")
    sys.exit(not all(tally.held for tally in tallies))


if __name__ == "__main__":
    main()
