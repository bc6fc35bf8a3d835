from __future__ import annotations

import json
import math

from lm_eval_leakage.results.page import LONGEST_QUESTION, listed, n_bytes
from tests.report.made import annotation, answered, audited, row

PLENTY = 10**6


def entries(*audited_questions, budget=PLENTY, **changes):
    return json.loads(listed(annotation(*audited_questions, **changes), budget).data)


def test_the_highest_score_is_first_and_an_undefined_one_last() -> None:
    scores = [1.0, None, 3.0, math.nan, 2.0]
    found = entries(*(audited(i, score=score, question=str(i)) for i, score in enumerate(scores)))
    assert [entry["q"] for entry in found] == ["2", "4", "0", "1", "3"]


def test_unflagged_and_untested_questions_are_not_listed() -> None:
    assert entries(audited(0, rank=2), audited(1, flagged=None)) == []


def test_loglikelihoods_have_two_decimals_and_no_nan() -> None:
    values = (-1.23456, math.nan, -math.inf)
    (entry,) = entries(audited(loglikelihoods=values))
    assert entry["l"] == [-1.23, None, None]


def test_the_answers_of_all_runs_are_listed_once_each() -> None:
    one = audited()
    rows = (row("mmlu"), row("mmlu_cot"))
    questions = (answered(one, 1.0), answered(one, 1.0), answered(one, 0.0, "mmlu_cot"), answered(one, 0.5, "other"))
    (entry,) = entries(one, rows=rows, questions=questions)
    assert entry["r"] == ["answered correctly in mmlu", "answered incorrectly in mmlu_cot", "not scored in other"]


def test_the_budget_holds_and_what_it_leaves_out_is_counted() -> None:
    many = [audited(i, margin=float(100 - i), question="水" * 100) for i in range(100)]
    found = listed(annotation(*many), 10_000)
    assert n_bytes(found.data) <= 10_000
    assert 0 < found.n_listed < 100
    assert found.n_flagged == 100
    assert [entry["m"] for entry in json.loads(found.data)] == [100.0 - i for i in range(found.n_listed)]
    one_more = n_bytes(found.data) // found.n_listed
    assert n_bytes(found.data) + one_more + 1 > 10_000


def test_one_huge_question_does_not_keep_out_the_others() -> None:
    huge = audited(0, margin=9.0, question="x" * LONGEST_QUESTION)
    found = listed(annotation(huge, audited(1)), PLENTY)
    assert (found.n_listed, found.n_flagged) == (1, 2)


def test_nothing_in_the_data_can_end_the_script() -> None:
    text = "</script><!--\u2028\u2029&<script>"
    found = listed(annotation(audited(question=text)), PLENTY)
    assert not set(found.data) & set("<>&")
    assert json.loads(found.data)[0]["q"] == text
