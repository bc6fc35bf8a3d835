"""How often does an audit within a budget find a benchmark that was seen, and accuse one that was not?

    python benchmarks/budget.py --seen FOLDER --clean FOLDER [--budget 256] [--draws 40]

The folders hold audits of option orders with their control forms (`TASK_leakage_perm`, 12 orders or more) of a model:
on questions that it saw, and on others of the same kind. Nothing is asked here: audits of so many requests are drawn
from the answers, questions without a guard and orders at random. A row for each number of orders per question: how
many questions that leaves, and how often their verdict is at least `evidence`, at the level of a first look.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from lm_eval_leakage.jobs.design import ORDERS_WITHIN
from lm_eval_leakage.logs.audits import lines_of_audits
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.results.data_verdict import data_verdict
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL, FEWEST_JUDGED
from lm_eval_leakage.stats.looks import share_alone

N_FORMS = 2


def answers_in(folder: Path) -> list[OrderAnswers]:
    lines = (line for _, line in lines_of_audits(find_runs([folder], []), []) if not line.guards)
    answers = {line.question: line.orders for line in lines if line.orders is not None and line.orders.control}
    return [*answers.values()]


def fewer(question: OrderAnswers, n_orders: int, rng: random.Random) -> OrderAnswers:
    """The same question, asked in so many orders, the published one and others that were compared."""
    compared = question.compared or tuple(range(len(question.loglikelihoods)))
    kept = [0, *rng.sample(range(1, len(compared)), n_orders - 1)]
    return replace(
        question,
        loglikelihoods=tuple(question.loglikelihoods[compared[place]] for place in kept),
        right=tuple(question.right[compared[place]] for place in kept) if question.right else (),
        control=tuple(form[place] for form in question.controls for place in kept),
        compared=(),
    )


def share_found(answers: Sequence[OrderAnswers], n: int, n_orders: int, draws: int) -> float:
    n_rejected, level = 0, EVIDENCE_LEVEL * share_alone(1)
    for seed in tqdm(range(draws), leave=False):
        rng = random.Random(seed)
        audit = [fewer(question, n_orders, rng) for question in rng.sample(answers, min(n, len(answers)))]
        n_rejected += data_verdict(audit).pvalue <= level
    return n_rejected / draws


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seen", type=Path, required=True)
    parser.add_argument("--clean", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--draws", type=int, default=40)
    args = parser.parse_args()
    seen, clean = answers_in(args.seen), answers_in(args.clean)
    print(f"{len(seen)} seen and {len(clean)} other questions without a guard; {args.draws} draws\n")
    print("| orders | questions | found | accused |\n|---|---|---|---|")
    n_most = min(len(question.compared or question.loglikelihoods) for question in (*seen, *clean))
    for n_orders in (n for n in ORDERS_WITHIN if n <= n_most):
        n = args.budget // (n_orders * (1 + N_FORMS))
        if n >= FEWEST_JUDGED:
            shares = [share_found(answers, n, n_orders, args.draws) for answers in (seen, clean)]
            print(f"| {n_orders} | {n} | {shares[0]:.2f} | {shares[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
