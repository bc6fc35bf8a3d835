"""The conditions of `--fail-on`, such as `verdict>=evidence` or `evidence_pvalue_adjusted<0.01`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.columns import PVALUE_ALL, PVALUE_UNGUARDED, VERDICT
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, flat_row
from lm_eval_leakage.results.tables import benchmarks
from lm_eval_leakage.results.verdict import VerdictWord
from lm_eval_leakage.results.verdict_words import sentence_of

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FORM = re.compile(r"\s*(?P<column>[^<>\s]+)\s*(?P<comparison><=|>=|<|>)\s*(?P<bound>[^<>=\s][^<>=]*?)\s*")
QUOTED = re.compile(r"""(["'])(.*)\1""")
OF_FLAGS = (PVALUE_ALL.key, PVALUE_UNGUARDED.key)


def check_complete(problems: Iterable[Problem]) -> None:
    """Raises ValueError if questions that were asked are missing, since the rest says nothing about them."""
    missing = [problem for problem in problems if problem.incomplete]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise ValueError(f"--fail-on does not judge incomplete logs and audits: {missing[0]}{more}")


@dataclass(frozen=True)
class Condition:
    """A condition that a row meets or not.

    bound: a number; for the verdict, the place of its word in `VerdictWord`
    """

    column: str
    comparison: str
    bound: float

    @staticmethod
    def of(text: str) -> Condition:
        """Return the condition of a comparison of a column with a number, of the verdict with a word, or of a word
        alone, from which on verdicts meet it. Raises ValueError for any other text."""
        match = FORM.fullmatch(text)
        try:
            if match is None:
                return Condition(VERDICT.key, ">=", _place_of(text.strip()))
            bound = (_place_of if match["column"] == VERDICT.key else float)(match["bound"])
            return Condition(match["column"], match["comparison"], bound)
        except ValueError:
            words = ", ".join(word.replace(" ", "_") for word in VerdictWord)
            raise ValueError(
                f"the condition is {text!r}; write a column, <, <=, > or >=, and a number: "
                f"evidence_pvalue_adjusted<0.01; or one of {words}, from the least to the most suspicious, alone "
                f"(evidence) or compared: {VERDICT.key}>=evidence"
            ) from None

    @property
    def reservation(self) -> str:
        """Return why the condition says less than it seems to; empty if it does not."""
        if self.column not in OF_FLAGS:
            return ""
        return (
            f"{self.column} tests a null hypothesis that does not hold for options in written orders, which models "
            f"prefer without having seen them; use {VERDICT.key}>=evidence instead"
        )

    @property
    def _needs_a_verdict(self) -> bool:
        return self.column == VERDICT.key and self.comparison[0] == ">"

    def unjudged_of(self, rows: Sequence[Row]) -> list[str]:
        """Return a sentence for each audited benchmark that the condition cannot judge: it has no verdict, or none of
        its rows has the column."""
        measured = {(row.model, row.name) for row in rows if self._number(flat_row(row)) is not None}
        sentences = []
        for row in benchmarks(rows):
            reason = ""
            if row.verdict.word and (row.model, row.name) not in measured:
                reason = f"it has no {self.column}"
            elif self._needs_a_verdict and row.verdict.word == VerdictWord.NO_VERDICT:
                reason = f"it has {sentence_of(row.verdict)}"
            if reason:
                sentences.append(f"{row.model}, {row.task}: not judged, since {reason}")
        return list(dict.fromkeys(sentences))

    def met_by(self, rows: Iterable[Row]) -> list[str]:
        """Return a sentence for each group, and task outside groups, that meets it. Their parts are not judged: with
        many parts, some would meet it by chance.

        Raises ValueError if no such row has the column: a check that cannot fail would go unnoticed. So would one of
        benchmarks that `unjudged_of` names.
        """
        whole = [(row, flat_row(row)) for row in rows if row.level != SUBJECT_LEVEL and not row.group]
        measured = []
        for row, flat in whole:
            value = self._number(flat)
            if value is not None:
                measured.append((row, value))
        if not measured:
            columns = sorted({name for _, flat in whole for name, value in flat.items() if isinstance(value, float)})
            raise ValueError(
                f"the condition is on {self.column!r}, which no row has; the columns here: {', '.join(columns)}"
            )
        met = []
        for row, value in measured:
            if COMPARISONS[self.comparison](value, self.bound):
                is_word = self.column == VERDICT.key
                finding = sentence_of(row.verdict) if is_word else f"{self.column} is {value:.4g}"
                bound = repr(str([*VerdictWord][int(self.bound)])) if is_word else f"{self.bound:g}"
                met.append(f"{row.model}, {row.task}: {finding}, which is {self.comparison} {bound}")
        return list(dict.fromkeys(met))  # a verdict is the same for each metric

    def _number(self, flat: Mapping[str, object]) -> float | None:
        value = flat.get(self.column)
        if self.column == VERDICT.key:
            return float(VerdictWord(str(value)).place) if value else None
        return float(value) if isinstance(value, (int, float)) else None


def _place_of(word: str) -> float:
    """Return the place of a word, written as `strong evidence`, "strong evidence" in quotation marks, or
    strong_evidence. Raises ValueError."""
    quoted = QUOTED.fullmatch(word)
    return float(VerdictWord((quoted[2] if quoted else word).replace("_", " ")).place)
