"""README stays short, and has what a new user looks for."""

from __future__ import annotations

import re

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.results.data_verdict import WORDS
from tests.docs.pages import ROOT, all_commands

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_has_at_most_1200_words_code_blocks_included() -> None:
    assert len(README.split()) <= 1200


def test_readme_explains_exactly_the_words_of_a_verdict() -> None:
    section = README.partition("## How to read a verdict")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z ]+)` \|", section, re.M) == list(reversed(WORDS))


def test_readme_shows_a_verdict_from_runs_in_three_commands_the_audit_among_them() -> None:
    section = README.partition("## I have runs already")[2].partition("\n## ")[0]
    shown = [words[1] for block, words in all_commands() if block.page == "README.md" and block.text in section]
    assert shown == ["run", "annotate", "report"]


def test_the_page_of_methods_lists_every_audit_that_any_task_has() -> None:
    page = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    shipped = {file.name[1 : -len("_yaml")] for file in task_configs_path().glob("_*_yaml")}
    assert set(re.findall(r"^\| \[`(leakage_\w+|choice_\w+)`\]", page, re.M)) == shipped
