from __future__ import annotations

from dataclasses import replace

import pytest

from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.verdict import NOT_AUDITED, VerdictWord
from lm_eval_leakage.results.verdict_words import sentence_of
from tests.report.made import OF_WORD
from tests.report.made import row as made_row


def row(task: str, pvalue: float, **place: str) -> Row:
    return made_row(task, model="m", pvalue=pvalue, verdict=NOT_AUDITED, **place)


def of_word(word: str, task: str = "t") -> Row:
    return made_row(task, model="m", verdict=OF_WORD[word])


@pytest.mark.parametrize(
    ("text", "met"),
    [("pvalue<0.01", False), ("pvalue <= 1e-2", True), ("n_tested > 99", True), (" pvalue>= .5", False)],
)
def test_a_condition_compares_a_column_with_a_number(text: str, met: bool) -> None:
    assert bool(Condition.of(text).met_by([row("t", 0.01)])) is met


@pytest.mark.parametrize(
    "text",
    [
        "pvalue",
        "pvalue<",
        "pvalue==1",
        "0.01>pvalue",
        "",
        "verdict>0.01",
        "verdict>=bad",
        "verdict>='",
        "verdict>=evidence>=evidence",
        "pvalue<evidence",
    ],
)
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="evidence_pvalue_adjusted<0.01; or one of .*verdict>=evidence"):
        Condition.of(text)


def test_parts_of_a_whole_do_not_fail_it() -> None:
    rows = [row("g", 0.2, level="group"), row("t", 1e-9, group="g"), row("t/s", 1e-9, level="subject")]
    (only,) = Condition.of("pvalue<0.01").met_by([*rows, row("alone", 1e-3)])
    assert only == "m, alone: pvalue is 0.001, which is < 0.01"


def test_a_column_that_no_row_has_is_refused_for_it_could_never_fail() -> None:
    with pytest.raises(ValueError, match="'leakage'.*accuracy.*pvalue"):
        Condition.of("leakage>0.5").met_by([row("t", 0.5)])


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("bound", range(1, 5))
def test_words_are_compared_by_how_suspicious_they_are(place: int, bound: int) -> None:
    rows = [of_word([*VerdictWord][place]), of_word("none found", "other")]
    met = Condition.of(f"verdict>={[*VerdictWord][bound].replace(' ', '_')}").met_by(rows)
    assert len(met) == (place >= bound) + (bound <= 1)
    assert len(Condition.of(f'verdict < "{[*VerdictWord][bound]}"').met_by(rows)) == 2 - len(met)


@pytest.mark.parametrize(
    "text",
    [
        'verdict>="strong evidence"',
        "verdict>='strong evidence'",
        "verdict >= strong evidence ",
        "verdict>=strong_evidence",
        "strong_evidence",
        " strong evidence",
    ],
)
def test_two_words_may_be_quoted_or_joined_and_stand_alone(text: str) -> None:
    rows = [of_word("evidence"), of_word("strong evidence", "seen")]
    assert [sentence.split(":")[0] for sentence in Condition.of(text).met_by(rows)] == ["m, seen"]


def test_a_benchmark_that_cannot_be_judged_is_named_with_the_reason_and_one_without_any_audit_is_not() -> None:
    undecided = of_word("no verdict", "u")
    rows = [undecided, replace(undecided, metric="acc_norm,none"), of_word("none found")]
    (sentences,) = Condition.of("verdict>=evidence").unjudged_of(rows)
    assert sentences == f"m, u: not judged, since it has {sentence_of(undecided.verdict)}"
    assert Condition.of("verdict>=evidence").met_by(rows) == []
    assert Condition.of("verdict<=no_verdict").unjudged_of(rows) == []
    assert len(Condition.of("verdict<=no_verdict").met_by([undecided])) == 1
    rows = [of_word("evidence"), of_word("none found", "u"), made_row("v", model="m", verdict=NOT_AUDITED)]
    sentences = [f"m, {task}: not judged, since it has no confusion_delta" for task in "tu"]
    assert Condition.of("confusion_delta<-0.1").unjudged_of(rows) == sentences
    assert Condition.of("accuracy<0.1").unjudged_of(rows) == []
