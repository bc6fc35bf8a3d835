"""docs/cli.md agrees with the parser."""

from __future__ import annotations

from tests.cli.reference import PAGE, reference


def test_the_page_is_what_the_parser_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `python -m tests.cli.reference`"
