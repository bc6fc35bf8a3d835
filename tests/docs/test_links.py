"""Links of README and CONTRIBUTING, which hosting services show outside of the site; within it, Sphinx checks them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import PAGES, ROOT, links

OUTSIDE = ("README.md", "CONTRIBUTING.md")
ADDRESSES = [(str(page.relative_to(ROOT)), link) for page in PAGES for link in links(page) if ":" in link]
RELATIVE = [(page, link) for page in OUTSIDE for link in links(ROOT / page) if ":" not in link]


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


@pytest.mark.parametrize(("page", "link"), sorted(set(ADDRESSES)))
def test_an_address_is_well_formed_and_encrypted(page: str, link: str) -> None:
    address = urlsplit(link)
    assert (address.scheme, bool(re.fullmatch(r"[\w.-]+\.[a-z]{2,}", address.hostname or ""))) == ("https", True)
    assert " " not in link


def test_readme_has_many_links() -> None:
    assert len(RELATIVE) > 25
    assert "docs/validity.md" in {link for page, link in RELATIVE if page == "README.md"}
