"""The audit of option orders that finds most within a number of requests."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.design import ORDERS_WITHIN
from lm_eval_leakage.jobs.plan import as_command
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.results.data_verdict import MARGIN, usually_found, usually_needed
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL, Basis, VerdictWord
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions, statuses, written

pytestmark = pytest.mark.usefixtures("only_given_tasks")
GIVEN: dict[str, Any] = {"model": "hf", "model_args": "pretrained=m", "tasks": "mmlu", "budget": "256"}


def test_within_a_budget_only_option_orders_are_asked_unless_the_plan_names_more() -> None:
    alone, more = check_plan(GIVEN), check_plan(GIVEN | {"accuracy": True})
    assert (alone.audits, alone.accuracy) == (("leakage_perm",), False)
    assert (more.audits, more.accuracy) == (("leakage_perm",), True)
    assert alone.has_command
    assert not more.has_command
    assert as_command(alone).split("--tasks ")[1] == "mmlu --budget 256"


@pytest.mark.parametrize("basis", [Basis.CONTROL, Basis.ORDERS])
@pytest.mark.parametrize("n_orders", ORDERS_WITHIN)
def test_so_many_questions_as_are_needed_find_what_is_wanted_and_few_find_less(basis: str, n_orders: int) -> None:
    needed = usually_needed(basis, n_orders, 0.5, EVIDENCE_LEVEL)
    assert needed is not None
    bare = round(needed / MARGIN)
    few, enough, many = (dict(usually_found(basis, n_orders, n, EVIDENCE_LEVEL))[3] for n in (8, bare, 4 * bare))
    assert enough == pytest.approx(0.5, abs=0.08)  # one is by draws, the other by a normal approximation
    assert many < enough
    assert math.isnan(few) or few > enough


@pytest.mark.model
@pytest.mark.parametrize("seed", range(3))
def test_what_was_seen_as_a_whole_is_found_by_few_requests_of_which_no_one_is_for_anything_else(
    fakes: type[NamedFake], tmp_path: Path, seed: int
) -> None:
    docs = questions(300)
    written(tmp_path, docs)
    fakes.score = staticmethod(OptionOrders(docs, (2.5, 0.6)))
    outcome = checked(tmp_path, budget=256, seed=seed)
    (verdict,) = outcome.verdicts
    assert verdict.verdict in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE)
    assert (verdict.accuracy, statuses(outcome)) == (None, {"option orders": "to run"})
    assert 247 < len(fakes.requests) <= 256
    n = len(fakes.requests)
    assert checked(tmp_path, budget=256, seed=seed).verdicts == outcome.verdicts
    assert len(fakes.requests) == n


@pytest.mark.model
def test_questions_that_do_not_count_are_not_paid_for(fakes: type[NamedFake], tmp_path: Path) -> None:
    docs = questions(60)
    for doc in docs[::2]:
        doc["choices"] = ["71", "72", "73", "74"]  # a natural order
    written(tmp_path, docs)
    fakes.score = staticmethod(OptionOrders())
    outcome = checked(tmp_path, budget=270)
    (step,) = outcome.plan.steps
    assert (outcome.verdicts[0].verdict, step.n_questions) == (VerdictWord.NONE_FOUND, 30)
    assert not [continuation for _, continuation in fakes.requests if "71" in continuation]


@pytest.mark.model
def test_a_budget_for_less_than_a_verdict_is_refused_before_anything_is_asked(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    written(tmp_path, questions(60))
    with pytest.raises(ValueError, match=r"budget is 100, but a verdict needs 20 questions and .* 180 requests"):
        checked(tmp_path, budget=100)
    assert not fakes.requests


@pytest.mark.model
def test_a_small_benchmark_is_asked_in_as_many_orders_as_the_budget_has_and_nothing_is_promised_for_five(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    fakes.score = staticmethod(OptionOrders())
    written(tmp_path, questions(30))
    (step,) = checked(tmp_path, budget=2_000, dry_run=True).plan.steps
    assert (step.n_questions, step.n_requests) == (30, 30 * (12 + 2 * 12))
    assert step.note.startswith("12 orders each")
    written(tmp_path, questions(5), "five.jsonl")
    outcome = checked(tmp_path, tmp_path / "five.jsonl", budget=2_000)
    assert outcome.plan.steps[0].note == "5 questions are too few for a verdict, which needs 20"
    assert outcome.verdicts[0].verdict == VerdictWord.NO_VERDICT


@pytest.mark.model
def test_two_options_have_two_orders_and_what_would_do_more_leaves_the_budget_out(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    fakes.score = staticmethod(OptionOrders())
    written(tmp_path, questions(60, 2))
    outcome = checked(tmp_path, budget=256, detect="25%")
    (step,), (verdict,) = outcome.plan.steps, outcome.verdicts
    assert step.note.startswith("2 orders each")
    assert verdict.verdict == VerdictWord.INCONCLUSIVE
    assert "--budget" not in verdict.summary
