"""Are the published orders of benchmarks random? One row per task or group of lm_eval, from its data alone.

python benchmarks/order_status.py TASK...
"""

from __future__ import annotations

import sys
import time

from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.tasks.audit_names import find_audits
from lm_eval_leakage.harness.tasks.audit_suffixes import FIRST_AUDIT
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.formatting import number, pvalue
from lm_eval_leakage.results.null_status import null_status
from lm_eval_leakage.results.published_orders import OrderTest, order_tests

HEAD = (
    "| task | questions | numbers sorted (chance), n | neighbours z | length z | right place p | last (chance), n "
    "| smallest adjusted p | status | s |"
)


def main() -> None:
    find_audits(TaskManager)
    manager = TaskManager()
    print(HEAD, "|---" * 10 + "|", sep="\n", flush=True)
    for name in sys.argv[1:]:
        try:
            print(row(name, questions(manager, name)), flush=True)
        except Exception as error:  # the hub may be out of reach, and a task's own code may raise anything
            print(f"| {name} | – | {type(error).__name__}: {str(error)[:100]} |", flush=True)


def questions(manager: TaskManager, name: str) -> list[Question]:
    tasks = manager.load([f"{name}_{FIRST_AUDIT}"])["tasks"].values()
    return [question for task in tasks if isinstance(task, LeakageTask) for question in task.benchmark()]


def row(name: str, asked: list[Question]) -> str:
    began = time.perf_counter()
    found = order_tests(asked)
    seconds = time.perf_counter() - began
    if not found.tests:
        return f"| {name} | {found.n_questions} | | | | | | | {null_status(found).status} | {seconds:.1f} |"
    numbers, alike, lengths, right, last = found.tests
    smallest = min((test.adjusted for test in found.tests if test.n_questions), default=float("nan"))
    cells = [share(numbers), number(alike.observed, 1), number(lengths.observed, 1), pvalue(right.pvalue), share(last)]
    status = null_status(found).status
    return f"| {name} | {found.n_questions:,} | {' | '.join(cells)} | {pvalue(smallest)} | {status} | {seconds:.1f} |"


def share(test: OrderTest) -> str:
    if not test.n_questions:
        return "–"
    return f"{number(test.observed, 2)} ({number(test.expected, 2)}), {test.n_questions:,}"


if __name__ == "__main__":
    main()
