"""docs/log_format.md and the pages below it list every key of a log line."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from lm_eval_leakage.logs.audit_line import CORE, OF_FILLERS, OF_HARNESS, OF_ORDERS
from tests.logs.kinds import KINDS
from tests.method_pages import DOCS, section

PAGES = ("log_format.md", "log_format/verdicts.md", "log_format/values.md")
PAGE = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)


def table(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading, without its head."""
    lines = [line for line in section(PAGE, heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("Keys of every line", CORE),
        ("Keys of option orders", OF_ORDERS),
        ("Keys of exchanged names", OF_FILLERS),
        ("Keys of the harness", OF_HARNESS),
    ],
)
def test_keys_are_listed_in_their_order(heading, keys) -> None:
    assert tuple(row[0].strip("`") for row in table(heading)) == keys


def test_every_value_of_a_statistic_is_listed_with_the_statistics_that_have_it() -> None:
    declared: dict[str, set[str]] = {}
    for kind in KINDS.values():
        for field in fields(kind.verdict):
            if field.name not in CORE and field.name not in ("loglikelihoods", "scores", "answers"):
                declared.setdefault(field.name, set()).add(kind.statistic)
    listed = {row[0].strip("`"): set(re.findall(r"`([a-z_]+)`", row[1])) for row in table("Values of statistics")}
    assert {
        key: statistics - {"pair_direction"} for key, statistics in listed.items()
    } == declared  # it has pair_published's verdicts
    assert all(("pair_direction" in statistics) == ("pair_published" in statistics) for statistics in listed.values())
