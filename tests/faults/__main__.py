"""The whole campaign: `python -m tests.faults [--small] [--seed N] [NAME ...]`. Prints the table of
docs/reliability.md.

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
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

from tests.faults import audits, changes, commands, ranks, runs, seals, servers, stores, units, weighed
from tests.faults.tally import Tally, as_markdown
from tests.fuzzed_documents import documents, read_all


def simulations(tries: int, seed: int) -> Tally:
    """Half each at random and at one of its writes; in an interpreter of its own, since here every model is a paced
    one."""
    tally = Tally("kill of simulate: at random, at a write")
    command = [sys.executable, "-m", "tests.lab.kills", str(tries // 2), str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for found in map(json.loads, done.stdout.splitlines()):
        tally.tries += int(found["killed"])
        tally.found(f"{found}", lost=int(not found["resumed"]), wrong=int(found["resumed"] and not found["same"]))
    return tally


def hostile_documents(tries: int, rng: random.Random) -> Tally:
    """In every way in which an audit reads them."""
    tally = Tally("hostile documents")
    made = documents(rng)
    for _ in range(tries):
        try:
            read_all([next(made)])
        except AssertionError as error:
            tally.found(str(error), wrong=1)
        tally.tries += 1
    return tally


def attacks(folder: Path, small: bool, seed: int) -> dict[str, Callable[[], Tally]]:
    """By name. small: a few tries of each, as the tests make them"""

    def tries(whole: int, core: int) -> int:
        return core if small else whole

    def place(name: str) -> Path:
        """In a folder of its own, so that an attack may put others beside it."""
        return folder / name / "place"

    rng = random.Random(seed)
    limits = [0, 4_000, 40_000, 60_000, 200_000, 400_000, 1_000_000]
    found: dict[str, Callable[[], Tally]] = {
        "random_kills": lambda: audits.random_kills(place("random_kills"), tries(30, 2), rng),
        "aimed_kills": lambda: audits.aimed_kills(place("aimed_kills"), tries(100, 3)),
        "audit_full_disk": lambda: audits.full_disk(place("audit_disk"), limits[: tries(len(limits), 3)]),
        "audit_two_at_once": lambda: audits.two_at_once(place("two_audits"), tries(5, 1)),
        "misbehaving_models": lambda: audits.misbehaving_models(place("models"), tries(60, 3), rng),
        "ranks": lambda: ranks.changing_numbers(folder / "ranks", tries(8, 1), rng),
        "command_kills": lambda: commands.kills(folder / "kills", tries(40, 4), rng),
        "command_full_disk": lambda: commands.full_disk(folder / "disk", [0, 2_000, 20_000, 100_000][: tries(4, 1)]),
        "read_only": lambda: commands.read_only(folder / "read_only"),
        "hostile_names": lambda: commands.hostile_names(folder / "names", tries(1000, 3)),
        "damaged_files": lambda: commands.damaged_files(folder / "files", tries(500, 20), rng),
        "hostile_documents": lambda: hostile_documents(tries(20_000, 100), rng),
        "equal_process_ids": lambda: seals.equal_process_ids(folder / "equal", tries(3_000, 120), rng),
        "killed_seals": lambda: seals.killed_seals(folder / "killed_seals", tries(40, 3), rng),
        "tampered_seals": lambda: seals.tampered_seals(folder / "tampered_seals", tries(500, 10), rng),
        "check_changes": lambda: changes.changes(place("check_changes"), tries(100, 1), is_campaign=False),
        "campaign_changes": lambda: changes.changes(place("campaign_changes"), tries(100, 1), is_campaign=True),
        "damaged_answers": lambda: stores.damaged_answers(place("damaged_answers"), tries(45, 2), rng),
        "tampered_campaigns": lambda: units.tampered_campaigns(place("tampered"), tries(96, 8), rng),
        "damaged_units": lambda: units.damaged_units(place("damaged_units"), tries(80, 3), rng),
        "two_campaigns": lambda: units.two_at_once(place("two_campaigns"), tries(5, 1)),
        "kills_at_renames": lambda: units.kills_at_renames(place("renames"), tries(40, 2), rng),
        "misbehaving_servers": lambda: servers.misbehaving_servers(place("servers"), tries(56, 2)),
        "out_of_memory": lambda: runs.out_of_memory(place("memory"), tries(24, 2), rng),
        "cut_runs": lambda: runs.cut_runs(place("cut_runs"), tries(40, 2), rng),
        "read_while_written": lambda: runs.read_while_written(place("while_written"), tries(40, 2)),
    }
    if not small:  # which other tests do by themselves, or which take long
        found |= {
            "simulations": lambda: simulations(30, seed),
            "older_verdicts": lambda: changes.older_verdicts(place("older_verdicts"), 12, rng),
            "slow_servers": lambda: servers.slow_servers(place("slow_servers"), 6, rng),
            "clocks": lambda: runs.clocks_set_back(place("clocks"), 12, rng),
            "long_lines": lambda: runs.long_lines(place("long_lines"), 5),
        }
    return found


def campaign(named: Iterable[tuple[str, Callable[[], Tally]]]) -> Iterator[Tally]:
    for name, attack in named:
        begun = time.monotonic()
        tally = attack()
        print(f"{name}: {tally.tries} tries, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        for note in tally.notes:
            print(f"  {note}", file=sys.stderr, flush=True)
        yield tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of attacks; all by default")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        known = attacks(Path(folder), args.small, args.seed)
        if unknown := [name for name in args.names if name not in known]:
            parser.error(f"there is no attack {', '.join(unknown)}; choose from {', '.join(known)}")
        audits.prepare()
        weighed.prepare(Path(folder) / "first")
        tallies = list(campaign((name, known[name]) for name in args.names or known))
    print(as_markdown(tallies))
    print(*(note for tally in tallies for note in tally.notes), sep="\n")
    today = datetime.now(timezone.utc).date()
    print(f"\n{today}, seed {args.seed}, {os.cpu_count()} CPU cores, {sys.platform}, Python {sys.version.split()[0]}")
    sys.exit(not all(tally.held for tally in tallies))


if __name__ == "__main__":
    main()
