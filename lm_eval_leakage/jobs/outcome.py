"""The outcome of a check, and its texts: on screen, in a notebook, as JSON, on the page and in the tables.

There is one record per model and task, which has the same words and numbers everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path

from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.plan_table import PlanTable
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.comparison import Plot, comparison_plot
from lm_eval_leakage.results.formatting import count
from lm_eval_leakage.results.leaderboard import as_csv, as_page, leaderboard, leaderboard_as_markdown, records
from lm_eval_leakage.results.page import render_page
from lm_eval_leakage.results.result_types import Annotation
from lm_eval_leakage.results.verdict import VerdictWord
from lm_eval_leakage.results.verdict_record import PARTS, VERDICTS, CheckedTask, verdicts_in
from lm_eval_leakage.results.verdict_words import word_with_aim
from lm_eval_leakage.texts import as_json, visible

VERDICTS_SHOWN = 20
HTML_HEADS = ("model", "task", "verdict", "why", "figures")
PAGE = "leakage.html"
TABLE_FILES = ("leaderboard.html", "leaderboard.json", "leaderboard.csv", "leaderboard.md")


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check, which `check` returns.

    verdicts: of the models and tasks of this check; others: of earlier checks into the same folder, as they were
        given then
    plan: the units and what was to be done for each
    plan_text: of a dry run, instead
    pages: the HTML page, and for several models the tables; none if nothing was run (dry_run)
    exports: the files in other formats, which `export` asks for
    failed: why `fail_on` is met, a sentence per verdict
    unjudged: which verdicts `fail_on` cannot judge, with reasons; empty if none, or if they are allowed
    n_units, n_done: of the plan
    lost: the last attempt of each unit that was given up; the verdicts rest on the others
    problems: what could not be read, joined or judged
    annotations: from which the page is made
    """

    verdicts: tuple[CheckedTask, ...]
    others: tuple[CheckedTask, ...]
    plan: PlanTable | None = None
    plan_text: str = ""
    folder: CampaignFolder | None = None
    pages: tuple[Path, ...] = ()
    exports: tuple[Path, ...] = ()
    failed: tuple[str, ...] = ()
    unjudged: str = ""
    n_units: int = 0
    n_done: int = 0
    lost: tuple[Attempt, ...] = ()
    problems: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = field(default=(), repr=False, compare=False)

    @property
    def page(self) -> Path | None:
        return next(iter(self.pages), None)

    def plot(self) -> Plot:
        """The plot that compares the models and tasks of the folder, which a notebook shows; `plot().save("plot.svg")`
        keeps it.

        Raises ValueError if no audit has anything to draw.
        """
        return comparison_plot(self.annotations)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """A sentence for each unit that failed, with the reason."""
        return tuple(f"{attempt.unit.id}: {attempt.error}{self._log_of(attempt.unit)}" for attempt in self.lost)

    def _log_of(self, unit: Unit) -> str:
        log = None if self.folder is None else self.folder.log_of(unit)
        return f" (log: {log})" if log is not None and log.exists() else ""

    def as_text(self, most: int = VERDICTS_SHOWN) -> str:
        """Return the text that the command prints.

        It has the verdicts or, if there are more than `most`, how many there are of each word and those with evidence.
        """
        if len(self.verdicts) <= most:
            return "\n\n".join(map(verdict_paragraph, self.verdicts))
        counts = Counter(task.verdict for task in self.verdicts)
        words = ", ".join(f"{word} {count(counts[word])}" for word in reversed(VerdictWord) if counts[word])
        alarming = [
            task for task in self.verdicts if task.verdict in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE)
        ]
        return "\n\n".join(
            [f"{count(len(self.verdicts))} verdicts: {words}", *map(verdict_paragraph, alarming[:most])]
        )

    def as_json(self) -> str:
        """Return the records of this check and, apart from them, of earlier ones, as strict JSON."""
        parts = zip(PARTS, (self.verdicts, self.others), strict=True)
        return as_json({part: [verdict.as_record for verdict in verdicts] for part, verdicts in parts}, indent=1)

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col" style="text-align:left">{head}</th>' for head in HTML_HEADS)
        rows = "".join(map(_html_row, self.verdicts))
        page = "" if self.page is None else f"<p>Details: {escape(visible(str(self.page)))}</p>"
        caption = "<caption>Verdicts of lm-eval-leakage</caption>"
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{page}"


def _html_row(task: CheckedTask) -> str:
    word = word_with_aim(task.verdict, task.detect)
    cells = (f"<strong>{_escaped(word)}</strong>", _escaped(task.summary), _escaped(task.figures))
    data = "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells)
    names = "".join(
        f'<th scope="row" style="text-align:left">{_escaped(name)}</th>' for name in (task.model, task.task)
    )
    return f"<tr>{names}{data}</tr>"


def _escaped(text: str) -> str:
    return escape(visible(text))


def verdict_paragraph(task: CheckedTask) -> str:
    """Return the verdict of one model and task, as it is printed."""
    word = word_with_aim(task.verdict, task.detect).replace(task.verdict, task.verdict.upper(), 1)
    facts = [f"{task.model} on {task.task}: {word}", f"  {task.summary}", f"  {task.figures}"]
    return "\n".join(visible(fact) for fact in facts if fact.strip())


def earlier_verdicts(folder: Path, now: Sequence[CheckedTask]) -> tuple[CheckedTask, ...]:
    """Return those of earlier checks into the same folder, of other models or tasks than `now`."""
    judged_now = {key for verdict in now for key in verdict.keys}
    return tuple(verdict for verdict in verdicts_in(folder) if judged_now.isdisjoint(verdict.keys))


def within(folder: CampaignFolder, problem: Problem) -> Problem:
    """Return a problem with its file relative to the folder, which may be moved."""
    if problem.file is not None and problem.file.is_relative_to(folder.path):
        return replace(problem, file=problem.file.relative_to(folder.path))
    return problem


def texts_of(outcome: CheckOutcome) -> dict[str, str]:
    """Return the texts of the files of an outcome by their names.

    They are the verdicts, and the page of one model or the tables of several.
    """
    texts = {VERDICTS: outcome.as_json() + "\n"}
    wanted = {page.name for page in outcome.pages}
    if PAGE in wanted:
        texts[PAGE] = render_page(outcome.annotations, outcome.others)
    return texts | (_tables_of(outcome) if len(wanted) > 1 else {})


def _tables_of(outcome: CheckOutcome) -> dict[str, str]:
    board = leaderboard(outcome.annotations)
    if outcome.folder is not None:
        board = replace(board, problems=tuple(within(outcome.folder, problem) for problem in board.problems))
    problems = [str(problem) for problem in board.problems]
    as_object = {"rows": records(board), "detectors": list(board.detectors), "problems": problems}
    texts = (as_page(board), as_json(as_object, indent=1), as_csv(board), leaderboard_as_markdown(board))
    return {name: f"{text.rstrip()}\n" for name, text in zip(TABLE_FILES, texts, strict=True)}
