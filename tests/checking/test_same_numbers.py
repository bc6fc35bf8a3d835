"""The plan, the end of a check and the pages of later commands report the same numbers of one audit."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.verdict_record import NAMES, as_checked, checked_task, verdicts_in
from tests.checking.conftest import NamedFake, OptionOrders, Typed, checked, questions, written

pytestmark = pytest.mark.usefixtures("only_given_tasks", "fakes")
NEEDED = re.compile(
    r"To find 25\s%, about ([0-9,]+) questions are needed\. "
    r"This command may change that: `(lm-eval-leakage check [^`]*)`"
)


@pytest.fixture
def outcome(fakes: type[NamedFake], tmp_path: Path) -> Any:
    """A check of 30 of 400 questions, which are too few to exclude anything."""
    fakes.score = staticmethod(OptionOrders())
    return checked(tmp_path, written(tmp_path, questions(400)), questions=30, detect=0.25, orders="random: its README")


def shown_on(page: Path) -> str:
    """Return the page's source without the marks within sentences, and with code as the terminal shows it."""
    source = re.sub(r"</?span[^>]*>|<button.*?</button>", "", page.read_text(encoding="utf-8"))
    return html.unescape(re.sub("</?code>", "`", source))


def test_check_and_report_print_the_same_numbers_and_the_same_command_which_can_be_typed(
    outcome: Any, tmp_path: Path, typed: Typed
) -> None:
    (verdict,) = outcome.verdicts
    assert verdict.verdict == "inconclusive"
    assert NEEDED.search(verdict.summary), (verdict.summary, verdict.n_needed)
    needed, command = NEEDED.search(verdict.summary).groups()
    assert int(needed.replace(",", "")) == verdict.n_needed
    assert f"; to find 25\u00a0%, about {needed} questions are needed)." in verdict.citation
    words = shlex.split(command)
    assert words[words.index("--questions") + 1] == str(verdict.n_needed)
    page = tmp_path / "page.html"
    code, _, errors = typed("report", tmp_path / "out", "--output_path", page)
    assert code == 0, errors
    for written_page in (outcome.page, page):
        assert verdict.summary in shown_on(written_page)
        assert {*NEEDED.findall(shown_on(written_page))} == {(needed, command)}
    code, printed, errors = typed(*words[1:], "--dry_run")
    assert code == 0, errors
    assert re.search(rf"option orders +{needed} ", printed)


def test_a_plan_says_how_many_questions_are_usually_needed_and_the_end_how_many_by_this_models_scores(
    outcome: Any,
) -> None:
    assert re.search(r"in 4 layouts; about [0-9,]+ questions are usually needed", outcome.plan.as_text)
    (verdict,) = outcome.verdicts
    assert "seen 3 times, in whatever layout" in verdict.summary
    assert not re.search(r"\w+ layouts", verdict.summary)


@pytest.mark.parametrize("given", ["out", "out/runs", "."])
def test_every_number_of_a_record_is_the_same_in_a_later_report(outcome: Any, tmp_path: Path, given: str) -> None:
    (verdict,) = outcome.verdicts
    (annotation,) = annotate([tmp_path / given])
    (row,) = [row for row in annotation.rows if row.task == verdict.task]
    again = checked_task(row)
    for name in NAMES:
        assert getattr(again, name) == getattr(verdict, name), name


def test_a_damaged_record_gives_a_later_report_no_terms(outcome: Any, tmp_path: Path) -> None:
    file = tmp_path / "out" / "verdicts.json"
    text = file.read_text(encoding="utf-8")
    for damaged in ("", "{}", text.replace('"error_share": 0.75', '"error_share": "a"'), text[: len(text) // 2]):
        file.write_text(damaged, encoding="utf-8")
        assert verdicts_in(tmp_path / "out") == ()
    file.write_text(text.replace('"error_share": 0.75', '"error_share": -1'), encoding="utf-8")
    (annotation,) = annotate([tmp_path / "out"])
    assert as_checked(annotation.rows, verdicts_in(tmp_path / "out")) == [*annotation.rows]
