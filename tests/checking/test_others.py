"""Checks with another model as the reference, and with questions that the model cannot have seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lm_eval_leakage.jobs.planning import NOT_NEEDED, NOT_POSSIBLE, THERE, TO_RUN
from lm_eval_leakage.records import TokenScores
from tests.checking.conftest import NamedFake, OptionOrders, checked, normal, questions, statuses, written
from tests.written_tasks import write_task

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks")]
DOCS = questions(40)


REFERENCE = "reference: option orders"


@pytest.fixture(autouse=True)
def _quiz(tmp_path: Path) -> None:
    written(tmp_path, DOCS)


def test_a_reference_is_audited_after_the_model_and_decides(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, reference="pretrained=other")
    (one,) = outcome.verdicts
    assert one.basis == "reference"
    assert [built["pretrained"] for built in fakes.built] == ["m", "other"]
    assert len(list((tmp_path / "out" / "reference").rglob("results_*.json"))) == 1
    again = checked(tmp_path, reference="pretrained=other")
    assert statuses(again)[REFERENCE] == THERE
    assert len(fakes.built) == 2
    assert again.verdicts == outcome.verdicts


def test_a_verdict_follows_from_its_own_command_not_from_an_earlier_reference(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    checked(tmp_path, reference="pretrained=other")
    outcome = checked(tmp_path)
    (one,), (fresh,) = outcome.verdicts, checked(tmp_path, output_path=tmp_path / "fresh").verdicts
    assert (one.basis, fresh.basis) == ("control", "control")
    assert (one.pvalue, one.flagged, one.accuracy) == (fresh.pvalue, fresh.flagged, fresh.accuracy)
    assert (one.look, fresh.look) == (2, 1)  # the same questions by another test are another chance of an alarm
    assert checked(tmp_path, reference="pretrained=other").verdicts[0].look == 1


def test_a_folder_of_audits_is_a_reference(fakes: type[NamedFake], tmp_path: Path) -> None:
    checked(tmp_path, model_args="pretrained=other", output_path=tmp_path / "first")
    outcome = checked(tmp_path, reference=tmp_path / "first" / "runs")
    assert statuses(outcome)[REFERENCE] == THERE
    assert outcome.verdicts[0].basis == "reference"
    assert [one.model for one in outcome.others] == []


def test_a_model_is_no_reference_for_itself(fakes: type[NamedFake], tmp_path: Path) -> None:
    checked(tmp_path, output_path=tmp_path / "first")
    outcome = checked(tmp_path, reference=tmp_path / "first" / "runs")
    assert statuses(outcome)[REFERENCE] == NOT_POSSIBLE
    assert outcome.verdicts[0].basis == "control"


def test_orders_that_were_drawn_need_no_reference(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(420), "many.jsonl")
    given = {"tasks": str(file), "reference": "pretrained=other", "dry_run": True}
    assert statuses(checked(tmp_path, **given))[REFERENCE] == TO_RUN  # passing tests proves no draw
    assert statuses(checked(tmp_path, **given, orders="random: its README"))[REFERENCE] == NOT_NEEDED


def test_unseen_questions_become_a_calibration(fakes: type[NamedFake], tmp_path: Path) -> None:
    fakes.score = staticmethod(OptionOrders(DOCS, (2.2, 1.35)))
    unseen = written(tmp_path, questions(60, seed=5), "unseen.jsonl")
    outcome = checked(tmp_path, unseen=unseen)
    assert statuses(outcome)["unseen questions: option orders"] == TO_RUN
    assert list((tmp_path / "out" / "calibrations").glob("m.json"))
    assert not [problem for problem in outcome.problems if problem.startswith("the unseen questions are not used")]
    assert "calibrated" in outcome.page.read_text()
    again = checked(tmp_path, unseen=unseen)
    assert statuses(again)["unseen questions: option orders"] == THERE


def test_too_few_unseen_questions_are_not_used_and_the_reason_is_told(fakes: type[NamedFake], tmp_path: Path) -> None:
    unseen = written(tmp_path, questions(5, seed=5), "unseen.jsonl")
    outcome = checked(tmp_path, unseen=unseen)
    assert outcome.problems[0].startswith("the unseen questions are not used: ")
    assert outcome.verdicts[0].verdict == "none found"


def test_runs_of_other_models_only_are_refused_with_their_names(fakes: type[NamedFake], tmp_path: Path) -> None:
    checked(tmp_path)
    with pytest.raises(ValueError, match="no complete run of 'x', only of 'm'; give model_args as in those runs"):
        checked(tmp_path, model_args="pretrained=x", runs=tmp_path / "out")


@pytest.mark.parametrize("prompt", ["Question: {{question}}\\nAnswer:", "Quiz! {{question}} Well?"])
def test_unseen_questions_tell_what_leakage_adds_where_they_can_be_asked_as_the_benchmarks(
    fakes: type[NamedFake], tmp_path: Path, prompt: str
) -> None:
    """Of a task that scores texts: a model that knows the right ones of its questions."""
    known = {doc["choices"][doc["answer"]] for doc in DOCS}
    fakes.score = staticmethod(lambda context, continuation: 0.0 if continuation.strip() in known else -9.0)
    write_task(tmp_path, "short", DOCS, text=f'"{prompt}"')
    unseen = written(tmp_path, questions(60, seed=5), "unseen.jsonl")
    outcome = checked(tmp_path, tasks="short", include_path=str(tmp_path), unseen=unseen)
    (step,) = [one for one in outcome.plan.steps if one.what == "unseen questions: choice confusion"]
    (found,) = outcome.verdicts
    assert found.accuracy > 0.8
    if prompt.startswith("Question"):
        assert step.status == TO_RUN
        assert found.inflation_low > 0.3
        assert found.accuracy_clean == pytest.approx(found.accuracy - found.inflation)
    else:
        assert (step.status, step.note) == (
            NOT_POSSIBLE,
            "the benchmark's own prompt is not one in which other questions can be asked",
        )
        assert found.inflation is None


# ---------------------------------------------------------------------- texts beside those of unseen questions

_, ASKED, UNSEEN = np.split(np.array(questions(100)), [10, 50])  # the latter two of one pool


def reader(fakes: type[NamedFake], of: Sequence[str]) -> None:
    """Models give the distribution of tokens; those that are named here know the asked texts."""
    stems = [doc["question"] for doc in ASKED]

    def token_scores(self: NamedFake, requests: Sequence[Any]) -> list[TokenScores]:
        name = type(self).built[-1]["pretrained"]
        return [one_text(name, request.args[0]) for request in requests]

    def one_text(name: str, text: str) -> TokenScores:
        knows = 3.0 * (name in of and any(stem in text for stem in stems))
        n = len(text.split())
        hard = 0.1 * normal(text)  # to any model
        return TokenScores((-5.0 + knows + hard + 0.1 * normal(name + text),) * n, (-5.0,) * n, (2.0,) * n)

    fakes.token_scores = token_scores


def texts_checked(folder: Path, **given: Any) -> Any:
    return checked(folder, written(folder, ASKED, "asked.jsonl"), **given)


@pytest.mark.parametrize("reference", [None, "pretrained=other"])
def test_texts_that_are_more_predictable_than_those_of_unseen_questions_are_evidence(
    fakes: type[NamedFake], tmp_path: Path, reference: str | None
) -> None:
    reader(fakes, ["m"])
    given = {"unseen": written(tmp_path, UNSEEN, "unseen.jsonl"), "reference": reference}
    outcome = texts_checked(tmp_path, **given)
    (found,) = outcome.verdicts
    assert (found.verdict, found.pvalue) == ("strong evidence", 2 * found.pvalue_texts)
    assert found.pvalue_texts < 1e-8 < 0.1 < found.pvalue_orders
    assert "Predicts the texts of 40 questions better than those of 50 unseen questions" in found.summary
    assert ("more than the reference does" in found.sentence) == (reference is not None)
    assert "unseen questions" in found.citation
    of_reference = {what for what in statuses(outcome) if what.startswith("reference: ")}
    expected = {REFERENCE, "reference: token-level evidence", "reference: unseen questions: token-level evidence"}
    assert of_reference == (expected if reference else set())
    again = texts_checked(tmp_path, **given)
    assert {*statuses(again).values()} <= {THERE, NOT_POSSIBLE}
    assert again.verdicts == outcome.verdicts


@pytest.mark.parametrize(
    ("readers", "reference"), [([], None), ([], "pretrained=other"), (["m", "other"], "pretrained=other")]
)
def test_texts_that_no_model_or_the_reference_too_predicts_are_none(
    fakes: type[NamedFake], tmp_path: Path, readers: list[str], reference: str | None
) -> None:
    reader(fakes, readers)
    unseen = written(tmp_path, UNSEEN, "unseen.jsonl")
    (found,) = texts_checked(tmp_path, unseen=unseen, reference=reference).verdicts
    assert found.verdict in ("none found", "inconclusive", "cannot be told")  # by orders: these models prefer the same
    assert found.pvalue_texts > 0.01
    if reference is None:
        assert "nor texts that are predicted better than those of 50 unseen questions" in found.summary


def test_unseen_questions_of_other_words_say_nothing_about_texts(fakes: type[NamedFake], tmp_path: Path) -> None:
    reader(fakes, ["m"])
    others = [{**doc, "question": doc["question"].replace("Which", "Whose")} for doc in UNSEEN]
    outcome = texts_checked(tmp_path, unseen=written(tmp_path, others, "unseen.jsonl"))
    (found,) = outcome.verdicts
    assert (found.verdict, found.pvalue_texts) == ("none found", None)
    assert "their words alone tell them from the benchmark" in outcome.page.read_text()


def test_other_unseen_questions_are_another_look(fakes: type[NamedFake], tmp_path: Path) -> None:
    """Else whoever tries several files has as many chances of a false alarm."""
    reader(fakes, [])
    first, second = (written(tmp_path, some, f"{len(some)}.jsonl") for some in (UNSEEN, UNSEEN[1:]))
    looks = [texts_checked(tmp_path, unseen=file).verdicts[0].look for file in (first, second, first)]
    assert looks == [1, 2, 1]
