"""Where many questions are needed, a first stage of fewer ends with clear evidence, or if it excludes the aim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.drawing import FEWEST_DRAWN, FIRST_PART, STAGED_FROM
from lm_eval_leakage.jobs.findings import read_looks
from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.results.verdict import VerdictWord
from lm_eval_leakage.results.verdict_record import VERDICTS, CheckedTask
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions, written

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks", "fakes")]
N = 1000
ONE_LAYOUT = {"layouts": "audited"}


@pytest.fixture
def clean(fakes: type[NamedFake], tmp_path: Path) -> list[dict[str, object]]:
    docs = questions(N)
    written(tmp_path, docs)
    fakes.score = staticmethod(OptionOrders())
    return docs


@pytest.fixture
def partly_seen(clean: list[dict[str, object]], fakes: type[NamedFake]) -> None:
    """Too few for clear evidence by the first stage, and too many to be excluded."""
    fakes.score = staticmethod(OptionOrders(clean[::8], (2.2, 0.6)))


def verdict(outcome: CheckOutcome) -> CheckedTask:
    (verdict,) = outcome.verdicts
    return verdict


def questions_asked(outcome: CheckOutcome) -> int:
    return next(step.n_questions for step in outcome.plan.steps if step.what == "option orders")


@pytest.mark.parametrize(("is_seen", "word"), [(True, VerdictWord.STRONG_EVIDENCE), (False, VerdictWord.NONE_FOUND)])
def test_what_is_found_or_excluded_at_once_is_asked_no_further_and_the_rest_of_the_check_is_about_it(
    clean: list[dict[str, object]], fakes: type[NamedFake], tmp_path: Path, is_seen: bool, word: str
) -> None:
    fakes.score = staticmethod(OptionOrders(clean if is_seen else [], (2.2, 0.6)))
    messages: list[str] = []
    given = {"seed": 1, "metadata": ONE_LAYOUT}
    outcome = checked(tmp_path, say=messages.append, detect=0.25, **given)
    assert (verdict(outcome).verdict, verdict(outcome).n, questions_asked(outcome)) == (word, 200, FEWEST_DRAWN)
    assert any(line.startswith(f"decided by {FEWEST_DRAWN} questions of quiz\n") for line in messages)
    assert [look.number for look in read_looks(tmp_path / "out")] == [1]
    n_asked = len(fakes.requests)
    assert (checked(tmp_path, detect=0.25, **given).verdicts, len(fakes.requests)) == (outcome.verdicts, n_asked)
    stricter = checked(tmp_path, detect=0.18, **given)  # which the first stage cannot exclude
    assert questions_asked(stricter) == N * (FIRST_PART if is_seen else 1)


def test_otherwise_all_are_asked_and_no_answer_of_the_first_stage_is_asked_for_again(
    partly_seen: None, fakes: type[NamedFake], tmp_path: Path
) -> None:
    messages: list[str] = []
    outcome = checked(tmp_path, say=messages.append, detect=0.25)
    n = questions_asked(outcome)
    assert STAGED_FROM <= n < N
    assert (verdict(outcome).n, verdict(outcome).look) == (n, 1)
    assert [look.number for look in read_looks(tmp_path / "out")] == [1]
    assert any("clear evidence ends it, or the exclusion of 25" in line for line in messages)
    assert not any("will be run again" in line for line in messages)
    orders = [pair for pair in fakes.requests if len(pair[1]) > 5]
    assert len(orders) == len(set(orders))
    n_asked = len(fakes.requests)
    assert (checked(tmp_path, detect=0.25).verdicts, len(fakes.requests)) == (outcome.verdicts, n_asked)
    # the level of the first stage is taken off
    (record,) = json.loads((tmp_path / "out" / VERDICTS).read_text())["verdicts"]
    assert record["pvalue_adjusted"] == pytest.approx(min(1.0, record["pvalue"] / (0.75 * 0.9)))


def test_unseen_questions_are_asked_in_the_first_stage_and_not_again(partly_seen: None, tmp_path: Path) -> None:
    unseen = written(tmp_path, questions(60, seed=5), "unseen.jsonl")
    messages: list[str] = []
    outcome = checked(tmp_path, say=messages.append, detect=0.25, unseen=unseen)
    assert (outcome.lost, outcome.n_done) == ((), outcome.n_units)
    assert any("clear evidence ends it, or the exclusion of 25" in line for line in messages)
    assert not any("will be run again" in line for line in messages)
    kinds = [attempt.unit.kind for attempt in outcome.folder.attempts()]
    assert (kinds.count("leakage_perm"), kinds.count("unseen-leakage_perm")) == (2, 1)


def test_a_number_of_questions_or_one_that_needs_no_more_has_one_stage(
    clean: list[dict[str, object]], tmp_path: Path
) -> None:
    for place, given in enumerate(({"questions": 450}, {"detect": "60%"})):
        messages: list[str] = []
        outcome = checked(tmp_path, say=messages.append, output_path=tmp_path / f"out{place}", **given)
        assert questions_asked(outcome) == given.get("questions", FEWEST_DRAWN)
        assert not any("first stage" in line for line in messages)
        assert (verdict(outcome).verdict == VerdictWord.NONE_FOUND) >= ("detect" in given)
