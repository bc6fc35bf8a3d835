"""How much of a test's false-positive rate the guards explain: the rate of flags by guard, from a samples log.

    python benchmarks/guards.py runs/.../samples_mmlu_leakage_perm_*.jsonl

Run the audit on a model that cannot have seen the benchmark; the flags are then false ones. A question may have
several guards.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable
from pathlib import Path


def rate(lines: Iterable[dict]) -> str:
    flags = [line["flagged"] for line in lines]
    if not flags:
        return "0 | | |"
    share = sum(flags) / len(flags)
    error = math.sqrt(share * (1 - share) / max(1, len(flags) - 1))
    return f"{len(flags)} | {share:.3f} ± {error:.3f} | {sum(line['null_rate'] for line in lines) / len(flags):.3f} |"


def table(lines: list[dict]) -> str:
    guards = sorted({guard for line in lines for guard in line["guards"].split(",") if guard})
    rows = [f"| all | {rate(lines)}", f"| no guard | {rate([line for line in lines if not line['guards']])}"]
    rows.append(f"| any guard | {rate([line for line in lines if line['guards']])}")
    rows += [f"| {guard} | {rate([line for line in lines if guard in line['guards'].split(',')])}" for guard in guards]
    return "\n".join(["| questions | n | flagged | by chance |", "|---|---|---|---|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--statistic", default="max_order")
    args = parser.parse_args()
    logged = [json.loads(line) for line in args.log.read_text(encoding="utf-8").splitlines()]
    print(table([line for line in logged if line["filter"] == args.statistic and line["flagged"] is not None]))


if __name__ == "__main__":
    main()
