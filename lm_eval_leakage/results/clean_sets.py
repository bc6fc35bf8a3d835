"""What is guaranteed for the questions that a clean set keeps.

Chooses the questions of each task that remain when those that models have probably seen are removed.

`weak` removes every flagged question; `strong` those that are flagged and answered correctly (Hidayat et al. 2025).

The files of a clean set, as text: the list of its questions, its task and its groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from lm_eval_leakage.questions.families import each_once
from lm_eval_leakage.results.answered import accuracy_of
from lm_eval_leakage.results.formatting import counted, percent
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, AuditedQuestion, grouped
from lm_eval_leakage.stats.conformal import CONFIDENCE, FEWEST_SEEN, KeptQuestions, check_target_rate, keep
from lm_eval_leakage.texts import as_json, as_yaml

FEWEST_TO_KEEP = 10  # questions; a set is not chosen from fewer


@dataclass(frozen=True)
class Guarantee:
    """text: what holds for the kept questions, or why nothing does, as a sentence without its full stop
    target_rate: of questions that some model has seen, among the kept of all tasks; None if nothing is guaranteed
    n_kept: questions of all tasks that it holds for
    seen_at_most: how many of them some model has seen at most, with probability `confidence`
    """

    text: str
    target_rate: float | None = None
    n_kept: int | None = None
    seen_at_most: int | None = None
    confidence: float | None = None


NO_GUARANTEE = "nothing is guaranteed for the kept questions"
UNCALIBRATED = Guarantee(f"{NO_GUARANTEE}: without a calibration, how many seen questions are not flagged is unknown")
BY_FLAGS = Guarantee(
    f"{NO_GUARANTEE}: a false-positive rate limits how many unseen questions are left out, not how many seen ones are "
    "kept; for that, give --target_rate and calibrations with known-seen scores of every model"
)


def by_target_rate(annotations: Sequence[Annotation], target_rate: float) -> tuple[list[Annotation], Guarantee]:
    """The same annotations with the questions flagged that must be left out so that at most a share `target_rate` of
    the kept is expected to have been seen by any model; a question that some model was not asked counts as untested.

    The rate is that of all tasks together, in which copies count once. Raises ValueError if a model has too few
    known-seen scores, if there are too few questions, or if nothing can be kept.
    """
    check_target_rate(target_rate)
    if without := [one.model for one in annotations if one.n_known_seen < FEWEST_SEEN]:
        raise ValueError(
            f"target_rate needs {FEWEST_SEEN} or more known-seen scores of every model, but there are fewer of "
            f"{', '.join(without)}; give a calibration with them for each model (`calibrate --seen`), "
            "or leave out the target rate"
        )
    asked = {question.doc_hash: question.content for one in annotations for question in one.questions}
    found = [_seen_pvalues(annotation, asked) for annotation in annotations]
    scored = [name for name in asked if all(name in own for own in found)]
    keys = {q.doc_hash: q.audited.key for one in annotations for q in one.questions if q.audited is not None}
    names = each_once(scored, lambda name: keys.get(name, ""))
    if len(names) < FEWEST_TO_KEEP:
        raise ValueError(
            f"target_rate needs at least {FEWEST_TO_KEEP} questions with a score from every model, but there are "
            f"{len(names)}; audit more questions, or leave out the target rate"
        )
    pvalues = [np.array([own[name] for name in names]) for own in found]
    kept = keep(pvalues, [annotation.n_known_seen for annotation in annotations], target_rate)
    if not kept.n_kept:
        raise ValueError(
            f"no question can be kept at the target_rate {target_rate}: seen and unseen questions score too alike; "
            "give a higher rate, or calibrations of a stronger detector (--calibrated_by)"
        )
    highest = max(own for own, is_kept in zip(kept.pvalues, kept.kept, strict=True) if is_kept)
    judged = {*scored, *filter(None, map(asked.get, scored))}

    def flag(one: AuditedQuestion) -> bool | None:
        is_judged = one.seen_pvalue is not None and (one.doc_hash in judged or one.content in judged)
        return one.seen_pvalue > highest if is_judged and one.seen_pvalue is not None else None

    by_scores = [reflagged(one, "scores of known-seen questions", flag) for one in annotations]
    return by_scores, _guarantee(kept, annotations)


def reflagged(annotation: Annotation, detector: str, flag: Callable[[AuditedQuestion], bool | None]) -> Annotation:
    """The annotation with other flags on its questions."""

    def of(one: AuditedQuestion) -> AuditedQuestion:
        return replace(one, flagged=flag(one))

    questions = (replace(one, audited=one.audited and of(one.audited)) for one in annotation.questions)
    audited = tuple(map(of, annotation.audited_questions))
    return replace(annotation, detector=detector, questions=tuple(questions), audited_questions=audited)


def _guarantee(kept: KeptQuestions, annotations: Sequence[Annotation]) -> Guarantee:
    models = " or ".join(annotation.model for annotation in annotations)
    return Guarantee(
        f"at most {percent(kept.target_rate, 0)} of the {counted(kept.n_kept)} kept in all tasks together are "
        f"expected to have been seen by {models}, and with probability {percent(CONFIDENCE, 0)} at most "
        f"{kept.most_seen} were, if what a model has seen of the benchmark scores like what it is known to have seen",
        kept.target_rate,
        kept.n_kept,
        kept.most_seen,
        CONFIDENCE,
    )


def _seen_pvalues(annotation: Annotation, asked: Mapping[str, str]) -> dict[str, float]:
    """A model's p-values that it has seen a question, by the hash of the row.

    asked: texts of questions by the hashes of their rows
    """
    known = _by_name(one for one in annotation.audited_questions if one.seen_pvalue is not None)
    found = {name: known[key].seen_pvalue for name, text in asked.items() for key in (text, name) if key in known}
    return {name: pvalue for name, pvalue in found.items() if pvalue is not None}


def _by_name(found: Iterable[AuditedQuestion]) -> dict[str, AuditedQuestion]:
    """By the hash of the row, and by that of its text."""
    return {name: one for one in found for name in (one.content, one.doc_hash) if name}


RULES = {"weak": "flagged", "strong": "flagged and answered correctly"}
WHY_FLAGGED, UNSCORED, UNTESTED = "flagged", "flagged, answer unknown", "untested"


@dataclass(frozen=True)
class Kept:
    doc_id: int
    doc_hash: str


@dataclass(frozen=True)
class LeftOut:
    """why: WHY_FLAGGED, UNSCORED (with `strong`, if no run tells whether the answer is correct) or UNTESTED
    by: the models for which that holds
    """

    doc_id: int
    doc_hash: str
    why: str
    by: tuple[str, ...]


@dataclass(frozen=True)
class CleanSet:
    """The questions of a task that are kept, in the task's order, and those that are left out.

    models: those whose runs or audits include the task
    n_untested: questions on which at least one of them was not tested, kept or not
    guarantee: what holds for the kept questions
    """

    task: str
    rule: str
    detector: str
    models: tuple[str, ...]
    kept: tuple[Kept, ...]
    left_out: tuple[LeftOut, ...]
    n_untested: int
    guarantee: Guarantee = UNCALIBRATED

    @property
    def name(self) -> str:
        return clean_name(self.task)

    @property
    def n_questions(self) -> int:
        return len(self.kept) + len(self.left_out)


def clean_name(name: str) -> str:
    """Name of the clean version of a task or group."""
    return f"{name}_clean"


def clean_sets(
    annotations: Sequence[Annotation],
    rule: str = "weak",
    keep_untested: bool = False,
    guarantee: Guarantee = UNCALIBRATED,
) -> list[CleanSet]:
    """One per task of the runs. A question, with its copies, is left out if any model's audit has something against
    it.

    rule: see RULES
    keep_untested: also keep questions that the audit of some model did not test
    guarantee: what the annotations' flags guarantee for the questions without one
    """
    if guarantee.target_rate is not None and (rule != "weak" or keep_untested):
        why = "the rule strong" if rule != "weak" else "keep_untested"
        raise ValueError(
            f"target_rate is {guarantee.target_rate}, but {why} keeps questions for which no rate holds; leave out "
            "one of the two"
        )
    with_rows = [  # a clean task names the data rows that it keeps
        replace(one, questions=tuple(question for question in one.questions if question.doc_hash))
        for one in annotations
    ]
    tasks = list(dict.fromkeys(question.task for annotation in with_rows for question in annotation.questions))
    if not tasks:
        raise ValueError(
            f"the runs of {len(annotations)} model(s) hold no question whose data row is recorded; give folders of "
            "runs of lm_eval with --log_samples, the audits and a run of the base tasks"
        )
    views = [_View(annotation) for annotation in with_rows]
    sets = [_clean_set(task, views, rule, keep_untested) for task in tasks]
    return [replace(one, guarantee=guarantee) for one in sets]


def by_calibration(annotations: Sequence[Annotation]) -> list[Annotation]:
    """The same annotations with calibrated flags instead of the detector's; a question without one counts as untested.

    Raises ValueError for a model without any, since all of its questions would be left out.
    """
    without = [one for one in annotations if all(s.calibrated_flagged is None for s in one.audited_questions)]
    if without:
        why = [str(problem) for one in without for problem in one.problems if "calibration" in str(problem)]
        raise ValueError(
            f"no calibrated flags of {', '.join(one.model for one in without)}; give a calibration of each model, or "
            f"none{''.join(f'; {reason}' for reason in why)}"
        )
    return [reflagged(one, "calibrated scores", lambda asked: asked.calibrated_flagged) for one in annotations]


class _View:
    """Looks up a question in one model's runs and audits."""

    def __init__(self, annotation: Annotation) -> None:
        self.annotation = annotation
        once = {(question.task, question.doc_id): question for question in reversed(annotation.questions)}
        rows = sorted(once.values(), key=lambda question: question.doc_id)  # once, with few examples or many
        self.rows = grouped(rows, lambda question: question.task)
        self._copies = grouped(rows, lambda question: (question.task, _key(question)))
        self._asked = {(question.task, question.doc_hash): question for question in rows}
        self._audited = _by_name(annotation.audited_questions)

    def why_not(self, question: AnnotatedQuestion, rule: str) -> str | None:
        """Why it is left out, by the most serious reason among its copies; None if it is kept."""
        if own := self._asked.get((question.task, question.doc_hash)):
            copies = self._copies[question.task, _key(own)]
            return _gravest({_why_not(copy.audited, copy.scores, rule) for copy in copies})
        # audited, but not answered in a run
        return _why_not(self._audited.get(question.doc_hash) or self._audited.get(question.content), {}, rule)


def _key(question: AnnotatedQuestion) -> str:
    """Equal for copies within a task."""
    return (question.audited and question.audited.key) or question.doc_hash


def _gravest(reasons: Collection[str | None]) -> str | None:
    return next((why for why in (WHY_FLAGGED, UNSCORED, UNTESTED) if why in reasons), None)


def _why_not(audited: AuditedQuestion | None, scores: Mapping[str, float], rule: str) -> str | None:
    if audited is None or audited.flagged is None:
        return UNTESTED
    if rule == "weak" or not audited.flagged:
        return WHY_FLAGGED if audited.flagged else None
    metric = accuracy_of(scores)
    return UNSCORED if metric is None else WHY_FLAGGED if scores[metric] == 1 else None


def _clean_set(task: str, views: Sequence[_View], rule: str, keep_untested: bool) -> CleanSet:
    rows: dict[tuple[str, int], AnnotatedQuestion] = {}  # as many copies as the run with the most copies has
    for view in views:
        for doc_hash, copies in grouped(view.rows.get(task, ()), lambda question: question.doc_hash).items():
            for number, question in enumerate(copies):
                rows.setdefault((doc_hash, number), question)
    first = {doc_hash: question for (doc_hash, number), question in rows.items() if number == 0}
    told = [(view.annotation, {name: view.why_not(one, rule) for name, one in first.items()}) for view in views]
    # a model whose audits tested nothing in the task is not consulted; if that holds for all, it is untested
    heard = [(annotation, reasons) for annotation, reasons in told if {*reasons.values()} != {UNTESTED}] or told
    kept, left_out, n_untested = [], [], 0
    for (doc_hash, _), question in sorted(rows.items(), key=lambda row: row[1].doc_id):
        given = [(annotation.model, reasons[doc_hash]) for annotation, reasons in heard]
        why = _gravest([reason for _, reason in given])
        n_untested += any(reason == UNTESTED for _, reason in given)
        if why is None or (why == UNTESTED and keep_untested):
            kept.append(Kept(question.doc_id, doc_hash))
        else:
            by = tuple(model for model, reason in given if reason == why)
            left_out.append(LeftOut(question.doc_id, doc_hash, why, by))
    return CleanSet(
        task=task,
        rule=rule,
        detector=", ".join(dict.fromkeys(annotation.detector for annotation, _ in heard)),
        models=tuple(dict.fromkeys(annotation.model for annotation, _ in heard)),
        kept=tuple(kept),
        left_out=tuple(left_out),
        n_untested=n_untested,
    )


def render_questions(clean: CleanSet, made_with: Mapping[str, str]) -> str:
    """The JSON file of a set.

    made_with: versions by package
    """
    about = {
        "base": clean.task,
        "rule": clean.rule,
        "detector": clean.detector,
        "models": clean.models,
        "n_questions": clean.n_questions,
        "n_kept": len(clean.kept),
        "n_untested": clean.n_untested,
        "guarantee": asdict(clean.guarantee),
        "made_with": made_with,
        "kept": [*map(asdict, clean.kept)],
        "left_out": [*map(asdict, clean.left_out)],
    }
    return as_json(about, indent=1) + "\n"


def render_task(clean: CleanSet, base: Mapping[str, object], version: object, questions: str) -> str:
    """The YAML of a set's task. JSON is valid YAML.

    base: where the base task's settings are, as metadata for clean_task.py
    version: of the base task; None if it has none
    questions: the JSON file's name
    """
    metadata = {} if version is None else {"version": version}
    metadata |= {"base": clean.task, **base, "questions": questions, "how": _how(clean)}
    return f"task: {as_yaml(clean.name)}\nclass: !function clean_task.CleanTask\nmetadata:\n" + "".join(
        f"  {key}: {as_yaml(value)}\n" for key, value in metadata.items()
    )


def render_group(name: str, members: Sequence[str], metrics: Sequence[str], version: object) -> str:
    """The YAML of a group, whose accuracy is that of all its questions together.

    metrics: those that all members have
    """
    text = f"group: {as_yaml(name)}\ntask:\n" + "".join(f"  - {as_yaml(member)}\n" for member in members)
    if metrics:
        text += "aggregate_metric_list:\n" + "".join(
            f"  - metric: {as_yaml(metric)}\n    aggregation: mean\n    weight_by_size: true\n" for metric in metrics
        )
    return text if version is None else f"{text}metadata:\n  version: {as_yaml(version)}\n"


def _how(clean: CleanSet) -> str:
    n_kept, models = len(clean.kept), ", ".join(clean.models)
    return (
        f"{n_kept} of {clean.n_questions} questions of {clean.task}: without those {RULES[clean.rule]} in audits of "
        f"{models} by {clean.detector}; {clean.guarantee.text}; made by lm-eval-leakage clean"
    )
