"""What is guaranteed for the questions that a clean set keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.clean_sets import (
    BY_FLAGS,
    UNTESTED,
    CleanSet,
    by_target_rate,
    clean_sets,
    render_task,
)
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, AuditedQuestion
from lm_eval_leakage.results.verdicts import Calibrating
from lm_eval_leakage.stats.combined import fit
from lm_eval_leakage.stats.conformal import seen_pvalues
from lm_eval_leakage.stats.known_scores import COMBINED, EVERY_CLASS, OWN, Calibration, KnownScores
from tests.results.harness_files import DETECTOR, audited, row, write_run

SEEN = [float(value) for value in np.random.default_rng(0).normal(4, 1, 99)]
MODELS = ("a", "b", "c")


def question(number: int, pvalue: float | None, task: str = "t") -> AnnotatedQuestion:
    name = f"h{number}"
    found = AuditedQuestion(name, f"c{name}", "bench", "", "", (), None, flagged=False, seen_pvalue=pvalue)
    return AnnotatedQuestion(task, number, name, f"c{name}", "", 1, {"acc,none": 1.0}, found)


def annotation(model: str, pvalues, n_known_seen: int = 99, task: str = "t") -> Annotation:
    questions = tuple(question(i, None if p is None else float(p), task) for i, p in enumerate(pvalues))
    found = tuple(one.audited for one in questions)
    return Annotation(model, "max_order", (), questions, found, n_known_seen=n_known_seen)


def three_models(rng, n: int = 200) -> tuple[list[Annotation], np.ndarray]:
    """Each has seen a fifth of the questions."""
    seen = rng.random((3, n)) < 0.2
    scores = rng.normal(size=seen.shape) + 4 * seen
    pvalues = [seen_pvalues(own, SEEN) for own in scores]
    return [annotation(model, own) for model, own in zip(MODELS, pvalues, strict=True)], seen.any(axis=0)


def only(annotations, rate: float) -> CleanSet:
    judged, guarantee = by_target_rate(annotations, rate)
    (clean,) = clean_sets(judged, guarantee=guarantee)
    return clean


def test_the_set_is_clean_for_all_models_at_the_target_rate() -> None:
    rng = np.random.default_rng(1)
    rates, shares = [], []
    for _ in range(10):
        annotations, seen = three_models(rng)
        kept = np.array([one.doc_id for one in only(annotations, 0.1).kept])
        rates.append(seen[kept].mean())
        shares.append(len(kept) / (~seen).sum())
    assert np.mean(rates) <= 0.1
    assert np.mean(shares) > 0.8


def test_a_question_is_left_out_for_the_models_that_may_have_seen_it() -> None:
    low, high = np.full(40, 0.01), np.full(40, 0.01)
    high[:10] = 0.9
    clean = only([annotation("a", low), annotation("b", high)], 0.1)
    assert [one.doc_id for one in clean.kept] == list(range(10, 40))
    assert {one.by for one in clean.left_out} == {("b",)}


def test_a_question_that_one_model_was_not_asked_is_untested_for_all() -> None:
    few = [None, *[0.01] * 39]
    clean = only([annotation("a", [0.01] * 40), annotation("b", few)], 0.1)
    assert [(one.doc_id, one.why) for one in clean.left_out] == [(0, UNTESTED)]
    assert len(clean.kept) == clean.guarantee.n_kept == 39


def test_a_task_that_one_model_was_not_audited_on_keeps_nothing() -> None:
    both = [annotation("a", [0.01] * 40), annotation("b", [0.01] * 40)]
    other = annotation("a", [0.01] * 60, task="u").questions[40:]
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
        by_target_rate([annotation("a", [0.01] * 40), annotation("b", [None] * 40, 0)], 0.1)


def test_weak_scores_keep_nothing_and_say_why() -> None:
    pvalues = np.random.default_rng(3).random(60)
    with pytest.raises(
        ValueError, match="^no question can be kept at the target_rate 0.05: seen and unseen questions"
    ):
        by_target_rate([annotation("a", np.maximum(pvalues, 0.2))], 0.05)


@pytest.mark.parametrize(
    ("options", "why"), [({"rule": "strong"}, "the rule strong"), ({"keep_untested": True}, "keep_u")]
)
def test_what_keeps_other_questions_cannot_have_a_rate(options, why) -> None:
    judged, guarantee = by_target_rate([annotation("a", [0.01] * 40)], 0.1)
    with pytest.raises(ValueError, match=f"^target_rate is 0.1, but {why}.* keeps questions for which no rate holds"):
        clean_sets(judged, guarantee=guarantee, **options)


def test_flags_at_a_false_positive_rate_guarantee_nothing_of_what_is_kept() -> None:
    (clean,) = clean_sets([annotation("a", [0.01] * 4)], guarantee=BY_FLAGS)
    assert clean.guarantee.text.startswith("nothing is guaranteed for the kept questions: a false-positive rate")
    assert clean.guarantee.text in render_task(clean, {"base_yaml": "t.yaml"}, 1, "t.json")


@pytest.mark.usefixtures("calibrations_are_admitted")
@pytest.mark.parametrize("by", [DETECTOR, COMBINED])
def test_the_audits_scores_are_compared_with_the_known_seen_of_the_calibration(tmp_path, by) -> None:
    docs = [row(i) for i in range(12)]
    write_run(tmp_path, "m", {"bench_leakage_perm": [audited(doc, i < 3) for i, doc in enumerate(docs)]})
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
        by_target_rate([annotation("a", [0.01] * 5)], 0.1)
