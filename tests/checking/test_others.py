"""Checks with another model as the reference, and with questions that the model cannot have seen."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.detectors.option_orders import AUDITED, EVERY, MOST_COMPARED, ORDERS_IN_EVERY_LAYOUT
from lm_eval_leakage.jobs.steps import StepStatus
from lm_eval_leakage.records import TokenScores
from tests.checking.conftest import NamedFake, checked, normal, questions, statuses, written
from tests.fakes import by_hash
from tests.written_tasks import write_task

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks", "fakes")]
DOCS = questions(40)


REFERENCE = "reference: option orders"
ONE_LAYOUT = {"layouts": AUDITED}


@pytest.fixture(autouse=True)
def _quiz(tmp_path: Path) -> None:
    written(tmp_path, DOCS)


def test_a_reference_is_audited_after_the_model_and_decides(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, reference="pretrained=other")
    (verdict,) = outcome.verdicts
    assert verdict.basis == "reference"
    assert [built["pretrained"] for built in fakes.built] == ["m", "other"]
    assert len(list((tmp_path / "out" / "reference").rglob("results_*.json"))) == 1
    again = checked(tmp_path, reference="pretrained=other")
    assert statuses(again)[REFERENCE] == StepStatus.THERE
    assert len(fakes.built) == 2
    assert again.verdicts == outcome.verdicts


def test_a_verdict_follows_from_its_own_command_not_from_an_earlier_reference(tmp_path: Path) -> None:
    checked(tmp_path, reference="pretrained=other")
    outcome = checked(tmp_path)
    (verdict,), (fresh,) = outcome.verdicts, checked(tmp_path, output_path=tmp_path / "fresh").verdicts
    assert (verdict.basis, fresh.basis) == ("control", "control")
    assert (verdict.pvalue, verdict.flagged, verdict.accuracy) == (fresh.pvalue, fresh.flagged, fresh.accuracy)
    assert (verdict.look, fresh.look) == (2, 1)  # the same questions by another test are another chance of an alarm
    assert checked(tmp_path, reference="pretrained=other").verdicts[0].look == 1


@pytest.mark.parametrize(
    ("model", "status", "basis"),
    [("other", StepStatus.THERE, "reference"), ("m", StepStatus.NOT_POSSIBLE, "control")],
    ids=["other", "self"],
)
def test_a_folder_of_audits_of_another_model_is_a_reference(
    tmp_path: Path, model: str, status: str, basis: str
) -> None:
    checked(tmp_path, model_args=f"pretrained={model}", output_path=tmp_path / "first")
    outcome = checked(tmp_path, reference=tmp_path / "first" / "runs")
    assert (statuses(outcome)[REFERENCE], outcome.verdicts[0].basis) == (status, basis)
    assert outcome.others == ()


def test_the_model_is_asked_in_the_layouts_in_which_a_folder_has_the_reference(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    for name, layouts, asks_json in ((AUDITED, ONE_LAYOUT, False), (EVERY, {}, True)):
        checked(tmp_path, model_args="pretrained=other", output_path=tmp_path / name, metadata=layouts)
        fakes.requests.clear()
        outcome = checked(tmp_path, reference=tmp_path / name / "runs", output_path=tmp_path / "out" / name)
        assert outcome.verdicts[0].basis == "reference"
        assert any(context.startswith("{") for context, *_ in fakes.requests) == asks_json


def test_orders_that_were_drawn_need_no_reference(tmp_path: Path) -> None:
    file = written(tmp_path, questions(420), "many.jsonl")
    given = {"tasks": str(file), "reference": "pretrained=other", "dry_run": True}
    assert statuses(checked(tmp_path, **given))[REFERENCE] == StepStatus.TO_RUN  # passing tests proves no draw
    assert statuses(checked(tmp_path, **given, orders="random: its README"))[REFERENCE] == StepStatus.NOT_NEEDED


@pytest.mark.parametrize("status", ["random", "written"])
def test_orders_are_asked_in_every_layout_unless_others_are_given(
    fakes: type[NamedFake], tmp_path: Path, status: str
) -> None:
    """A model that has read the benchmark as rows of JSON."""
    rows = {json.dumps({name: doc[name] for name in ("question", "choices")})[: -len('"]}')] for doc in questions(60)}
    fakes.score = staticmethod(lambda *texts: by_hash(*texts) + 6.0 * ("".join(texts) in rows))
    given = {"tasks": str(written(tmp_path, questions(60), "drawn.jsonl")), "orders": f"{status}: its README"}
    assert checked(tmp_path, **given).verdicts[0].verdict == "strong evidence"
    assert checked(tmp_path, out="one", **given, metadata=ONE_LAYOUT).verdicts[0].verdict == "none found"
    assert checked(tmp_path, **given, metadata=ONE_LAYOUT).verdicts[0].look == 2
    pairs = [text for text in fakes.requests if text[0].startswith("{")]
    n_counted = {"random": 60, "written": 59}[status]  # one has a natural order
    assert len(pairs) == n_counted * (ORDERS_IN_EVERY_LAYOUT + MOST_COMPARED * (status == "written"))
    assert checked(tmp_path, **given, budget=240, dry_run=True).plan.steps[0].n_requests <= 240


def test_two_options_are_asked_in_one_layout(tmp_path: Path) -> None:
    """Each layout prefers one or the other, so that several would leave ties."""
    file = written(tmp_path, questions(60, n_options=2), "two.jsonl")
    plans = (
        checked(tmp_path, tasks=str(file), orders="random: its README", metadata=more, dry_run=True)
        for more in ({}, ONE_LAYOUT)
    )
    assert {plan.plan.steps[1].n_requests for plan in plans} == {60 * 2}


def test_unseen_questions_are_asked_in_the_layouts_of_the_benchmark(tmp_path: Path) -> None:
    unseen = written(tmp_path, questions(40, seed=5), "unseen.jsonl")
    outcome = checked(tmp_path, orders="random: its README", unseen=unseen)
    assert outcome.problems == ()
    (log,) = (tmp_path / "out" / "unseen").rglob("samples_*_leakage_perm_*.jsonl")
    assert {json.loads(line)["detector"] for line in log.read_text().splitlines()} >= {"max_order:layouts=every"}


def test_too_few_unseen_questions_are_not_used_and_the_reason_is_reported(tmp_path: Path) -> None:
    unseen = written(tmp_path, questions(5, seed=5), "unseen.jsonl")
    outcome = checked(tmp_path, unseen=unseen)
    assert outcome.problems[0].startswith("the unseen questions are not used: ")
    assert outcome.verdicts[0].verdict == "none found"


def test_runs_of_other_models_only_are_refused_with_their_names(tmp_path: Path) -> None:
    checked(tmp_path)
    with pytest.raises(ValueError, match="no complete run of 'x', only of 'm'; give model_args as in those runs"):
        checked(tmp_path, model_args="pretrained=x", runs=tmp_path / "out")


@pytest.mark.parametrize("prompt", ["Question: {{question}}\\nAnswer:", "Quiz! {{question}} Well?"])
def test_unseen_questions_show_what_leakage_adds_where_they_can_be_asked_as_the_benchmarks(
    fakes: type[NamedFake], tmp_path: Path, prompt: str
) -> None:
    """Of a task that scores texts: a model that knows the right ones of its questions."""
    right_options = {doc["choices"][doc["answer"]] for doc in DOCS}
    fakes.score = staticmethod(lambda context, continuation: 0.0 if continuation.strip() in right_options else -9.0)
    write_task(tmp_path, "short", DOCS, text=f'"{prompt}"')
    unseen = written(tmp_path, questions(60, seed=5), "unseen.jsonl")
    outcome = checked(tmp_path, tasks="short", include_path=str(tmp_path), unseen=unseen)
    (step,) = [step for step in outcome.plan.steps if step.what == "unseen questions: choice confusion"]
    (verdict,) = outcome.verdicts
    assert verdict.accuracy > 0.8
    if prompt.startswith("Question"):
        assert step.status == StepStatus.TO_RUN
        assert verdict.inflation_low > 0.3
        assert verdict.accuracy_clean == pytest.approx(verdict.accuracy - verdict.inflation)
    else:
        assert (step.status, step.note) == (
            StepStatus.NOT_POSSIBLE,
            "other questions cannot be put into the benchmark's own prompt",
        )
        assert verdict.inflation is None


# ---------------------------------------------------------------------- texts beside those of unseen questions

POOL = random.Random(0).sample(questions(100)[10:], 90)
ASKED, UNSEEN = POOL[:40], POOL[40:]


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


def texts_checked(folder: Path, unseen: Sequence[dict[str, Any]] = UNSEEN, **given: Any) -> Any:
    """Check texts with another model as the reference, whose orders these models prefer, too."""
    return checked(
        folder,
        written(folder, ASKED, "asked.jsonl"),
        **{"unseen": written(folder, unseen, "unseen.jsonl"), "reference": "pretrained=other", **given},
    )


def test_texts_that_are_more_predictable_than_those_of_unseen_questions_are_evidence(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    reader(fakes, ["m"])
    outcome = texts_checked(tmp_path)
    (verdict,) = outcome.verdicts
    assert (verdict.verdict, verdict.pvalue) == ("strong evidence", 2 * verdict.pvalue_texts)
    assert verdict.pvalue_texts < 1e-8 < 0.1 < verdict.pvalue_orders
    sentence = (
        "Predicts the texts of 40 questions better than those of 50 unseen questions of the same kind, more than the"
    )
    assert sentence in verdict.summary
    assert "unseen questions" in verdict.citation
    of_reference = {what for what in statuses(outcome) if what.startswith("reference: ")}
    tokens = "token-level evidence"
    assert of_reference == {REFERENCE, f"reference: {tokens}", f"reference: unseen questions: {tokens}"}
    again = texts_checked(tmp_path)
    assert {*statuses(again).values()} <= {StepStatus.THERE, StepStatus.NOT_POSSIBLE}
    assert again.verdicts == outcome.verdicts
    folder = texts_checked(tmp_path, reference=tmp_path / "out" / "reference", output_path=tmp_path / "second")
    assert folder.verdicts[0].pvalue_texts is None  # the folder lacks the unseen questions


@pytest.mark.parametrize("readers", [[], ["m", "other"]])
def test_texts_that_the_reference_predicts_as_well_are_none(
    fakes: type[NamedFake], tmp_path: Path, readers: list[str]
) -> None:
    reader(fakes, readers)
    (verdict,) = texts_checked(tmp_path).verdicts
    assert verdict.verdict not in ("strong evidence", "evidence")
    assert verdict.pvalue_texts > 0.01


def test_without_a_reference_texts_are_not_tested(fakes: type[NamedFake], tmp_path: Path) -> None:
    """A few typing errors in the unseen ones would be taken for memory of the others."""
    reader(fakes, ["m"])
    outcome = texts_checked(tmp_path, reference=None)
    assert (outcome.verdicts[0].verdict, outcome.verdicts[0].pvalue_texts) == ("none found", None)
    assert "(--unseen FILE) and a reference (--reference) its texts are tested, too" in outcome.page.read_text()


def test_unseen_questions_that_can_be_distinguished_say_nothing_about_texts(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    reader(fakes, ["m"])
    others = [{**doc, "question": doc["question"].replace("Which", "Whose")} for doc in UNSEEN]
    outcome = texts_checked(tmp_path, others)
    assert outcome.verdicts[0].pvalue_texts is None
    assert "without any model they can be distinguished from the benchmark" in outcome.page.read_text()


def test_texts_that_show_evidence_where_orders_cannot_be_tested_are_a_look(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    """The right option stands first in all questions, and there are two. Else whoever tries several files of unseen
    questions has as many chances of a false alarm."""
    reader(fakes, ["m"])
    docs, unseen = ([{**doc, "choices": doc["choices"][:2], "answer": 0} for doc in some] for some in (ASKED, UNSEEN))
    file = written(tmp_path, docs, "two.jsonl")
    looks = []
    for some in (unseen, unseen[1:], unseen):
        (verdict,) = texts_checked(tmp_path, some, tasks=str(file)).verdicts
        assert (verdict.verdict, verdict.pvalue, verdict.pvalue_orders) == (
            "strong evidence",
            verdict.pvalue_texts,
            None,
        )
        looks.append(verdict.look)
    assert looks == [1, 2, 1]
