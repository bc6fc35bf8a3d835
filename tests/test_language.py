"""Phrases that readers stumbled over stay out of the docs, and out of the package's messages and docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import lm_eval_leakage

ROOT = Path(__file__).parents[1]
PACKAGE = Path(lm_eval_leakage.__file__).parent
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)
TEXTS = [
    *PAGES,
    *sorted(ROOT.glob("*.md")),
    *sorted(file for kind in ("py", "j2", "js") for file in PACKAGE.rglob(f"*.{kind}")),
    *sorted((ROOT / "task_configs").rglob("*yaml")),
    *sorted((ROOT / "benchmarks").glob("*.py")),
]
COUNTED = "tokens?|seconds?|requests|lines?|rows?|texts"
EACH = "question|statistic|model|subject|task|text|shard|page"
INSTEAD_OF = {  # a pattern, and what to write instead
    r"in the place of": "instead of",
    r"rightly": "correctly",
    r"speaks? of|spoken of": "refers to",
    r"the truth lies": "the true value is",
    r"has to be told": "what it does, in the words that an engineer would search for",
    r"of which some": "a relative clause with a subject",
    rf"(?:{COUNTED}) an? (?:{EACH})": "per question, per statistic, ...",
    r"accepted share of mistakes": "target false discovery rate",
    r"share of (?:the )?unseen flagged": "false-positive rate on unseen questions",
    r"leaked": "flagged: nobody sees from outside that a question is leaked",
    r"takes? off|taken off|takes? away from": "subtracts",
    r"mend(?:s|ed|ing)?": "fixes",
    r"thereof|wherein|whereof|whereby|henceforth": "an everyday word",
    r"(?:is|are) told in": "is reported, says",
}
FORBIDDEN = re.compile(rf"\b(?:{'|'.join(INSTEAD_OF)})\b", re.IGNORECASE)


def written(file: Path) -> str:
    """What people read: a page as a whole; of a module its docstrings, messages and comments."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        return text
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    comments = re.findall(r"(?:^|\s)# (.*)", text)
    return "\n".join([*(string for string in strings if isinstance(string, str)), *comments])


def stumbled_over(text: str) -> list[str]:
    return [found[0] for found in FORBIDDEN.finditer(" ".join(text.split()))]


def test_no_phrase_comes_back() -> None:
    found = [(str(file.relative_to(ROOT)), phrase) for file in TEXTS for phrase in stumbled_over(written(file))]
    assert not found, [(file, phrase, remedy(phrase)) for file, phrase in found]


def remedy(phrase: str) -> str:
    return next(why for pattern, why in INSTEAD_OF.items() if re.fullmatch(pattern, phrase, re.IGNORECASE))


@pytest.mark.parametrize(
    "sentence",
    [
        "One line a statistic is written.",
        "It stands in the place of the letter.",
        "The question was answered rightly.",
        "A log that speaks of no audit",
        "The truth lies beyond them.",
        "54 tokens a\nquestion",
        "What the harness has to be told",
        "The question is leaked",
    ],
)
def test_a_phrase_would_be_seen(sentence: str) -> None:
    (phrase,) = stumbled_over(sentence)
    assert remedy(phrase)


@pytest.mark.parametrize(
    "sentence", ["one line per statistic", "`lm_eval` runs a task", "a right option", "he recommends"]
)
def test_ordinary_sentences_pass(sentence: str) -> None:
    assert not stumbled_over(sentence)


def test_much_is_read() -> None:
    assert len(PAGES) > 25
    assert len(TEXTS) > 180
    assert sum(len(written(file)) for file in TEXTS) > 300_000
