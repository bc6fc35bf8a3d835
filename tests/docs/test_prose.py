"""The site shows every sentence of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

COMMENT = "%"  # MyST leaves out a line that begins with it, also in the middle of a paragraph


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_begins_with_a_percent_sign(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.lstrip().startswith(COMMENT)]
