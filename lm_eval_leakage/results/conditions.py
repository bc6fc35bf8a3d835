"""The conditions of `--fail-if`, such as `pvalue<0.01`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.results.flat import flat_row
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.rows import GROUP_LEVEL, TASK_LEVEL

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FORM = re.compile(r"\s*(?P<column>[^<>\s]+)\s*(?P<comparison><=|>=|<|>)\s*(?P<bound>\S+)\s*")


def check_complete(problems: Iterable[Problem]) -> None:
    """Raises ValueError if questions that were asked are missing, since the rest says nothing about them."""
    missing = [problem for problem in problems if problem.incomplete]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise ValueError(f"--fail-if does not judge incomplete logs: {missing[0]}{more}")


@dataclass(frozen=True)
class Condition:
    column: str
    comparison: str
    bound: float

    @staticmethod
    def of(text: str) -> Condition:
        """Raises ValueError if `text` is not a comparison of a column with a number."""
        match = FORM.fullmatch(text)
        try:
            if match:
                return Condition(match["column"], match["comparison"], float(match["bound"]))
        except ValueError:
            pass
        raise ValueError(f"the condition is {text!r}; write a column, <, <=, > or >=, and a number: pvalue<0.01")

    def met_by(self, rows: Iterable[Row]) -> list[str]:
        """A sentence for each group, and task outside groups, that meets it. Their parts are not judged: with many
        parts, some would meet it by chance.

        Raises ValueError if no such row has the column, since a check that cannot fail would go unnoticed.
        """
        whole = [(row, flat_row(row)) for row in rows if row.level in (GROUP_LEVEL, TASK_LEVEL) and not row.group]
        known = [(row, flat[self.column]) for row, flat in whole if isinstance(flat.get(self.column), (int, float))]
        if not known:
            columns = sorted({name for _, flat in whole for name, value in flat.items() if isinstance(value, float)})
            raise ValueError(
                f"the condition is on {self.column!r}, which no row has; the columns here: {', '.join(columns)}"
            )
        return [
            f"{row.model}, {row.task}: {self.column} is {value:.4g}, which is {self.comparison} {self.bound:g}"
            for row, value in known
            if isinstance(value, (int, float)) and COMPARISONS[self.comparison](value, self.bound)
        ]
