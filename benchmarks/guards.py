"""How much of a test's false-positive rate the guards explain: the flagged share by guard, from a samples log.

    python benchmarks/guards.py runs/.../samples_mmlu_leakage_perm_*.jsonl

Run the audit on a model that cannot have seen the benchmark; all flags are then false positives. A question may have
several guards. They are recomputed from the logged questions, so that a changed guard needs no new run.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from lm_eval_leakage import question_from_doc
from lm_eval_leakage.questions.guards import guards_of, shared_option_sets


def rate(lines: Sequence[dict]) -> str:
    flags = [line["flagged"] for line in lines]
    if not flags:
        return "0 | | |"
    share = sum(flags) / len(flags)
    error = math.sqrt(share * (1 - share) / max(1, len(flags) - 1))
    return f"{len(flags)} | {share:.3f} ± {error:.3f} | {sum(line['null_rate'] for line in lines) / len(flags):.3f} |"


def table(lines: list[dict]) -> str:
    questions = [question_from_doc(line["doc"]) for line in lines]
    templates = shared_option_sets(questions)
    found = [guards_of(question, templates) for question in questions]

    def having(keep: Callable[[tuple[str, ...]], bool]) -> str:
        return rate([line for line, guards in zip(lines, found, strict=True) if keep(guards)])

    rows = [f"| all | {rate(lines)}", f"| no guard | {having(lambda guards: not guards)}"]
    rows.append(f"| any guard | {having(bool)}")
    names = sorted({guard for guards in found for guard in guards})
    rows += [f"| {name} | {having(lambda guards, name=name: name in guards)}" for name in names]
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
