"""Whether there can be a verdict is computed, and printed, before anything is scored."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.check import check
from lm_eval_leakage.jobs.steps import StepStatus
from lm_eval_leakage.records import TokenScores
from tests.checking.conftest import NamedFake, checked, normal, questions, statuses, written
from tests.written_tasks import LETTERED, write_task

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks")]

ORDERS = "option orders"
PASSAGE = "The keeper came. The lamp was lit. Nobody spoke. The ship of {} left. It was late."
Docs = list[dict[str, Any]]


def guarded(n: int) -> Docs:
    """Questions on a text of their own, with more sentences than options."""
    docs, rng = questions(n, seed=2), random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = (" ".join("".join(rng.choices(letters, k=7)) for _ in range(40)) for _ in docs)
    return [
        doc | {"question": f"{PASSAGE.format(word)} {doc['question']}"} for doc, word in zip(docs, words, strict=True)
    ]


def of_one_family(n: int) -> Docs:
    text = "the examination of the keepers of small museums in the north of the country held in the autumn " * 3
    return [doc | {"question": f"After {text}{doc['question']}"} for doc in questions(n)]


def step_of(outcome: Any, what: str = ORDERS) -> Any:
    return next(step for step in outcome.plan.steps if step.what == what)


def orders_asked(fakes: type[NamedFake]) -> int:
    return sum(continuation.count("\n") > 2 for _, continuation in fakes.requests)


def test_guards_on_every_question_are_in_the_plan_and_no_order_is_asked(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    outcome = checked(tmp_path, written(tmp_path, guarded(60)))
    step, (verdict,) = step_of(outcome), outcome.verdicts
    assert (step.status, step.n_requests) == (StepStatus.NOT_POSSIBLE, 0)
    assert step.note == (
        "60 of 60 questions have a natural order (passage 60); none can be tested, and a verdict needs 20; "
        "no number of questions is enough"
    )
    assert "`--orders 'random: SOURCE'`" in step.remedy
    assert f"not possible: {step.note}; {step.remedy}" in outcome.plan.as_text
    assert orders_asked(fakes) == 0
    assert verdict.verdict == "no verdict"
    assert step.note[1:] in verdict.summary
    assert "No command" not in verdict.summary
    assert statuses(outcome)["accuracy"] == StepStatus.TO_RUN
    drawn = checked(tmp_path, tmp_path / "quiz.jsonl", "drawn", orders="random: its README")
    assert (step_of(drawn).status, drawn.verdicts[0].verdict != "no verdict") == (StepStatus.TO_RUN, True)


def test_questions_of_one_family_are_not_asked(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, written(tmp_path, of_one_family(60)), orders="random: its README")
    step, (verdict,) = step_of(outcome), outcome.verdicts
    assert step.note == (
        "60 questions in 1 family with the same options, passage, stem or nearly the same text; at least 20 families "
        "are needed; no number of questions is enough"
    )
    assert (step.status, step.remedy, orders_asked(fakes)) == (StepStatus.NOT_POSSIBLE, "", 0)
    assert verdict.summary.endswith("No command would change that for this model and task.")


def test_where_the_whole_benchmark_is_enough_the_plan_says_how_many_to_draw(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    docs = random.Random(0).sample([*guarded(200), *questions(40, seed=3)], 240)
    outcome = checked(tmp_path, written(tmp_path, docs), questions=30)
    step, (verdict,) = step_of(outcome), outcome.verdicts
    assert step.status == StepStatus.NOT_POSSIBLE
    assert step.note.startswith("of those drawn, ")
    assert "no number" not in step.note
    assert step.remedy == "a verdict may be possible with more questions (`--questions 120`)"
    assert orders_asked(fakes) == 0
    assert verdict.summary.endswith("A verdict may be possible with more questions (`--questions 120`).")
    assert step_of(checked(tmp_path, questions=120, dry_run=True)).status == StepStatus.TO_RUN


def without_letters(n: int) -> Docs:
    """Sums, with results in no order."""
    rng = random.Random(1)
    sums = [rng.sample(range(10_000, 99_999), 6) for _ in range(n)]
    return [
        {"question": f"{first} + {two} =", "choices": [*map(str, options)], "answer": rng.randrange(4)}
        for first, two, *options in sums
        if options not in (sorted(options), sorted(options, reverse=True))
    ]


def test_where_control_forms_change_nothing_a_reference_is_named_and_does(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    docs = without_letters(60)
    prompt = LETTERED["text"].replace("Answer:", "=")
    write_task(tmp_path, "plain", docs, prompt, LETTERED["choices"])
    given = {"tasks": "plain", "include_path": str(tmp_path)}
    outcome = checked(tmp_path, **given)
    step = step_of(outcome)
    assert (step.status, orders_asked(fakes)) == (StepStatus.NOT_POSSIBLE, 0)
    assert step.note.startswith(f"{len(docs)} of {len(docs)} questions are the same in capitals")
    assert step.remedy.startswith("a verdict may be possible with another model as the reference (`--reference`)")
    with_reference = checked(tmp_path, out="referred", **given, reference="pretrained=other")
    assert {step_of(with_reference, what).status for what in (ORDERS, f"reference: {ORDERS}")} == {StepStatus.TO_RUN}
    assert with_reference.verdicts[0].basis == "reference"


def test_a_pattern_of_length_needs_unseen_questions(fakes: type[NamedFake], tmp_path: Path) -> None:
    def from_long_to_short(docs: Docs) -> Docs:
        return [doc | {"choices": sorted(doc["choices"], key=lambda text: -len(text)), "answer": 0} for doc in docs]

    file = written(tmp_path, from_long_to_short(questions(120)))
    step = step_of(checked(tmp_path, file, dry_run=True))
    assert step.status == StepStatus.NOT_POSSIBLE
    assert "(`--unseen FILE`)" in step.remedy
    unseen = written(tmp_path, from_long_to_short(questions(40, seed=9)), "unseen.jsonl")
    plan = checked(tmp_path, file, dry_run=True, unseen=unseen)
    assert {step_of(plan, what).status for what in (ORDERS, f"unseen questions: {ORDERS}")} == {StepStatus.TO_RUN}


def test_a_reference_and_unseen_questions_are_not_asked_for_orders_that_have_no_verdict(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    file, unseen = written(tmp_path, guarded(60)), written(tmp_path, questions(40, seed=9), "unseen.jsonl")
    outcome = checked(tmp_path, file, reference="pretrained=other", unseen=unseen)
    whats = (f"reference: {ORDERS}", f"unseen questions: {ORDERS}")
    assert {step_of(outcome, what).status for what in whats} == {StepStatus.NOT_NEEDED}
    assert orders_asked(fakes) == 0


def test_a_budget_or_an_audit_alone_is_refused_before_anything_is_asked(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    file = written(tmp_path, of_one_family(60))
    for given in ({"budget": 2_000}, {"config": written_plan(tmp_path)}):
        with pytest.raises(ValueError, match="cannot be checked: 60 questions in 1 family .* no number of questions"):
            checked(tmp_path, file, orders="random: its README", **given)
    assert not fakes.requests


def written_plan(folder: Path) -> Path:
    file = folder / "plan.yaml"
    file.write_text("audits: [leakage_perm]\naccuracy: false\n")
    return file


def test_evidence_of_texts_needs_no_option_orders(fakes: type[NamedFake], tmp_path: Path) -> None:
    """Texts of benchmark and unseen questions alike; the model knows the former."""
    docs = random.Random(1).sample(guarded(90), 90)
    stems = [doc["question"] for doc in docs[:40]]

    def token_scores(self: NamedFake, requests: list[Any]) -> list[TokenScores]:
        name = type(self).built[-1]["pretrained"]
        return [scored(name, request.args[0]) for request in requests]

    def scored(name: str, text: str) -> TokenScores:
        knows = 3.0 * (name == "m" and any(stem in text for stem in stems))
        n = len(text.split())
        return TokenScores(
            (-5.0 + knows + 0.1 * normal(text) + 0.1 * normal(name + text),) * n, (-5.0,) * n, (2.0,) * n
        )

    fakes.token_scores = token_scores
    file, unseen = written(tmp_path, docs[:40]), written(tmp_path, docs[40:], "unseen.jsonl")
    assert "`--unseen FILE --reference ARGS`" in step_of(checked(tmp_path, file, dry_run=True)).remedy
    outcome = checked(tmp_path, file, unseen=unseen, reference="pretrained=other")
    assert step_of(outcome).status == StepStatus.NOT_POSSIBLE
    (verdict,) = outcome.verdicts
    assert (verdict.verdict, verdict.pvalue_orders) == ("strong evidence", None)
    assert verdict.summary.startswith("Predicts the texts of 40 questions better than those of 50 unseen questions")


def test_workers_of_an_engine_ask_no_orders_and_its_dry_run_says_why(fakes: type[NamedFake], tmp_path: Path) -> None:
    written(tmp_path, of_one_family(60))
    file = tmp_path / "plan.yaml"
    file.write_text(
        f"models: [{{name: one, model: fake, model_args: {{pretrained: m}}}}]\ntasks: [{tmp_path / 'quiz.jsonl'}]\n"
        f"engine: inline\norders: 'random: its README'\noutput_path: {tmp_path / 'out'}\n"
    )
    outcome = check(config=file)
    assert "no number of questions is enough" in outcome.verdicts[0].summary
    assert orders_asked(fakes) == 0


def test_unseen_questions_that_have_a_natural_order_are_not_asked_in_other_orders(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    file, unseen = written(tmp_path, questions(60)), written(tmp_path, guarded(40), "unseen.jsonl")
    plan = checked(tmp_path, file, unseen=unseen, dry_run=True)
    step = step_of(plan, f"unseen questions: {ORDERS}")
    assert step.status == StepStatus.NOT_POSSIBLE
    assert step.note.startswith("they do not say what is natural: 40 of 40 questions have a natural order (passage 40")
    assert step_of(plan).status == step_of(plan, "unseen questions: choice confusion").status == StepStatus.TO_RUN
