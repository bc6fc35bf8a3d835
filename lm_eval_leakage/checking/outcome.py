"""What a check found: one record per model and task, with the same words and numbers on screen, on the page and as
JSON. All of them are those of the rows that `annotate` and the page have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from lm_eval_leakage.checking.check_plan import CheckPlan
from lm_eval_leakage.inference.pooling import Estimate
from lm_eval_leakage.results.column_registry import ACCURACY_UNFLAGGED, NULL_RATE
from lm_eval_leakage.results.flat import flat_row
from lm_eval_leakage.results.formatting import count, counted, interval, number, plus_minus
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.texts import as_json, visible

HTML_HEADS = ("model", "task", "verdict", "accuracy", "flagged", "why")


@dataclass(frozen=True)
class CheckedTask:
    """The verdict on one model and task. Numbers are None where they are undefined.

    verdict: one of strong evidence, evidence, none found, cannot be told; sentence: with its reasons
    pvalue: that decides, adjusted for the verdicts shown together; ratio, ratio_low: the order ratio and its bound
    n: questions of the run; n_tested: those that were tested one by one; flagged: how many of these are flagged
    expected: how many would be by chance
    accuracy: of the run, with its standard error; accuracy_unflagged: on its unflagged questions, with the ends of
        the 95 % interval
    """

    model: str
    task: str
    verdict: str
    sentence: str
    reason: str
    basis: str
    published_orders: str
    pvalue: float | None
    ratio: float | None
    ratio_low: float | None
    n: int
    n_tested: int
    flagged: int | None
    expected: float | None
    metric: str
    accuracy: float | None
    accuracy_stderr: float | None
    accuracy_unflagged: float | None
    accuracy_unflagged_low: float | None
    accuracy_unflagged_high: float | None


@dataclass(frozen=True)
class CheckOutcome:
    """What `check` returns.

    verdicts: of the models and tasks of this check; others: of earlier checks into the same folder
    page: the HTML page; None if nothing was run (dry_run)
    failed: why `fail_on` is met, a sentence per verdict
    unjudged: why `fail_on` judges nothing; empty if it does
    problems: what could not be read, joined or judged
    """

    verdicts: tuple[CheckedTask, ...]
    others: tuple[CheckedTask, ...]
    plan: CheckPlan
    page: Path | None = None
    failed: tuple[str, ...] = ()
    unjudged: str = ""
    problems: tuple[str, ...] = ()

    def as_text(self) -> str:
        """As the command prints it."""
        return "\n\n".join(map(told, self.verdicts))

    def as_json(self) -> str:
        """The records of this and of earlier checks, strict JSON."""
        return as_json({"verdicts": [asdict(one) for one in (*self.verdicts, *self.others)]}, indent=1)

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col" style="text-align:left">{head}</th>' for head in HTML_HEADS)
        rows = "".join(map(_html_row, self.verdicts))
        page = "" if self.page is None else f"<p>Details: {escape(visible(str(self.page)))}</p>"
        caption = "<caption>Verdicts of lm-eval-leakage</caption>"
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{page}"


def _html_row(one: CheckedTask) -> str:
    cells = (
        f"<strong>{escape(one.verdict)}</strong>",
        *map(_escaped, (accuracy_told(one), flags_told(one), one.reason)),
    )
    told = "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells)
    names = "".join(f'<th scope="row" style="text-align:left">{_escaped(name)}</th>' for name in (one.model, one.task))
    return f"<tr>{names}{told}</tr>"


def _escaped(text: str) -> str:
    return escape(visible(text))


def checked_task(row: Row) -> CheckedTask:
    flat, verdict = flat_row(row), row.verdict
    rate, unflagged = NULL_RATE.of(row), ACCURACY_UNFLAGGED.of(row)
    decides = verdict.pvalue if math.isnan(verdict.adjusted) else verdict.adjusted
    return CheckedTask(
        model=row.model,
        task=row.name,
        verdict=verdict.word,
        sentence=verdict.sentence,
        reason=verdict.reason,
        basis=verdict.basis,
        published_orders=verdict.orders,
        pvalue=_defined(decides),
        ratio=_defined(verdict.ratio.value),
        ratio_low=_defined(verdict.ratio.low),
        n=row.n,
        n_tested=row.n_tested,
        flagged=sum(row.flags.values()) if row.n_tested else None,
        expected=_defined(rate * row.n_tested) if row.n_tested else None,
        metric=str(flat["metric"] or ""),
        accuracy=_defined(row.accuracy.value),
        accuracy_stderr=_defined(row.accuracy.stderr),
        accuracy_unflagged=_defined(unflagged.value),
        accuracy_unflagged_low=_defined(unflagged.low),
        accuracy_unflagged_high=_defined(unflagged.high),
    )


def _defined(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# ---------------------------------------------------------------------- in words


def told(one: CheckedTask) -> str:
    """The verdict, accuracies and flags of one model and task, a line each."""
    facts = [f"{one.model} on {one.task}: {one.verdict.upper()}", f"  {one.reason}"]
    facts += [f"  {text}" for text in (accuracy_told(one), flags_told(one)) if text]
    return "\n".join(map(visible, facts))


def accuracy_told(one: CheckedTask) -> str:
    """Empty without an accuracy."""
    if one.accuracy is None:
        return ""
    error = math.nan if one.accuracy_stderr is None else one.accuracy_stderr
    shown = f"accuracy {plus_minus(Estimate(one.accuracy, error))} on {counted(one.n)}"
    if one.accuracy_unflagged is None or not one.flagged:
        return shown
    ends = Estimate(
        one.accuracy_unflagged, math.nan, one.accuracy_unflagged_low or 0.0, one.accuracy_unflagged_high or 0.0
    )
    return f"{shown}; without the flagged ones {number(one.accuracy_unflagged, 2)} {interval(ends)}"


def flags_told(one: CheckedTask) -> str:
    """Empty if no single question was tested."""
    if one.flagged is None:
        return ""
    chance = "" if one.expected is None else f"; {number(one.expected, 1)} expected by chance"
    return f"{count(one.flagged)} of {counted(one.n_tested)} flagged{chance}"


def split_by(rows: Iterable[Row], model: str, tasks: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """The rows of this check, in the order of its tasks, and those of others."""
    own: list[Row] = []
    others: list[Row] = []
    for row in rows:
        (own if row.model == model and row.task in tasks else others).append(row)
    return sorted(own, key=lambda row: tasks.index(row.task)), others
