"""The whole campaign: `python -m tests.faults [--small] [--seed N]`. Prints the table of docs/reliability.md.

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
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

from tests.faults import audits, commands, ranks
from tests.faults.tally import Tally, as_markdown
from tests.fuzzed_documents import documents, read_all


def simulations(tries: int, seed: int) -> Tally:
    """A third each at random, while the trainer saves a checkpoint, and at one of its writes; in an interpreter of
    its own, since here every model is a paced one."""
    tally = Tally("kill of simulate: at random, in a checkpoint, at a write")
    command = [sys.executable, "-m", "tests.lab.kills", str(tries // 3), str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for found in map(json.loads, done.stdout.splitlines()):
        tally.tries += int(found["killed"])
        tally.found(f"{found}", lost=int(not found["resumed"]), wrong=int(found["resumed"] and not found["same"]))
    return tally


def hostile_documents(tries: int, rng: random.Random) -> Tally:
    """In every way in which an audit reads them; each has half a second of CPU time per reading."""
    tally = Tally("hostile documents")
    made = documents(rng)
    for _ in range(tries):
        try:
            read_all([next(made)])
        except AssertionError as error:
            tally.found(str(error), wrong=1)
        tally.tries += 1
    return tally


def campaign(folder: Path, small: bool, seed: int) -> Iterator[Tally]:
    """small: a few tries of each attack, as the tests make them"""

    def tries(whole: int, core: int) -> int:
        return core if small else whole

    rng = random.Random(seed)
    audits.prepare()
    right = audits.undisturbed(folder / "right")
    limits = [0, 4_000, 40_000, 60_000, 200_000, 400_000, 1_000_000]
    attacks: list[Callable[[], Tally]] = [
        lambda: audits.random_kills(folder, tries(30, 2), rng, right),
        lambda: audits.aimed_kills(folder, right, tries(100, 3)),
        lambda: audits.full_disk(folder, right, limits[: tries(len(limits), 3)]),
        lambda: audits.two_at_once(folder, tries(5, 1), right),
        lambda: audits.misbehaving_models(folder, tries(60, 3), rng, right),
        lambda: ranks.changing_numbers(folder / "ranks", tries(8, 1), rng),
        lambda: commands.kills(folder / "kills", tries(40, 4), rng),
        lambda: commands.full_disk(folder / "disk", [0, 2_000, 20_000, 100_000][: tries(4, 1)]),
        lambda: commands.read_only(folder / "read_only"),
        lambda: commands.hostile_names(folder / "names", tries(1000, 3)),
        lambda: commands.damaged_files(folder / "files", tries(500, 20), rng),
        lambda: hostile_documents(tries(20_000, 100), rng),
    ]
    if not small:  # which tests/lab/test_kills.py does by itself
        attacks.append(lambda: simulations(30, seed))
    for attack in attacks:
        begun = time.monotonic()
        tally = attack()
        print(f"{tally.attack}: {tally.tries} tries, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        for note in tally.notes:
            print(f"  {note}", file=sys.stderr, flush=True)
        yield tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tallies = list(campaign(Path(folder), args.small, args.seed))
    print(as_markdown(tallies))
    print(*(note for tally in tallies for note in tally.notes), sep="\n")
    today = datetime.now(timezone.utc).date()
    print(f"\n{today}, seed {args.seed}, {os.cpu_count()} CPU cores, {sys.platform}, Python {sys.version.split()[0]}")
    sys.exit(not all(tally.held for tally in tallies))


if __name__ == "__main__":
    main()
