"""The glossary is short enough to be read, defines no word twice, and has no word that nobody uses."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
MOST_ENTRIES = 40
HEADER = "word"


def entries() -> list[str]:
    """Return the first cell of each row of the glossary's tables."""
    rows = re.findall(r"^\| *([^|]+?) *\|", GLOSSARY.read_text(encoding="utf-8"), re.M)
    return [cell for cell in rows if cell != HEADER and set(cell) != {"-"}]


def words() -> list[str]:
    """Return the words that the entries define: "slot, filler" defines two."""
    return [word for entry in entries() for word in entry.split(", ")]


@pytest.fixture(scope="module")
def text_of_the_project() -> str:
    """Return the text of all pages but the glossary, and of the code."""
    pages = [page for page in PAGES if page != GLOSSARY]
    code = (ROOT / "lm_eval_leakage").rglob("*.py")
    text = " ".join(file.read_text(encoding="utf-8") for file in [*pages, *code])
    return re.sub(r"\s+", " ", text).casefold()


def test_the_glossary_has_at_most_40_entries() -> None:
    assert 20 < len(entries()) <= MOST_ENTRIES


def test_no_word_is_defined_twice() -> None:
    assert len(set(words())) == len(words())


@pytest.mark.parametrize("word", words())
def test_a_word_of_the_glossary_is_used_in_the_docs_or_the_code(word: str, text_of_the_project: str) -> None:
    assert re.search(rf"\b{re.escape(word.casefold())}s?\b", text_of_the_project)
