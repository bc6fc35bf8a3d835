"""Every audit has a reference page, and its page agrees with the code and with the measured figures."""

from __future__ import annotations

import re

import pytest

from lm_eval_leakage.harness.tasks.templates import suffixes
from tests.method_pages import (
    DOCS,
    MEASURED_AFTER,
    PAGES,
    SECTIONS,
    WITHOUT_TEMPLATE,
    asked,
    generated,
    meanings,
    own_keys,
    page,
    parameters_of,
    parts,
    results,
    rewritten,
    section,
)

SUMMARY = (DOCS / "methods.md").read_text(encoding="utf-8")
ALL_PAGES = (*suffixes(), *WITHOUT_TEMPLATE)


PARTLY = ("What was found", "What is computed")  # sections of which the code determines a table


def text_of(suffix: str) -> str:
    return page(suffix).read_text(encoding="utf-8")


def test_every_audit_has_a_page_and_every_page_an_audit() -> None:
    assert {file.stem for file in PAGES.glob("*.md")} == set(ALL_PAGES)


@pytest.mark.parametrize("suffix", ALL_PAGES)
def test_a_page_has_one_title_and_all_sections_in_order(suffix: str) -> None:
    headings = re.findall(r"^(#+) (.*)", text_of(suffix), re.MULTILINE)
    assert [level for level, _ in headings] == ["#", *["##"] * len(SECTIONS)]
    assert tuple(heading for _, heading in headings[1:]) == SECTIONS
    assert all(section(text_of(suffix), heading) for heading in SECTIONS)


@pytest.mark.parametrize("suffix", ALL_PAGES)
def test_what_the_code_determines_is_up_to_date(suffix: str) -> None:
    text = text_of(suffix)
    for heading, expected in generated(suffix).items():
        found = section(text, heading)
        assert expected in found if heading in PARTLY else found == expected, "run `python -m tests.method_pages`"
    assert rewritten(text, suffix) == text


@pytest.mark.parametrize("suffix", suffixes())
def test_a_page_names_every_row_and_every_parameter(suffix: str) -> None:
    probe, judges = parts(suffix)
    rows, parameters = (section(text_of(suffix), heading) for heading in ("Rows and keys", "Parameters"))
    assert {row.name for judge in judges for row in judge.rows} <= set(re.findall(r"`(\w+)`", rows))
    for part in (probe, *judges):
        for field in parameters_of(part):
            assert f"| `{field.name}` |" in parameters
            assert meanings(part)[field.name]


@pytest.mark.parametrize("suffix", suffixes())
def test_the_command_runs_the_audit_and_the_backends_are_those_that_the_probe_needs(suffix: str) -> None:
    command = re.findall(r"^```console\n(.*?)\n```", section(text_of(suffix), "Run it"), re.DOTALL | re.MULTILINE)[0]
    assert re.search(rf"--tasks \w+?_{suffix} ", command)
    assert f"(`{asked(suffix).needs}`)" in section(text_of(suffix), "Cost and backends")


def test_a_drifted_page_would_be_seen() -> None:
    text = text_of("leakage_tokens").replace("| `20.0` |", "| `25.0` |")
    assert section(text, "Parameters") != generated("leakage_tokens")["Parameters"]
    assert rewritten(text, "leakage_tokens") == text_of("leakage_tokens")


def test_the_summary_links_every_page_and_lists_the_keys_of_every_audit() -> None:
    assert set(ALL_PAGES) == set(re.findall(r"\(methods/(\w+)\.md\)", SUMMARY))
    assert section(SUMMARY, "Keys that every audit takes").endswith(own_keys())


def test_the_summary_has_the_measured_aurocs() -> None:
    """By training, then benchmark, as in the header of its table; a dash where there are too few questions for one."""
    body = section(SUMMARY, "AUROC of every method")
    head, _, *lines = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")]
    places = [tuple(heading.split(", ", 1)) for heading in head[2:]]
    after = {
        (row["method"], row["benchmark"], row["training"]): row
        for row in results()
        if row["exposures"] == MEASURED_AFTER
    }
    listed = {
        (method.strip("`"), *place): cell
        for method, _, *cells in lines
        for place, cell in zip(places, cells, strict=False)
        if cell.strip()
    }
    assert listed == {at: row["auroc"] or "–" for at, row in after.items()}
    tokens = {line[0].strip("`"): int(line[1].replace(",", "")) for line in lines}
    assert tokens == {
        row["method"]: int(row["tokens_per_question"])
        for row in after.values()
        if row["benchmark"] == "MMLU" and row["training"] == "one by one"
    }


def test_the_summary_is_short() -> None:
    assert len(SUMMARY.split()) < 1_850
