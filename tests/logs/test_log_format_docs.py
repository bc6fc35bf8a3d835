"""docs/log_format.md lists the keys that there are."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from lm_eval_leakage.logs.audit_line import (
    COMPARED_ORDERS,
    CORE,
    LINE_VERSION,
    OF_HARNESS,
    OF_ORDERS,
    RIGHT_PLACES,
    SHARED_TEXTS,
)
from lm_eval_leakage.logs.calibration_file import CALIBRATION_VERSION
from lm_eval_leakage.records import Evidence
from tests.logs.kinds import KINDS
from tests.test_detector_ids import EXAMPLES

DOCS = (Path(__file__).parents[2] / "docs" / "log_format.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    (section,) = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", DOCS, re.DOTALL | re.MULTILINE)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def keys(heading: str) -> list[str]:
    return [row[0].strip("`") for row in table(heading)]


def test_the_keys_of_every_line_are_listed_in_their_order() -> None:
    assert tuple(keys("Keys of every line")) == CORE


def test_the_keys_of_option_orders_are_listed_in_their_order() -> None:
    assert tuple(keys("Keys of option orders")) == (*OF_ORDERS, COMPARED_ORDERS, RIGHT_PLACES, SHARED_TEXTS)


def test_the_harnesss_keys_are_listed() -> None:
    assert tuple(keys("Keys of the harness")) == OF_HARNESS


def test_every_value_of_a_statistic_is_listed_with_the_statistics_that_have_it() -> None:
    found: dict[str, set[str]] = {}
    for kind in KINDS.values():
        for field in fields(kind.verdict):
            if field.name not in CORE and field.name not in ("loglikelihoods", "scores"):
                found.setdefault(field.name, set()).add(kind.statistic)
    listed = {row[0].strip("`"): set(re.findall(r"`([a-z_]+)`", row[1])) for row in table("Values of statistics")}
    assert {key: own - {"pair_direction"} for key, own in listed.items()} == found  # it has pair_published's verdicts
    assert all(("pair_direction" in own) == ("pair_published" in own) for own in listed.values())


def test_the_example_is_a_golden_line_but_for_what_is_shortened() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", DOCS, re.DOTALL)
    shown = json.loads(example)
    line = json.loads((Path(__file__).parent / "golden" / "lines.jsonl").read_text().splitlines()[0])
    shortened = ("doc", "doc_hash")
    assert {key: line[key] for key in shown if key not in shortened} == {
        key: value for key, value in shown.items() if key not in shortened
    }
    assert set(CORE) <= set(shown)


def test_the_versions_are_those_of_the_package() -> None:
    assert f"version of this format, {LINE_VERSION} |" in DOCS
    assert f"`calibration` (the version, {CALIBRATION_VERSION})" in DOCS


def test_the_examples_of_ids_are_ids() -> None:
    shown = re.findall(r"^    ([a-z_]+(?:[@:]\S+)?)  ", DOCS, re.MULTILINE)
    assert shown
    assert set(shown) - {"relative_likelihood:reference=org/elder"} <= {written for *_, written in EXAMPLES}


def test_evidence_adds_no_key_that_every_line_lacks() -> None:
    assert {field.name for field in fields(Evidence)} <= set(CORE)
