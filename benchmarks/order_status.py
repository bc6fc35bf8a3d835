"""Are the published orders of benchmarks random? One row per task or group of lm_eval, or file of questions, from its
data alone.

python benchmarks/order_status.py TASK... > docs/published_orders.csv
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path

from lm_eval_leakage.harness.tasks.given_questions import questions_of
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.formatting import format_pvalue, number
from lm_eval_leakage.results.order_tests import OrderTest, order_tests
from lm_eval_leakage.results.published_orders import null_status

COLUMNS = (
    *("task", "questions", "numbers_sorted", "numbers_sorted_by_chance", "numbers_sorted_n", "neighbours_z"),
    *("length_z", "alphabet_z", "frequency_z", "mention_z"),
    *("right_place_p", "none_of_the_above_last", "none_of_the_above_last_by_chance", "none_of_the_above_last_n"),
    *("smallest_adjusted_p", "status"),
)


def main() -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for name in sys.argv[1:]:
        try:
            table.writerow(row(Path(name).stem, questions_of(name)))
        except Exception as error:  # the hub may be out of reach, and a task's own code may raise anything
            print(f"{name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)


def row(name: str, questions: list[Question]) -> list[str]:
    """The values of COLUMNS; empty where a test could not act."""
    tests = order_tests(questions)
    status = null_status(tests).status
    if not tests.tests:
        return [name, str(tests.n_questions), *[""] * (len(COLUMNS) - 3), status]
    numbers, *standardised, right, last = tests.tests
    smallest = min((test.adjusted for test in tests.tests if test.n_questions), default=math.nan)
    values = [*(shown(test.observed, 1) for test in standardised), shown_pvalue(right.pvalue)]
    cells = [*share(numbers), *values, *share(last), shown_pvalue(smallest)]
    return [name, str(tests.n_questions), *cells, status]


def share(test: OrderTest) -> list[str]:
    """Observed, by chance, and the number of questions on which the test could act."""
    if not test.n_questions:
        return ["", "", ""]
    return [shown(test.observed, 2), shown(test.expected, 2), str(test.n_questions)]


def shown(value: float, decimals: int) -> str:
    return "" if math.isnan(value) else number(value, decimals).replace("−", "-")


def shown_pvalue(value: float) -> str:
    return "" if math.isnan(value) else format_pvalue(value)


if __name__ == "__main__":
    main()
