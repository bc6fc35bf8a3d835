from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm, ttest_rel

from lm_eval_leakage.detectors.choice_confusion import ArmsMeasurement, PairedAccuracy, below_reference, difference
from lm_eval_leakage.detectors.tail_answered import TailAnswered, margin_and_rank
from lm_eval_leakage.records import Answered, Question

QUESTION = Question("q", "Which?", ("a", "b", "c"), answer=1)


def test_each_arm_is_correct_if_its_own_right_option_is_the_most_likely() -> None:
    answers = (0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    (measured,) = PairedAccuracy().judge([Answered(QUESTION, (), answers, (1, 0, 1, 2))])
    assert (measured.original, measured.shuffled, measured.replaced, measured.generalized) == (True, True, False, True)
    (row,) = [row for row in PairedAccuracy.rows if row.name == "accuracy_replaced"]
    assert row.per_question(measured) == 0.0  # a tie counts as wrong


def test_confusion_is_the_margin_in_the_original_minus_that_in_the_generalized_arm() -> None:
    """Margins of the right option by arm: 1, 2, 4, 16."""
    answers = (0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 16.0)
    (measured,) = PairedAccuracy(0.25, 0.03).judge([Answered(QUESTION, (), answers, (1, 0, 0, 2))])
    assert measured.confusion == 1 - 16
    assert (measured.reference, measured.reference_stderr) == (0.25, 0.03)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60))
def test_delta_and_its_tests_are_those_of_paired_answers(answers: list[tuple[bool, bool]]) -> None:
    measured = [ArmsMeasurement(before, True, False, after, 0.0) for before, after in answers]
    rows = {row.name: row for row in PairedAccuracy.rows}
    before, after = (np.array(column, dtype=float) for column in zip(*answers, strict=True))
    delta, stderr = rows["delta"].compute(measured), rows["delta"].error(measured)
    assert delta == pytest.approx(after.mean() - before.mean())
    if stderr > 0:
        assert delta / stderr == pytest.approx(ttest_rel(after, before).statistic)
    won, changed = int((after > before).sum()), int((after != before).sum())
    expected = binomtest(won, changed, 0.5).pvalue if changed else 1.0
    assert rows["mcnemar_pvalue"].compute(measured) == pytest.approx(expected)


def test_without_questions_every_value_is_undefined() -> None:
    assert all(math.isnan(row.compute([])) for row in PairedAccuracy.rows)


def test_a_delta_is_judged_against_that_of_a_clean_model() -> None:
    found = difference([True] * 60 + [False] * 40, [False] * 20 + [True] * 40 + [False] * 40)
    assert found.value == pytest.approx(-0.2)
    assert below_reference(found, -0.2, 0.0) == pytest.approx(0.5)
    assert below_reference(found, 0.1, 0.03) == pytest.approx(norm.cdf(-0.3 / math.hypot(found.stderr, 0.03)))
    assert math.isnan(below_reference(difference([True] * 4, [False] * 4), 0.0, 0.0))  # it has no spread


def test_the_tail_is_judged_by_the_right_letter_and_the_result_on_the_whole_question_is_reported() -> None:
    (found,) = TailAnswered().judge([Answered(QUESTION, (), (2.0, 1.0, 0.0, -1.0, 0.5, 0.0))])
    assert (found.flagged, found.pvalue, found.null_rate, found.margin, found.whole) == (
        True,
        1 / 3,
        1 / 3,
        0.5,
        False,
    )
    (tied,) = TailAnswered().judge([Answered(QUESTION, (), (0.0, 1.0, 0.0, 0.5, 0.5, 0.0))])
    assert (tied.flagged, tied.pvalue, tied.whole) == (False, 2 / 3, True)
    (tied,) = TailAnswered().judge([Answered(QUESTION, (), (1.0, 1.0, 0.0, 0.5, 0.7, 0.0))])
    assert (tied.flagged, tied.whole) == (True, False)


def test_a_model_without_knowledge_is_flagged_on_one_question_in_n() -> None:
    rng = np.random.default_rng(3)
    rows = [Answered(QUESTION, (), tuple(rng.normal(size=6))) for _ in range(3000)]
    assert np.mean([found.flagged for found in TailAnswered().judge(rows)]) == pytest.approx(1 / 3, abs=0.03)


def test_ranks_count_ties_against_the_right_option() -> None:
    assert margin_and_rank([1.0, 1.0, 0.0], 0) == (0.0, 2)
    assert margin_and_rank([3.0, 1.0, 0.0], 0) == (2.0, 1)


def test_a_reference_may_be_the_results_file_of_a_clean_run(tmp_path) -> None:
    file = tmp_path / "results.json"
    row = {"delta,paired_accuracy": 0.25, "delta_stderr,paired_accuracy": 0.03}
    file.write_text(json.dumps({"results": {"arc_choice_confusion": row, "mmlu": {"acc,none": 0.3}}}))
    known = PairedAccuracy(reference=str(file))
    assert (known.reference, known.reference_stderr) == (0.25, 0.03)
    assert PairedAccuracy(reference=f"{file}#arc_choice_confusion") == known
    file.write_text(json.dumps({"results": {"a": row, "b": row}}))
    with pytest.raises(ValueError, match=r"2 tasks of that file have a delta \(a, b\); name one as FILE#TASK"):
        PairedAccuracy(reference=str(file))
    with pytest.raises(ValueError, match=r"0 tasks of that file have a delta \(none\); name one"):
        PairedAccuracy(reference=f"{file}#c")


@pytest.mark.parametrize("text", ["{", "[]", '{"versions": {}}'])
def test_a_file_that_is_not_a_results_file_is_named(tmp_path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="neither a number nor a results file"):
        PairedAccuracy(reference=str(file))
    with pytest.raises(ValueError, match="neither a number nor a results file"):
        PairedAccuracy(reference="missing.json")
