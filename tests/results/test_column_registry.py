from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from lm_eval_leakage.results import columns as registry
from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.page import render_page
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.rows import flat_row
from lm_eval_leakage.results.tables import as_text, keys_of, verdicts_in_words
from lm_eval_leakage.results.tabulating import Column
from lm_eval_leakage.results.verdict import NOT_AUDITED
from lm_eval_leakage.results.verdict_numbers import NUMBERS, details
from lm_eval_leakage.results.verdict_words import sentence_of
from lm_eval_leakage.stats.order_sum import OrderRatio
from lm_eval_leakage.stats.pooling import Estimate
from tests import column_tables
from tests.report.made import verdict
from tests.report.parsed import Parsed

EVERY = registry.recorded()
ENDINGS = ("", "_stderr", "_low", "_high")


@pytest.fixture
def full() -> Row:
    """A row that knows something of every column."""
    samples = {str: "words", int: 7, float: 0.25, Estimate: Estimate(0.5, 0.1, 0.4, 0.6)}
    values = {column.key: samples[type(column.kind.undefined)] for column in EVERY}
    judged = verdict(0.003, adjusted=0.006, n_together=2, ratio=OrderRatio(60, 1.5, 1.25))
    judged = replace(judged, tested=replace(judged.tested, log_evalue=2.5), at_most=((1, 0.3), (2, 0.2), (3, 0.1)))
    row = Row("m", "bench", "task", "acc,none", "5", 9, Estimate(0.5, 0.1, 0.4, 0.6), 8, 7, values)
    return replace(row, verdict=judged, n_copies=2, n_left_out=3, n_too_long=1)


def ids(column: Column) -> str:
    return column.key


@pytest.mark.parametrize("column", EVERY, ids=ids)
def test_every_column_is_in_json_and_csv(column, full) -> None:
    (record,) = json.loads(as_text([full], "json"))
    (line,) = csv.DictReader(io.StringIO(as_text([full], "csv")))
    is_estimate = isinstance(column.kind.undefined, Estimate)
    for key in [f"{column.key}{ending}" for ending in ENDINGS[: 4 if is_estimate else 1]]:
        if key not in ("order_ratio_stderr", "order_ratio_high"):  # its bound is one-sided, without a standard error
            assert record[key] is not None
            assert line[key] == str(record[key])


@pytest.mark.parametrize("column", [column for column in EVERY if column.kind.undefined != ""], ids=ids)
def test_every_column_of_numbers_can_be_named_in_fail_on(column, full) -> None:
    assert Condition.of(f"{column.key} > -1").met_by([full])
    assert not Condition.of(f"{column.key} < -1").met_by([full])


@pytest.mark.parametrize("column", registry.displayed(), ids=ids)
def test_every_heading_is_on_the_page_and_in_the_text_table_under_one_name(column, full) -> None:
    many = replace(full, n_tested=1000)  # enough flagged questions for a claim about them
    others = [many, Row("other", "bench", "task", "", "", 1, Estimate(), 0, 0)]
    page = Parsed(render_page([Annotation("m", "max_order", tuple(others), (), ())])).heads()
    head, *_ = as_text(others, "markdown").splitlines()
    assert column.heading in page
    assert (column.heading in head.strip("| ").split(" | ")) is column.in_text


@pytest.mark.parametrize("column", registry.in_harness(), ids=ids)
def test_columns_for_the_harness_are_flat_numbers_with_an_error_where_there_is_one(column, full) -> None:
    keys = keys_of(full)
    name = column.harness.replace("{metric}", "acc")
    assert isinstance(keys[f"{name},leakage"], float)
    has_error = isinstance(column.kind.undefined, Estimate) and column.key != "order_ratio"
    assert (f"{name}_stderr,leakage" in keys) is has_error


@pytest.mark.parametrize(("page", "wanted"), column_tables.TABLES, ids=[page for page, _ in column_tables.TABLES])
def test_the_docs_have_the_tables_that_the_registries_say(page: str, wanted: str) -> None:
    assert wanted in (column_tables.DOCS / page).read_text(encoding="utf-8"), "run `python -m tests.column_tables`"


def test_every_number_of_a_verdict_has_a_meaning_and_one_name_in_each_output() -> None:
    for names in (
        [number.record for number in NUMBERS],
        [number.column for number in NUMBERS],
        [number.detail for number in NUMBERS],
    ):
        keys = [name for name in names if name]
        assert len(set(keys)) == len(keys)
    assert all(number.meaning for number in NUMBERS)


def test_each_benchmark_has_its_verdict_in_words_once(full) -> None:
    other = replace(full, task="arc", verdict=verdict(2e-5))
    parts = [replace(full, task="bench/s", level="subject"), replace(full, task="part", group="bench")]
    rows = [full, replace(full, metric="acc_norm,none"), *parts, other, replace(full, task="x", verdict=NOT_AUDITED)]
    expected = [f"arc: {sentence_of(other.verdict)}", f"bench: {sentence_of(full.verdict)}"]
    assert verdicts_in_words(rows, "table").splitlines() == expected
    assert verdicts_in_words(rows, "csv") == verdicts_in_words(rows[-1:], "table") == ""
    several = verdicts_in_words([full, replace(full, model="<b>\n")], "markdown").splitlines()
    assert [line.partition(": ")[0] for line in several] == ["- m, bench", "- &lt;b>\\n, bench"]


def test_a_row_that_knows_nothing_of_a_column_is_undefined_in_it_and_never_zero() -> None:
    bare = Row("m", "t", "task", "acc,none", "0", 1, Estimate(), 0, 0)
    flat = flat_row(bare)
    assert {flat[key] for key in ("flagged_rate", "flagged_rate_low", "pvalue", "gap")} == {None}
    assert "accuracy_original" not in flat


def test_a_verdict_names_the_level_and_the_looks_that_its_bounds_account_for() -> None:
    alone, of_check = verdict(0.2), verdict(0.2, look=2, n_together=3, level=0.0025)
    assert (details(alone)["scope"], details(alone)["level"]) == ("this audit alone", 0.01)
    assert details(of_check)["scope"] == "look 2 at this benchmark in its folder and 3 verdicts"
    assert details(of_check)["level"] == 0.0025
