"""How much of a test's false-positive rate the guards explain: the flagged share by guard, from a samples log.

    python benchmarks/guards.py runs/.../samples_mmlu_leakage_perm_*.jsonl

Run the audit on a model that cannot have seen the benchmark; all flags are then false positives. A question may have
several guards. They are recomputed from the logged questions, so that a changed guard needs no new run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from lm_eval_leakage import question_from_doc
from lm_eval_leakage.questions.guards import guards_of, shared_option_sets
from lm_eval_leakage.results.tabulating import markdown_of
from lm_eval_leakage.stats.pooling import mean_and_stderr


def rate(lines: Sequence[dict]) -> list[str]:
    if not lines:
        return ["0", "", ""]
    share, error = mean_and_stderr([line["flagged"] for line in lines])
    by_chance = sum(line["null_rate"] for line in lines) / len(lines)
    return [str(len(lines)), f"{share:.3f} ± {error:.3f}", f"{by_chance:.3f}"]


def table(lines: list[dict]) -> str:
    questions = [question_from_doc(line["doc"]) for line in lines]
    templates = shared_option_sets(questions)
    guards = [guards_of(question, templates) for question in questions]

    chosen: dict[str, Callable[[tuple[str, ...]], bool]] = {
        "all": lambda _: True,
        "no guard": lambda guards: not guards,
        "any guard": bool,
    }
    names = sorted({guard for guards in guards for guard in guards})
    chosen |= {name: lambda guards, name=name: name in guards for name in names}
    rows = [
        [name, *rate([line for line, guards in zip(lines, guards, strict=True) if keep(guards)])]
        for name, keep in chosen.items()
    ]
    return markdown_of([["questions", "n", "flagged", "by chance"], *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--statistic", default="max_order")
    args = parser.parse_args()
    logged = [json.loads(line) for line in args.log.read_text(encoding="utf-8").splitlines()]
    print(table([line for line in logged if line["filter"] == args.statistic and line["flagged"] is not None]))


if __name__ == "__main__":
    main()
