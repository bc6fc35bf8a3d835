"""How often the tests of published orders are wrong: false alarms on shuffled questions, and misses on few questions.

python benchmarks/order_errors.py TASK... [--draws 400] [--seed 0]

Shuffled: 300 questions of the task, drawn and shuffled anew each time.
As published: as many questions as the row says, drawn at random.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lm_eval_leakage.harness.tasks.given_questions import questions_of
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.order_tests import LEVEL, OrderTests, order_tests
from lm_eval_leakage.results.published_orders import null_status

SHUFFLED = 300
PUBLISHED = (50, 100, 200, 400)
LEVELS = (0.01, 0.05, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for task in args.tasks:
        questions = questions_of(task)
        rng = random.Random(args.seed)
        for line in false_alarms(task, questions, args.draws, rng):
            print(line, flush=True)
        for n in PUBLISHED:
            drawn = [order_tests(rng.sample(questions, min(n, len(questions)))) for _ in range(args.draws // 4)]
            statuses = Counter(null_status(tests).status for tests in drawn)
            print(f"| {task} | as published, {n} | {statuses['written'] / len(drawn):.2f} written |", flush=True)


def false_alarms(task: str, questions: Sequence[Question], draws: int, rng: random.Random) -> list[str]:
    drawn = [
        order_tests([shuffled(question, rng) for question in rng.sample(questions, SHUFFLED)]) for _ in range(draws)
    ]
    lines = []
    for index in range(len(drawn[0].tests)):
        tests = [tests_of_draw.tests[index] for tests_of_draw in drawn if tests_of_draw.tests[index].n_questions]
        if tests:
            shares = [f"{sum(test.pvalue <= level for test in tests) / len(tests):.3f}" for level in LEVELS]
            lines.append(f"| {task} | {tests[0].name} | {len(tests)} | {' | '.join(shares)} |")
    return [*lines, f"| {task} | shuffled, called written | {draws} | {sum(map(written, drawn)) / draws:.4f} |"]


def written(tests: OrderTests) -> bool:
    return any(test.adjusted < LEVEL for test in tests.tests)


def shuffled(question: Question, rng: random.Random) -> Question:
    order = rng.sample(range(len(question.options)), len(question.options))
    options = tuple(question.options[place] for place in order)
    answer = None if question.answer is None else order.index(question.answer)
    return replace(question, id=f"{question.id}/{rng.random()}", options=options, answer=answer)


if __name__ == "__main__":
    main()
