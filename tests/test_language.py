"""Phrases that the style guide replaced by idiomatic ones stay away from code, messages and pages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLOBS = (
    "lm_eval_leakage/**/*.py",
    "lm_eval_leakage/**/*.j2",
    "lm_eval_leakage/**/*.js",
    "task_configs/**/*yaml",
    "docs/**/*.md",
    "*.md",
)
REPLACED = {
    r"in the place of": "instead of",
    r"(one|a) (line|row|file|request|entry) an? \w+": "one line per statistic",
    r"(questions|tokens|requests|lines|rows) an? (second|question|task|model|row|statistic)": "tokens per question",
    r"answered rightly": "answered correctly",
    r"truth lies beyond": "a direct statement",
    r"speaks? of": "refers to",
    r"questions? (was|were|is|are|has|have|had)( \w+)? leaked": "flagged",
}


def found_in(text: str) -> list[str]:
    words = " ".join(text.split())
    return [match[0] for phrase in REPLACED for match in re.finditer(rf"\b(?:{phrase})\b", words, re.I)]


def test_no_file_has_a_replaced_phrase() -> None:
    files = [file for pattern in GLOBS for file in ROOT.glob(pattern)]
    assert len(files) > 250
    found = {str(file.relative_to(ROOT)): found_in(file.read_text(encoding="utf-8")) for file in files}
    assert not {file: phrases for file, phrases in found.items() if phrases}, f"write instead: {REPLACED}"


def test_the_phrases_are_found_across_lines() -> None:
    text = "one line a statistic, in the\nplace of 30 tokens a question; the question was leaked, answered rightly"
    assert len(found_in(text)) == 5
