"""Mutation testing: which small changes to statistics, joining and scoring would no test notice?

    make mutants                        (every mutant that has no result yet, and those that survived)
    make mutants SAMPLE=30              (at most 30 per module, drawn with a fixed seed)
    .venv/bin/mutmut show NAME          (what a mutant changes)

Mutants are made by mutmut; the modules and tests are listed under `tool.mutmut` in pyproject.toml. Results stay in
`mutants/`, so that an interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mutmut.configuration import config
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name
from scipy.stats import binomtest

CAUGHT = ("killed", "timeout", "segfault", "suspicious")  # a run that differs from the clean one in any way
# One thread per process, as in the tests; the same examples of hypothesis and the same order of tests each time.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CI": "1", "PYTHONHASHSEED": "0"}


def mutants_of(file: Path) -> list[str]:
    made = mutate_file_contents(str(file), file.read_text(encoding="utf-8")).mutant_names
    return [get_mutant_name(file, name) for name in made]


def drawn(names: Sequence[str], at_most: int | None, *, rng: random.Random) -> list[str]:
    return sorted(names) if at_most is None or len(names) <= at_most else sorted(rng.sample(sorted(names), at_most))


def statuses(file: Path) -> dict[str, str]:
    """Results of the mutants that were run; empty before the first run."""
    meta = Path("mutants") / f"{file}.meta"
    if not meta.exists():
        return {}
    codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    return {name: status_by_exit_code[code] for name, code in codes.items() if code is not None}


def row(name: str, n_mutants: int, survivors: Sequence[str]) -> str:
    """Share of the tried mutants that a test caught, with Wilson's interval if only a sample was tried."""
    caught = sum(status in CAUGHT for status in survivors)
    if not survivors:
        return f"| {name} | {n_mutants} | 0 | | |"
    ends = binomtest(caught, len(survivors)).proportion_ci(method="wilson")
    interval = "" if len(survivors) == n_mutants else f"{ends.low:.0%} to {ends.high:.0%}"
    return f"| {name} | {n_mutants} | {len(survivors)} | {caught / len(survivors):.0%} | {interval} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-most", type=int, help="mutants per module (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="modules whose path contains this, such as stats/order_sum")
    parser.add_argument("--report", action="store_true", help="only print the results so far")
    options = parser.parse_args()
    files = sorted({file for pattern in config().only_mutate for file in Path().glob(pattern)})
    files = [file for file in files if options.only in str(file)]
    made = {file: mutants_of(file) for file in files}
    statements = {
        file: drawn(names, options.at_most, rng=random.Random(f"{options.seed}/{file}"))
        for file, names in made.items()
    }
    before = {file: statuses(file) for file in files}
    left = [name for file in files for name in statements[file] if before[file].get(name) not in CAUGHT]
    if left and not options.report:
        os.nice(10)
        mutmut = Path(sys.executable).with_name("mutmut")
        subprocess.run([mutmut, "run", *left], env=os.environ | ENVIRONMENT, check=True)
    print("| module | mutants | tried | caught | 95 % interval |\n|---|---|---|---|---|")
    alive = []
    for file in files:
        statuses_before = statuses(file)
        tried = {name: statuses_before[name] for name in statements[file] if name in statuses_before}
        print(row("/".join(file.parts[1:]), len(made[file]), list(tried.values())))
        alive += [f"{name}: {status}" for name, status in tried.items() if status not in CAUGHT]
    print("\nNot caught:", *alive, sep="\n")


if __name__ == "__main__":
    main()
