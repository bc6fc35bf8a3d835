"""The conditions of `--fail-if`, such as `verdict>=evidence` or `evidence_pvalue_adjusted<0.01`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.results.column_registry import PVALUE_ALL, PVALUE_UNGUARDED
from lm_eval_leakage.results.data_verdict import CANNOT_TELL, WORDS
from lm_eval_leakage.results.flat import flat_row
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.rows import SUBJECT_LEVEL
from lm_eval_leakage.results.suspicion import benchmarks
from lm_eval_leakage.results.verdict_columns import VERDICT

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FORM = re.compile(r"\s*(?P<column>[^<>\s]+)\s*(?P<comparison><=|>=|<|>)\s*(?P<bound>[^<>=\s][^<>=]*?)\s*")
OF_FLAGS = (PVALUE_ALL.key, PVALUE_UNGUARDED.key)


def check_complete(problems: Iterable[Problem]) -> None:
    """Raises ValueError if questions that were asked are missing, since the rest says nothing about them."""
    missing = [problem for problem in problems if problem.incomplete]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise ValueError(f"--fail-if does not judge incomplete logs: {missing[0]}{more}")


@dataclass(frozen=True)
class Condition:
    """bound: a number; for the verdict, the place of its word in WORDS, the most suspicious one last"""

    column: str
    comparison: str
    bound: float

    @staticmethod
    def of(text: str) -> Condition:
        """Raises ValueError if `text` is not a comparison of a column with a number, or of the verdict with a word."""
        match = FORM.fullmatch(text)
        try:
            if match:
                bound = (_place_of if match["column"] == VERDICT.key else float)(match["bound"])
                return Condition(match["column"], match["comparison"], bound)
        except ValueError:
            pass
        words = ", ".join(word.replace(" ", "_") for word in WORDS)
        raise ValueError(
            f"the condition is {text!r}; write a column, <, <=, > or >=, and a number: evidence_pvalue_adjusted<0.01; "
            f"or {VERDICT.key} with one of {words}, from the least to the most suspicious: {VERDICT.key}>=evidence"
        )

    def reservations(self, rows: Iterable[Row]) -> list[str]:
        """A sentence for each reason why the condition says less than it seems to."""
        if self.column in OF_FLAGS:
            return [
                f"{self.column} tests a null hypothesis that does not hold for options in written orders, which "
                f"models prefer without having seen them; use {VERDICT.key}>=evidence instead"
            ]
        if self.column != VERDICT.key or self.comparison.startswith("<"):
            return []
        names = [f"{row.model}, {row.task}" for row in benchmarks(rows) if row.verdict.word == CANNOT_TELL]
        return [f"{name}: not judged, since the verdict cannot be told" for name in dict.fromkeys(names)]

    def met_by(self, rows: Iterable[Row]) -> list[str]:
        """A sentence for each group, and task outside groups, that meets it. Their parts are not judged: with many
        parts, some would meet it by chance.

        Raises ValueError if no such row has the column, or if every verdict is that it cannot be told and none meets
        the condition, since a check that cannot fail would go unnoticed.
        """
        whole = [(row, flat_row(row)) for row in rows if row.level != SUBJECT_LEVEL and not row.group]
        known = [(row, value) for row, flat in whole if (value := self._number(flat)) is not None]
        if not known:
            columns = sorted({name for _, flat in whole for name, value in flat.items() if isinstance(value, float)})
            raise ValueError(
                f"the condition is on {self.column!r}, which no row has; the columns here: {', '.join(columns)}"
            )
        met = [self._told(row, value) for row, value in known if COMPARISONS[self.comparison](value, self.bound)]
        if not met and self.column == VERDICT.key and all(row.verdict.word == CANNOT_TELL for row, _ in known):
            first = known[0][0]
            raise ValueError(
                f"the condition on {VERDICT.key} judges nothing, since every verdict is {CANNOT_TELL!r}: "
                f"{first.model}, {first.task}: {first.verdict.reason}"
            )
        return list(dict.fromkeys(met))  # a verdict is the same for each metric

    def _number(self, flat: Mapping[str, object]) -> float | None:
        value = flat.get(self.column)
        if self.column == VERDICT.key:
            return float(WORDS.index(str(value))) if value else None
        return float(value) if isinstance(value, (int, float)) else None

    def _told(self, row: Row, value: float) -> str:
        if self.column == VERDICT.key:
            bound = WORDS[int(self.bound)]
            return f"{row.model}, {row.task}: {row.verdict.sentence}, which is {self.comparison} {bound!r}"
        return f"{row.model}, {row.task}: {self.column} is {value:.4g}, which is {self.comparison} {self.bound:g}"


def _place_of(word: str) -> float:
    """Of `strong evidence`, "strong evidence" in quotation marks, or strong_evidence. Raises ValueError."""
    quote = word[0] if word[0] in "\"'" and word[-1] == word[0] else ""
    return float(WORDS.index(word.removeprefix(quote).removesuffix(quote).replace("_", " ")))
