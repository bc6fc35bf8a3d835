"""Which questions a clean set keeps, and the files that say so."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.tasks._yaml_loader import load_yaml

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.results.clean_sets import (
    NO_GUARANTEE,
    UNSCORED,
    UNTESTED,
    WHY_FLAGGED,
    CleanSet,
    Kept,
    LeftOut,
    clean_sets,
    render_group,
    render_questions,
    render_task,
)
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, AuditedQuestion

RIGHT, WRONG = {"acc,none": 1.0}, {"acc,none": 0.0}


def audited(doc_hash: str, flagged: bool | None, content: str = "") -> AuditedQuestion:
    return AuditedQuestion(doc_hash, content, "benchmark", "", "", options=(), answer=None, flagged=flagged)


def question(doc_id: int, flagged: bool | None = False, task: str = "t", **changes) -> AnnotatedQuestion:
    doc_hash = changes.pop("doc_hash", f"h{doc_id}")
    usual = {"content": f"c{doc_hash}", "scores": RIGHT, "audited": audited(doc_hash, flagged)}
    return AnnotatedQuestion(task, doc_id, doc_hash, subject="", length=1, **(usual | changes))


def annotation(
    *questions: AnnotatedQuestion, model: str = "m", audited: list[AuditedQuestion] | None = None
) -> Annotation:
    questions_audited = (
        [question.audited for question in questions if question.audited] if audited is None else audited
    )
    return Annotation(model, "max_order", (), tuple(questions), tuple(questions_audited))


def only(annotations: list[Annotation], **options) -> CleanSet:
    (clean,) = clean_sets(annotations, **options)
    return clean


def kept(clean: CleanSet) -> list[int]:
    return [row.doc_id for row in clean.kept]


def left_out(clean: CleanSet) -> dict[int, str]:
    return {row.doc_id: row.why for row in clean.left_out}


NO_AUDIT = "no audit"
ANSWERED = st.lists(
    st.tuples(st.sampled_from([True, False, None, NO_AUDIT]), st.sampled_from([RIGHT, WRONG, {"f1,none": 1.0}])),
    min_size=1,
    max_size=8,
)


def reason(run, number: int, rule: str) -> str | None:
    """Why a model's run leaves out a question, by the rule."""
    flagged, scores = run[number] if number < len(run) else (None, {})
    if flagged in (None, NO_AUDIT):
        return UNTESTED
    if not flagged or (rule == "strong" and scores == WRONG):
        return None
    return WHY_FLAGGED if rule == "weak" or scores == RIGHT else UNSCORED


@given(
    runs=st.lists(ANSWERED, min_size=1, max_size=3),
    rule=st.sampled_from(["weak", "strong"]),
    keep_untested=st.booleans(),
)
def test_a_question_is_left_out_for_any_model_by_the_gravest_reason_and_the_models_are_named(
    runs, rule, keep_untested
) -> None:
    of_model = dict(zip("abc", runs, strict=False))
    models = []
    for name, run in of_model.items():
        questions_of_run = [question(i, flag, scores=s) for i, (flag, s) in enumerate(run)]
        models.append(
            annotation(
                *(replace(q, audited=None) if q.audited.flagged == NO_AUDIT else q for q in questions_of_run),
                model=name,
            )
        )
    clean = only(models, rule=rule, keep_untested=keep_untested)
    tested = {name: run for name, run in of_model.items() if any(isinstance(flag, bool) for flag, _ in run)}
    numbers, expected, n_untested = range(max(map(len, runs))), {}, 0
    for number in numbers:  # a model whose audit tested nothing has no say, unless that holds for all
        reasons = {name: reason(run, number, rule) for name, run in (tested or of_model).items()}
        gravest = next((why for why in (WHY_FLAGGED, UNSCORED, UNTESTED) if why in reasons.values()), None)
        n_untested += UNTESTED in reasons.values()
        if gravest is not None and not (gravest == UNTESTED and keep_untested):
            expected[number] = gravest, tuple(name for name, why in reasons.items() if why == gravest)
    assert {row.doc_id: (row.why, row.by) for row in clean.left_out} == expected
    assert kept(clean) == [number for number in numbers if number not in expected]
    assert (clean.n_questions, clean.n_untested) == (len(numbers), n_untested)
    assert clean.models == tuple(tested or of_model)


@pytest.mark.parametrize(
    ("scores", "stays"),
    [
        ({"acc_norm,none": 1.0, "acc,none": 0.0}, True),
        ({"acc_norm,none": 0.0, "acc,none": 1.0}, False),
        ({"exact_match,strict": 1.0, "acc_norm,none": 0.0}, True),
        ({"acc_bytes,none": 0.0, "exact_match,strict": 1.0}, False),
    ],
)
def test_strong_goes_by_the_first_of_acc_acc_norm_and_exact_match(scores, stays) -> None:
    clean = only([annotation(question(0, True, scores=scores), question(1))], rule="strong")
    assert (0 in kept(clean)) == stays


def test_a_model_that_knows_nothing_of_a_task_has_no_say_in_it() -> None:
    ours = annotation(question(0), question(1, True), model="a")
    other = annotation(question(0, True, task="u", doc_hash="g0"), model="b")
    first, second = clean_sets([ours, other])
    assert (first.task, first.models, kept(first)) == ("t", ("a",), [0])
    assert (second.task, second.models, kept(second)) == ("u", ("b",), [])


@pytest.mark.parametrize("same", [audited("h1", True), audited("elsewhere", True, "ch1")], ids=["row", "content"])
def test_an_audit_counts_without_a_run_of_its_model(same) -> None:
    other = annotation(model="b", audited=[audited("h0", False), same])
    clean = only([annotation(question(0), question(1), model="a"), other])
    assert clean.models == ("a", "b")
    assert clean.left_out == (LeftOut(1, "h1", WHY_FLAGGED, ("b",)),)


def test_several_models_do_not_multiply_copies() -> None:
    run = [question(0, doc_hash="x"), question(5, doc_hash="x"), question(1)]
    clean = only([annotation(*run, model="a"), annotation(*run[::-1], model="b")])
    assert clean.kept == (Kept(0, "x"), Kept(1, "h1"), Kept(5, "x"))


@given(name=st.text(st.characters(), min_size=1))
def test_the_harness_reads_a_task_of_models_with_any_characters(tmp_path_factory, name) -> None:
    clean = CleanSet(name, "weak", name, (name,), (Kept(0, "h"),), (), 0)
    file = tmp_path_factory.mktemp("yaml") / "t.yaml"
    atomic_write(file, render_task(clean, {"base_yaml": name}, 1.0, "list.json"))
    whole = re.sub("[\ud800-\udfff]", "\ufffd", name)
    assert load_yaml(file, resolve_func=False)["metadata"]["base"] == whole
    atomic_write(file, render_group(name, [name], [name], name))
    assert load_yaml(file, resolve_func=False)["task"] == [whole]


def test_a_task_says_that_nothing_is_guaranteed_for_what_it_keeps() -> None:
    clean = only([annotation(question(0, True), question(1))])
    assert NO_GUARANTEE in render_task(clean, {"base_yaml": "t.yaml"}, 1, "t.json")
    assert json.loads(render_questions(clean, {}))["guarantee"] == NO_GUARANTEE
