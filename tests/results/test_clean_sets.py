"""Which questions a clean set keeps, and the files that say so."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lm_eval.tasks._yaml_loader import load_yaml

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.results.clean_sets import (
    UNSCORED,
    UNTESTED,
    WHY_FLAGGED,
    CleanSet,
    Kept,
    LeftOut,
    by_calibration,
    clean_sets,
    render_group,
    render_task,
)
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, AuditedQuestion

RIGHT, WRONG = {"acc,none": 1.0}, {"acc,none": 0.0}
VERDICTS = st.sampled_from([True, False, None])


def audited(doc_hash: str, flagged: bool | None, content: str = "") -> AuditedQuestion:
    return AuditedQuestion(doc_hash, content, "benchmark", "", "", options=(), answer=None, flagged=flagged)


def question(doc_id: int, flagged: bool | None = False, task: str = "t", **changes) -> AnnotatedQuestion:
    doc_hash = changes.pop("doc_hash", f"h{doc_id}")
    fields = {
        "content": f"c{doc_hash}",
        "subject": "",
        "length": 1,
        "scores": RIGHT,
        "audited": audited(doc_hash, flagged),
    }
    return AnnotatedQuestion(task=task, doc_id=doc_id, doc_hash=doc_hash, **(fields | changes))


def annotation(
    *questions: AnnotatedQuestion, model: str = "m", audited: list[AuditedQuestion] | None = None
) -> Annotation:
    found = [one.audited for one in questions if one.audited] if audited is None else audited
    return Annotation(model, "max_order", (), tuple(questions), tuple(found))


def only(annotations: list[Annotation], **options) -> CleanSet:
    (clean,) = clean_sets(annotations, **options)
    return clean


def kept(clean: CleanSet) -> list[int]:
    return [one.doc_id for one in clean.kept]


def left_out(clean: CleanSet) -> dict[int, str]:
    return {one.doc_id: one.why for one in clean.left_out}


@pytest.mark.parametrize(("rule", "gone"), [("weak", [0, 2]), ("strong", [0])])
def test_weak_leaves_out_every_flagged_question_and_strong_those_that_are_answered_correctly(rule, gone) -> None:
    models = [annotation(question(0, True), question(1, False), question(2, True, scores=WRONG))]
    clean = only(models, rule=rule)
    assert kept(clean) == [number for number in range(3) if number not in gone]
    assert left_out(clean) == dict.fromkeys(gone, WHY_FLAGGED)


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


def test_strong_leaves_out_a_flagged_question_of_unknown_answer_and_says_so() -> None:
    clean = only([annotation(question(0, True, scores={"f1,none": 1.0}), question(1, scores={}))], rule="strong")
    assert left_out(clean) == {0: UNSCORED}
    assert kept(clean) == [1]


def test_questions_that_were_not_tested_are_left_out_unless_they_are_asked_for() -> None:
    models = [annotation(question(0), question(1, None), question(2, audited=None), question(3, True))]
    without, with_them = only(models), only(models, keep_untested=True)
    assert kept(without) == [0]
    assert left_out(without) == {1: UNTESTED, 2: UNTESTED, 3: WHY_FLAGGED}
    assert kept(with_them) == [0, 1, 2]
    assert without.n_untested == with_them.n_untested == 2


def test_a_question_is_left_out_for_any_model_and_the_models_are_named() -> None:
    models = [
        annotation(question(0), question(1, True), question(2, True), question(3), model="a"),
        annotation(question(0), question(1, True), question(2, None), question(3, True), model="b"),
    ]
    clean = only(models)
    assert clean.models == ("a", "b")
    assert clean.detector == "max_order"
    assert kept(clean) == [0]
    assert clean.left_out == (
        LeftOut(1, "h1", WHY_FLAGGED, ("a", "b")),
        LeftOut(2, "h2", WHY_FLAGGED, ("a",)),
        LeftOut(3, "h3", WHY_FLAGGED, ("b",)),
    )


def test_a_question_that_one_model_was_not_asked_is_untested_by_it() -> None:
    clean = only([annotation(question(0), question(1), model="a"), annotation(question(0), model="b")])
    assert clean.left_out == (LeftOut(1, "h1", UNTESTED, ("b",)),)


def test_a_model_that_was_run_and_not_audited_has_no_say_but_where_nobody_was_nothing_is_kept() -> None:
    audited = annotation(question(0), question(1, True), model="a")
    run_only = annotation(question(0, audited=None), question(1, audited=None), model="b")
    assert kept(only([audited, run_only])) == [0]
    assert left_out(only([run_only])) == {0: UNTESTED, 1: UNTESTED}


def test_by_calibration_its_flags_count() -> None:
    both = [replace(audited(f"h{i}", flagged=i == 0), calibrated_flagged=[False, True, None][i]) for i in range(3)]
    questions = [question(i, audited=both[i]) for i in range(3)]
    (calibrated,) = by_calibration([annotation(*questions)])
    assert left_out(only([calibrated])) == {1: WHY_FLAGGED, 2: UNTESTED}
    assert "calibrated" in only([calibrated]).detector
    with pytest.raises(ValueError, match="calibrated flags of m"):
        by_calibration([annotation(question(0))])


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


def test_copies_of_a_row_are_kept_or_left_out_together() -> None:
    twice = [question(0, True, doc_hash="x", scores=WRONG), question(5, True, doc_hash="x"), question(1)]
    clean = only([annotation(*twice)], rule="strong")
    assert left_out(clean) == {0: WHY_FLAGGED, 5: WHY_FLAGGED}
    both = only([annotation(question(0, doc_hash="x"), question(5, doc_hash="x"))])
    assert both.kept == (Kept(0, "x"), Kept(5, "x"))


def test_several_models_do_not_multiply_copies() -> None:
    run = [question(0, doc_hash="x"), question(5, doc_hash="x"), question(1)]
    clean = only([annotation(*run, model="a"), annotation(*run[::-1], model="b")])
    assert clean.kept == (Kept(0, "x"), Kept(1, "h1"), Kept(5, "x"))


ANSWERED = st.lists(st.tuples(VERDICTS, st.sampled_from([RIGHT, WRONG, {}])), min_size=1, max_size=8)


@given(runs=st.lists(ANSWERED, min_size=1, max_size=3), keep_untested=st.booleans())
def test_every_question_is_kept_or_left_out_once_and_strong_keeps_what_weak_keeps(runs, keep_untested) -> None:
    models = [
        annotation(*(question(i, flagged, scores=s) for i, (flagged, s) in enumerate(run)), model=f"m{number}")
        for number, run in enumerate(runs)
    ]
    weak, strong = (only(models, rule=rule, keep_untested=keep_untested) for rule in ("weak", "strong"))
    for clean in (weak, strong):
        assert sorted([*kept(clean), *left_out(clean)]) == list(range(max(map(len, runs))))
        assert clean.n_questions == max(map(len, runs))
    assert set(kept(weak)) <= set(kept(strong))
    for index in kept(weak):
        assert not any(run[index][0] for run in runs if index < len(run))


@given(run=ANSWERED, more=ANSWERED)
def test_another_model_never_adds_a_question_to_those_it_shares(run, more) -> None:
    assume(all(any(flagged is not None for flagged, _ in one) for one in (run, more)))  # else it has no say
    models = [
        annotation(*(question(i, flagged) for i, (flagged, _) in enumerate(one)), model=name)
        for name, one in (("a", run), ("b", more))
    ]
    assert set(kept(only(models))) <= set(kept(only(models[:1])))


@given(name=st.text(st.characters(), min_size=1))
def test_the_harness_reads_a_task_of_models_with_any_characters(tmp_path_factory, name) -> None:
    clean = CleanSet(name, "weak", name, (name,), (Kept(0, "h"),), (), 0)
    file = tmp_path_factory.mktemp("yaml") / "t.yaml"
    atomic_write(file, render_task(clean, {"base_yaml": name}, 1.0, "list.json"))
    whole = re.sub("[\ud800-\udfff]", "\ufffd", name)
    assert load_yaml(file, resolve_func=False)["metadata"]["base"] == whole
    atomic_write(file, render_group(name, [name], [name], name))
    assert load_yaml(file, resolve_func=False)["task"] == [whole]
