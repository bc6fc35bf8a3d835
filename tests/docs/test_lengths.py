"""Pages can be read at once: the README before a first command, every other page in a few minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

README = ROOT / "README.md"
MOST_WORDS_OF_README = 800
MOST_WORDS_OF_PAGE = 1500  # outside of tables, which are there to look things up
MOST_CHARACTERS = 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_short(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    prose = [line for line in lines if not line.startswith("|")]
    assert len(" ".join(prose).split()) <= MOST_WORDS_OF_PAGE


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= MOST_WORDS_OF_README


def test_lines_of_the_readme_fit_on_a_screen() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if len(line) > MOST_CHARACTERS and not line.startswith("![")]
