"""What near copies do to families and to the test of option orders (docs/validity/copies.md#families-of-questions).

`sizes FILE ...` counts the families of the questions in local files (`.parquet`, `.csv`, `.jsonl`, ...), without and
with near copies. `alarms` simulates clean benchmarks of which near copies share one drawn order, and counts p-values
of at most .01: of the orders, and of their differences from a control (ten minutes on one CPU core).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lm_eval_leakage.harness.tasks.question_files import read_file
from lm_eval_leakage.questions.families import families, shared_texts
from lm_eval_leakage.questions.fields import question_if_any
from lm_eval_leakage.questions.near_copies import is_word_pairs
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL
from lm_eval_leakage.stats.order_sum import USUAL_SPREAD, order_sum, standard_scores

N_QUESTIONS, N_COPIES, N_ORDERS = 40, 4, 24
N_BENCHMARKS = 1_000
ALIKE = (0.0, 0.5, 0.9)  # correlation of the scores of two copies' orders
TREES = ("oak", "elm", "ash", "fir", "yew", "pine", "palm", "larch", "alder", "birch", "cedar", "maple")


def sizes(file: Path) -> str:
    read = (question_if_any(row) for row in read_file(file))
    start = time.process_time()
    shared = [shared_texts(question) for question in read if question is not None]
    without = [[digest for digest in digests if not is_word_pairs(digest)] for digests in shared]
    cells = [file.stem, f"{len(shared):,}"]
    for digests in (without, shared):
        members = Counter(families(digests)).most_common(3)
        cells += [f"{len(set(families(digests))):,}", ", ".join(str(size) for _, size in members)]
    return f"| {' | '.join(cells)} | {time.process_time() - start:.1f} |"


def copies(rng: np.random.Generator) -> Iterator[Question]:
    stem = f"Which one of these trees has {' '.join(rng.choice(TREES, 4))} near it"
    options = [" ".join(rng.choice(TREES, 3)) for _ in range(4)]
    for before, article, end in (("", "", "?"), ("2. ", "", "."), ("", "the ", ""), ("Q: ", "", "!")):
        yield Question("", f"{before}{stem}{end}", tuple(f"{article}{option}{end}" for option in options))


def alarms(what: str, alike: float) -> str:
    rng = np.random.default_rng(0)
    n_each, n_families, n_units = 0, 0, set()
    for _ in range(N_BENCHMARKS):
        numbers = families([shared_texts(question) for _ in range(N_QUESTIONS) for question in copies(rng)])
        common = rng.normal(size=(N_QUESTIONS, 1, 2, N_ORDERS))
        drawn = rng.normal(size=(N_QUESTIONS, N_COPIES, 2, N_ORDERS))
        values = (np.sqrt(alike) * common + np.sqrt(1 - alike) * drawn).reshape(-1, 2, N_ORDERS)
        by_control = what == "the control"
        scores = [
            standard_scores(question_scores, control if by_control else None) for question_scores, control in values
        ]
        settings = {"weigh": np.positive, "spread": USUAL_SPREAD} if by_control else {}
        defined = [question_scores for question_scores in scores if question_scores is not None]
        n_each += order_sum(defined, rng, **settings).pvalue <= EVIDENCE_LEVEL
        n_families += order_sum(defined, rng, families=numbers, **settings).pvalue <= EVIDENCE_LEVEL
        n_units.add(len(set(numbers)))
    return f"| {what} | {alike} | {n_each / N_BENCHMARKS:.4f} | {n_families / N_BENCHMARKS:.4f} | {n_units} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("sizes", "alarms"))
    parser.add_argument("files", nargs="*", type=Path)
    args = parser.parse_args()
    if args.what == "sizes":
        print(*map(sizes, args.files), sep="\n")
        return
    for what in ("the orders", "the control"):
        for alike in ALIKE:
            print(alarms(what, alike), flush=True)


if __name__ == "__main__":
    main()
