"""Which questions a clean set keeps, what is guaranteed for them, and the files that say so."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.tasks._yaml_loader import load_yaml

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.clean_sets import (
    BY_FLAGS,
    UNSCORED,
    UNTESTED,
    WHY_FLAGGED,
    CleanSet,
    Kept,
    LeftOut,
    by_calibration,
    by_target_rate,
    clean_sets,
    render_group,
    render_task,
)
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, AuditedQuestion
from lm_eval_leakage.results.verdicts import Calibrating
from lm_eval_leakage.stats.combined import fit
from lm_eval_leakage.stats.conformal import seen_pvalues
from lm_eval_leakage.stats.known_scores import COMBINED, EVERY_CLASS, OWN, Calibration, KnownScores
from tests.results.harness_files import DETECTOR, row, write_run
from tests.results.harness_files import audited as line

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
    found = [one.audited for one in questions if one.audited] if audited is None else audited
    return Annotation(model, "max_order", (), tuple(questions), tuple(found))


def only(annotations: list[Annotation], **options) -> CleanSet:
    (clean,) = clean_sets(annotations, **options)
    return clean


def kept(clean: CleanSet) -> list[int]:
    return [one.doc_id for one in clean.kept]


def left_out(clean: CleanSet) -> dict[int, str]:
    return {one.doc_id: one.why for one in clean.left_out}


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
        own = [question(i, flag, scores=s) for i, (flag, s) in enumerate(run)]
        models.append(
            annotation(*(replace(q, audited=None) if q.audited.flagged == NO_AUDIT else q for q in own), model=name)
        )
    clean = only(models, rule=rule, keep_untested=keep_untested)
    tested = {name: run for name, run in of_model.items() if any(isinstance(flag, bool) for flag, _ in run)}
    asked, expected, n_untested = range(max(map(len, runs))), {}, 0
    for number in asked:  # a model whose audit tested nothing has no say, unless that holds for all
        found = {name: reason(run, number, rule) for name, run in (tested or of_model).items()}
        gravest = next((why for why in (WHY_FLAGGED, UNSCORED, UNTESTED) if why in found.values()), None)
        n_untested += UNTESTED in found.values()
        if gravest is not None and not (gravest == UNTESTED and keep_untested):
            expected[number] = gravest, tuple(name for name, why in found.items() if why == gravest)
    assert {one.doc_id: (one.why, one.by) for one in clean.left_out} == expected
    assert kept(clean) == [number for number in asked if number not in expected]
    assert (clean.n_questions, clean.n_untested) == (len(asked), n_untested)
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


# ---------------------------------------------------------------------- what is guaranteed for the kept questions

SEEN = [float(value) for value in np.random.default_rng(0).normal(4, 1, 99)]


def scored(model: str, pvalues, n_known_seen: int = 99, task: str = "t") -> Annotation:
    known = (replace(audited(f"h{i}", False), seen_pvalue=p if p is None else float(p)) for i, p in enumerate(pvalues))
    questions = [question(i, task=task, audited=one) for i, one in enumerate(known)]
    return replace(annotation(*questions, model=model), n_known_seen=n_known_seen)


def three_models(rng, n: int = 200) -> tuple[list[Annotation], np.ndarray]:
    """Each has seen a fifth of the questions."""
    seen = rng.random((3, n)) < 0.2
    scores = rng.normal(size=seen.shape) + 4 * seen
    pvalues = [seen_pvalues(own, SEEN) for own in scores]
    return [scored(model, own) for model, own in zip("abc", pvalues, strict=True)], seen.any(axis=0)


def at_rate(annotations, rate: float) -> CleanSet:
    judged, guarantee = by_target_rate(annotations, rate)
    return only(judged, guarantee=guarantee)


def test_the_set_is_clean_for_all_models_at_the_target_rate() -> None:
    rng = np.random.default_rng(1)
    rates, shares = [], []
    for _ in range(10):
        annotations, seen = three_models(rng)
        kept = np.array([one.doc_id for one in at_rate(annotations, 0.1).kept])
        rates.append(seen[kept].mean())
        shares.append(len(kept) / (~seen).sum())
    assert np.mean(rates) <= 0.1
    assert np.mean(shares) > 0.8


def test_a_question_is_left_out_for_the_models_that_may_have_seen_it() -> None:
    low, high = np.full(40, 0.01), np.full(40, 0.01)
    high[:10] = 0.9
    clean = at_rate([scored("a", low), scored("b", high)], 0.1)
    assert [one.doc_id for one in clean.kept] == list(range(10, 40))
    assert {one.by for one in clean.left_out} == {("b",)}


def test_a_question_that_one_model_was_not_asked_is_untested_for_all() -> None:
    few = [None, *[0.01] * 39]
    clean = at_rate([scored("a", [0.01] * 40), scored("b", few)], 0.1)
    assert [(one.doc_id, one.why) for one in clean.left_out] == [(0, UNTESTED)]
    assert len(clean.kept) == clean.guarantee.n_kept == 39


def test_a_task_that_one_model_was_not_audited_on_keeps_nothing() -> None:
    both = [scored("a", [0.01] * 40), scored("b", [0.01] * 40)]
    other = scored("a", [0.01] * 60, task="u").questions[40:]
    first = replace(
        both[0],
        questions=both[0].questions + other,
        audited_questions=both[0].audited_questions + tuple(one.audited for one in other),
    )
    judged, guarantee = by_target_rate([first, both[1]], 0.1)
    sets = {one.task: one for one in clean_sets(judged, guarantee=guarantee)}
    assert len(sets["t"].kept) == 40
    assert not sets["u"].kept


def test_a_model_without_a_calibration_is_named() -> None:
    with pytest.raises(
        ValueError,
        match="^target_rate needs 19 or more known-seen scores of every model, but there are "
        "fewer of b; give a calibration with them for each model",
    ):
        by_target_rate([scored("a", [0.01] * 40), scored("b", [None] * 40, 0)], 0.1)


def test_weak_scores_keep_nothing_and_say_why() -> None:
    pvalues = np.random.default_rng(3).random(60)
    with pytest.raises(
        ValueError, match="^no question can be kept at the target_rate 0.05: seen and unseen questions"
    ):
        by_target_rate([scored("a", np.maximum(pvalues, 0.2))], 0.05)


@pytest.mark.parametrize(
    ("options", "why"), [({"rule": "strong"}, "the rule strong"), ({"keep_untested": True}, "keep_u")]
)
def test_what_keeps_other_questions_cannot_have_a_rate(options, why) -> None:
    judged, guarantee = by_target_rate([scored("a", [0.01] * 40)], 0.1)
    with pytest.raises(ValueError, match=f"^target_rate is 0.1, but {why}.* keeps questions for which no rate holds"):
        clean_sets(judged, guarantee=guarantee, **options)


def test_flags_at_a_false_positive_rate_guarantee_nothing_of_what_is_kept() -> None:
    (clean,) = clean_sets([scored("a", [0.01] * 4)], guarantee=BY_FLAGS)
    assert clean.guarantee.text.startswith("nothing is guaranteed for the kept questions: a false-positive rate")
    assert clean.guarantee.text in render_task(clean, {"base_yaml": "t.yaml"}, 1, "t.json")


@pytest.mark.usefixtures("calibrations_are_admitted")
@pytest.mark.parametrize("by", [DETECTOR, COMBINED])
def test_the_audits_scores_are_compared_with_the_known_seen_of_the_calibration(tmp_path, by) -> None:
    docs = [row(i) for i in range(12)]
    write_run(tmp_path, "m", {"bench_leakage_perm": [line(doc, i < 3) for i, doc in enumerate(docs)]})
    unseen, seen = [-2.0 - i / 100 for i in range(40)], [0.5 + i / 100 for i in range(40)]
    together = fit({DETECTOR: [*seen, *unseen]}, [True] * 40 + [False] * 40)
    combined = KnownScores(
        {EVERY_CLASS: [together.probability({DETECTOR: score}) for score in unseen]},
        [together.probability({DETECTOR: score}) for score in seen],
    )
    known = Calibration(
        "m", "bench", OWN, "o", {DETECTOR: KnownScores({EVERY_CLASS: unseen}, seen), COMBINED: combined}, together
    )
    (found,) = annotate([tmp_path], calibrating=[Calibrating(known, by)])
    assert found.n_known_seen == 40
    pvalues = {one.flagged: one.seen_pvalue for one in found.audited_questions}
    assert pvalues[False] == 1 / 41  # lower than any that was seen
    assert pvalues[True] == 1
    few = replace(known, detectors={by: replace(known.detectors[by], seen=seen[:3])})
    (found,) = annotate([tmp_path], calibrating=[Calibrating(few, by)])
    assert {one.seen_pvalue for one in found.audited_questions} == {None}


def test_five_questions_are_too_few() -> None:
    with pytest.raises(ValueError, match="^target_rate needs at least 10 questions .* but there are 5; audit more"):
        by_target_rate([scored("a", [0.01] * 5)], 0.1)
