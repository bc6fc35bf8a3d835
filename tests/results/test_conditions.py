from __future__ import annotations

import pytest

from lm_eval_leakage.inference.pooling import Estimate
from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.result_types import Row


def row(task: str, pvalue: float, level: str = "task", group: str = "") -> Row:
    return Row("m", task, level, "acc,none", "0", 100, Estimate(0.5), 100, 100, {"pvalue": pvalue}, group)


@pytest.mark.parametrize(
    ("text", "met"),
    [("pvalue<0.01", False), ("pvalue <= 1e-2", True), ("n_tested > 99", True), (" pvalue>= .5", False)],
)
def test_a_condition_compares_a_column_with_a_number(text: str, met: bool) -> None:
    assert bool(Condition.of(text).met_by([row("t", 0.01)])) is met


@pytest.mark.parametrize("text", ["pvalue", "pvalue<", "pvalue==1", "0.01>pvalue", "pvalue<a", ""])
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="pvalue<0.01"):
        Condition.of(text)


def test_parts_of_a_whole_do_not_fail_it() -> None:
    rows = [row("g", 0.2, "group"), row("t", 1e-9, "task", "g"), row("t/s", 1e-9, "subject"), row("alone", 1e-3)]
    (only,) = Condition.of("pvalue<0.01").met_by(rows)
    assert "alone" in only
    assert "0.001" in only


def test_a_column_that_no_row_has_is_refused_for_it_could_never_fail() -> None:
    with pytest.raises(ValueError, match="'prevalence'.*accuracy.*pvalue"):
        Condition.of("prevalence>0.5").met_by([row("t", 0.5)])
