"""docs/cli.md and every printed command agree with the parser."""

from __future__ import annotations

from pathlib import Path

import lm_eval_leakage
from lm_eval_leakage.cli.reference import reference

PACKAGE = Path(lm_eval_leakage.__file__).parent
PAGE = PACKAGE.parent / "docs" / "cli.md"


def test_the_page_is_what_the_parser_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "docs/cli.md is not up to date; run `python -m lm_eval_leakage.cli.reference > docs/cli.md`"
    )
