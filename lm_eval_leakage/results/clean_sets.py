"""Chooses the questions of each task that remain when those that models have probably seen are removed.

`weak` removes every flagged question; `strong` those that are flagged and answered correctly (Hidayat et al. 2025).

The files of a clean set, as text: the list of its questions, its task and its groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, AuditedQuestion
from lm_eval_leakage.results.task_runs import accuracy_metric
from lm_eval_leakage.texts import as_json, as_yaml

NO_GUARANTEE = "nothing is guaranteed for the kept questions: how many seen questions are not flagged is unknown"
RULES = {"weak": "flagged", "strong": "flagged and answered correctly"}
WHY_FLAGGED, UNSCORED, UNTESTED = "flagged", "flagged, answer unknown", "untested"


def _by_name(questions: Iterable[AuditedQuestion]) -> dict[str, AuditedQuestion]:
    """Return the questions by the hash of the row, and by that of its text."""
    return {name: question for question in questions for name in (question.content, question.doc_hash) if name}


@dataclass(frozen=True)
class Kept:
    doc_id: int
    doc_hash: str


@dataclass(frozen=True)
class LeftOut:
    """A question that a clean set leaves out.

    why: WHY_FLAGGED, UNSCORED (with `strong`, if no run shows whether the answer is correct) or UNTESTED
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
    """

    task: str
    rule: str
    detector: str
    models: tuple[str, ...]
    kept: tuple[Kept, ...]
    left_out: tuple[LeftOut, ...]
    n_untested: int
    why_untested: str = ""  # the most frequent reason that the audits give; empty if they give none

    @property
    def name(self) -> str:
        return clean_name(self.task)

    @property
    def n_questions(self) -> int:
        return len(self.kept) + len(self.left_out)


def clean_name(name: str) -> str:
    """Return the name of the clean version of a task or group."""
    return f"{name}_clean"


def clean_sets(annotations: Sequence[Annotation], rule: str = "weak", keep_untested: bool = False) -> list[CleanSet]:
    """Return one clean set per task of the runs. A question, with its copies, is left out if any model's audit has
    something against it.

    rule: see RULES
    keep_untested: also keep questions that the audit of some model did not test
    """
    if renamed := {name: original for annotation in annotations for name, original in annotation.names.items()}:
        name = next(iter(renamed.values()))
        several = ", ".join(repr(other) for other, original in renamed.items() if original == name)
        raise ValueError(
            f"{name} is the name of several benchmarks with other rows ({several}), and a clean task restricts only "
            "one; give the folders of that one"
        )
    with_rows = [  # a clean task names the data rows that it keeps
        replace(annotation, questions=tuple(question for question in annotation.questions if question.doc_hash))
        for annotation in annotations
    ]
    tasks = list(dict.fromkeys(question.task for annotation in with_rows for question in annotation.questions))
    if not tasks:
        raise ValueError(
            f"the runs of {len(annotations)} model(s) hold no question whose data row is recorded; give folders of "
            "runs of lm_eval with --log_samples, the audits and a run of the base tasks"
        )
    views = [_View(annotation) for annotation in with_rows]
    return [_clean_set(task, views, rule, keep_untested) for task in tasks]


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
        """Return why it is left out, by the most serious reason among its copies; None if it is kept."""
        if answered := self._asked.get((question.task, question.doc_hash)):
            copies = self._copies[question.task, _key(answered)]
            return _gravest({_why_not(copy.audited, copy.scores, rule) for copy in copies})
        # audited, but not answered in a run
        return _why_not(self._audited.get(question.doc_hash) or self._audited.get(question.content), {}, rule)


def _key(question: AnnotatedQuestion) -> str:
    """Return a key that is equal for copies within a task."""
    return (question.audited and question.audited.key) or question.doc_hash


def _gravest(reasons: Collection[str | None]) -> str | None:
    return next((why for why in (WHY_FLAGGED, UNSCORED, UNTESTED) if why in reasons), None)


def _why_not(audited: AuditedQuestion | None, scores: Mapping[str, float], rule: str) -> str | None:
    if audited is None or audited.flagged is None:
        return UNTESTED
    if rule == "weak" or not audited.flagged:
        return WHY_FLAGGED if audited.flagged else None
    metric = accuracy_metric(scores)
    return UNSCORED if metric is None else WHY_FLAGGED if scores[metric] == 1 else None


def _clean_set(task: str, views: Sequence[_View], rule: str, keep_untested: bool) -> CleanSet:
    rows: dict[tuple[str, int], AnnotatedQuestion] = {}  # as many copies as the run with the most copies has
    for view in views:
        for doc_hash, copies in grouped(view.rows.get(task, ()), lambda question: question.doc_hash).items():
            for number, question in enumerate(copies):
                rows.setdefault((doc_hash, number), question)
    first = {doc_hash: question for (doc_hash, number), question in rows.items() if number == 0}
    all_reasons = [
        (view.annotation, {name: view.why_not(question, rule) for name, question in first.items()}) for view in views
    ]
    # a model whose audits tested nothing in the task is not consulted; if that holds for all, it is untested
    consulted = [
        (annotation, reasons) for annotation, reasons in all_reasons if {*reasons.values()} != {UNTESTED}
    ] or all_reasons
    kept, left_out, n_untested = [], [], 0
    for (doc_hash, _), question in sorted(rows.items(), key=lambda row: row[1].doc_id):
        given = [(annotation.model, reasons[doc_hash]) for annotation, reasons in consulted]
        why = _gravest([reason for _, reason in given])
        n_untested += any(reason == UNTESTED for _, reason in given)
        if why is None or (why == UNTESTED and keep_untested):
            kept.append(Kept(question.doc_id, doc_hash))
        else:
            by = tuple(model for model, reason in given if reason == why)
            left_out.append(LeftOut(question.doc_id, doc_hash, why, by))
    audited = [question.audited for view in views for question in view.rows.get(task, ()) if question.audited]
    reasons = Counter(question.reason for question in audited if question.flagged is None and question.reason)
    return CleanSet(
        task=task,
        rule=rule,
        detector=", ".join(dict.fromkeys(annotation.detector for annotation, _ in consulted)),
        models=tuple(dict.fromkeys(annotation.model for annotation, _ in consulted)),
        kept=tuple(kept),
        left_out=tuple(left_out),
        n_untested=n_untested,
        why_untested=next((reason for reason, _ in reasons.most_common(1)), ""),
    )


def render_questions(clean: CleanSet, made_with: Mapping[str, str]) -> str:
    """Return the JSON file of a set.

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
        "guarantee": NO_GUARANTEE,
        "made_with": made_with,
        "kept": [*map(asdict, clean.kept)],
        "left_out": [*map(asdict, clean.left_out)],
    }
    return as_json(about, indent=1) + "\n"


def render_task(clean: CleanSet, base: Mapping[str, object], version: object, questions: str) -> str:
    """Return the YAML of a set's task. JSON is valid YAML.

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
    """Return the YAML of a group, whose accuracy is that of all its questions together.

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
        f"{models} by {clean.detector}; {NO_GUARANTEE}; made by lm-eval-leakage clean"
    )
