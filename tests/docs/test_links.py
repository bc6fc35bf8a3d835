"""Links of README and CONTRIBUTING, which hosting services show outside of the site; within it, Sphinx checks them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, links

RELATIVE = [
    (page, link) for page in ("README.md", "CONTRIBUTING.md") for link in links(ROOT / page) if ":" not in link
]


def anchors(page: Path) -> set[str]:
    """The anchors that hosting services and MyST give to headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "link"), RELATIVE)
def test_a_link_leads_to_a_file_and_to_one_of_its_headings(page: str, link: str) -> None:
    file, _, anchor = link.partition("#")
    target = (ROOT / page).parent / file if file else ROOT / page
    assert target.exists()
    assert not anchor or anchor in anchors(target)
