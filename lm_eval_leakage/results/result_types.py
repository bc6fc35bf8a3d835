"""Records of the results: audited and annotated questions, rows of tasks, groups and subjects, annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval_leakage.logs.audit_line import Arms, AuditLine
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.records import FillerAnswers, OrderAnswers, Question
from lm_eval_leakage.results.detector_values import DetectorValue, Values
from lm_eval_leakage.results.provenance import NOT_RECORDED, Provenance
from lm_eval_leakage.results.verdict import NOT_AUDITED, DataVerdict
from lm_eval_leakage.stats.pooling import (
    Estimate,
)

Lines = Mapping[str, AuditLine]  # of one question, by detector


@dataclass(frozen=True)
class AuditedQuestion:
    """The results of a model's audits for one question.

    benchmark: the audited task's name; subject: according to the benchmark, else the task's name
    question, options, answer: as published; no options if the row could not be read
    flagged, pvalue, null_rate: of the run's main detector; None if it did not test the question. With two options no
        question can be flagged: flagged is None, and only the p-value of all questions together is meaningful
    reason: why it was not tested; None if it was
    score: what the detector ranks questions by, a higher one meaning more leakage
    margin: log-likelihood of the published order minus that of the best other one, nats
    n_orders, loglikelihoods: of the orders that were asked, published first, nats; empty if none were
    outlier: whether the outlier test flags it
    outlier_null_rate: the probability of that without leakage
    guards: which natural orders its options have
    arms: of choice confusion; None without that audit
    others: values of all other detectors, by id
    orders: what the verdict on the data set is computed from; None if no orders were asked
    fillers: likewise; None if its row was not asked with the fillers of others
    is_shard: whether it is several neighbouring questions, which no run answers as one
    key: equal for copies, which have the same verdict within a task
    n_rows: number of rows of the audit that are this one, to the letter
    """

    doc_hash: str
    content: str
    benchmark: str
    subject: str
    question: str
    options: tuple[str, ...]
    answer: int | None
    flagged: bool | None = None
    pvalue: float | None = None
    null_rate: float | None = None
    reason: str | None = None
    score: float | None = None
    margin: float | None = None
    n_orders: int | None = None
    loglikelihoods: tuple[float, ...] = ()
    outlier: bool | None = None
    outlier_null_rate: float | None = None
    guards: tuple[str, ...] = ()
    arms: Arms | None = None
    others: Mapping[str, Values] = field(default_factory=dict)
    orders: OrderAnswers | None = None
    fillers: FillerAnswers | None = None
    is_shard: bool = False
    key: str = ""
    n_rows: int = 1


@dataclass(frozen=True)
class AnnotatedQuestion:
    """A run's answer to one question, with what the audits found; `audited` is None if no audit has it, or before it
    was looked for.

    scores: by "metric,filter", as the samples log has them (for accuracies 1.0 is correct, 0.0 is wrong)
    withheld: those that the log has, but that cannot be right
    left_out: why the run has no scores for it, in words; empty if it has, or if the run does not say why
    length: characters of the row's texts
    log: the samples log that it was read from; n_shot: number of examples of that run
    filters: the harness's filters under which the log has it
    key: as of `questions.families`; empty if the row has no known schema
    doc_hash: empty if the run does not record the question's data row
    question: as its prompt words it, if `doc_hash` is empty; None without options, and where the row is recorded
    """

    task: str
    doc_id: int
    doc_hash: str
    content: str
    subject: str
    length: int
    scores: Mapping[str, float]
    audited: AuditedQuestion | None = None
    log: str = ""
    n_shot: str = ""
    filters: frozenset[str] = frozenset()
    key: str = ""
    question: Question | None = None
    withheld: frozenset[str] = frozenset()
    left_out: str = ""


@dataclass(frozen=True)
class Row:
    """One task, group ("group") or subject of a task ("subject"), for one metric of a model.

    metric: "acc,none" as in the harness's results; empty for questions that were audited but not answered in a run
    n, accuracy: as the harness gave them, with copies of questions
    n_joined: questions of the run that were matched to an audit, each once; n_tested: those that the main detector
        tested
    values: of the columns that are computed from questions, by key; read them by the column: `FLAGGED.of(row)`
    group: the outermost group that contains the task or group; empty if none does
    others: values of the detectors that have no column
    flags: of the tested questions, by the hash of their row
    origin: the results file that its accuracy is from; empty if there is none
    verdict: on its questions together, adjusted for the number of verdicts that are shown
    provenance: of the run that the verdict is from
    n_copies: how many of the `n` are copies of others, which count in no other number but the accuracy
    n_left_out: how many of the `n` the accuracy does not count: too long for the model's window, or without a valid
        answer, as far as the run says
    n_too_long: questions that were not asked, by the run or by an audit, since they are longer than the window
    window_needed: tokens that a window must hold for all of these; 0 if there are none
    untested: numbers of questions that an audit could not ask for another reason, by the reason
    unread: which rows of the benchmark's file are no questions that can be asked, and why; empty if there are none
    """

    model: str
    task: str
    level: str
    metric: str
    n_shot: str
    n: int
    accuracy: Estimate
    n_joined: int
    n_tested: int
    values: Mapping[str, str | int | float | Estimate] = field(default_factory=dict)
    group: str = ""
    others: Sequence[DetectorValue] = ()
    flags: Mapping[str, bool] = field(default_factory=dict)
    origin: str = ""
    verdict: DataVerdict = NOT_AUDITED
    provenance: Provenance = NOT_RECORDED
    n_copies: int = 0
    n_left_out: int = 0
    n_too_long: int = 0
    window_needed: int = 0
    untested: Mapping[str, int] = field(default_factory=dict)
    unread: str = ""

    @property
    def name(self) -> str:
        """Return the task's name, with the number of few-shot examples if there are any."""
        return self.task if self.n_shot in ("", "0") else f"{self.task} ({self.n_shot}-shot)"


@dataclass(frozen=True)
class Annotation:
    """One model's runs with its audits.

    detector: id of the one whose flags the columns show, such as "max_order" or "max_order:orders=12"
    rows: tasks, groups and subjects in the order of the results, a group before its members
    questions: of the run's tasks; audited questions that no run answered are not among them
    audited_questions: all questions of the audits
    groups: members of each group of the runs
    problems: what could not be read or joined, and what was ignored
    origins: files and versions that it was made from
    names: of tasks and groups that were renamed, since others of that name have other rows: their names in the files
    """

    model: str
    detector: str
    rows: tuple[Row, ...]
    questions: tuple[AnnotatedQuestion, ...]
    audited_questions: tuple[AuditedQuestion, ...]
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    origins: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


def merged(annotations: Sequence[Annotation]) -> Annotation:
    """Return one annotation of all that several say of one model, each question that was audited once."""
    if len(annotations) == 1:
        return annotations[0]
    first, *_ = annotations
    audited = [question for annotation in annotations for question in annotation.audited_questions]
    once = {
        (question.benchmark, question.doc_hash): question
        for question in sorted(audited, key=lambda question: bool(question.flagged))
    }
    keys = dict.fromkeys(key for annotation in annotations for key in annotation.origins)
    return Annotation(
        first.model,
        ", ".join(dict.fromkeys(annotation.detector for annotation in annotations if annotation.detector)),
        tuple(row for annotation in annotations for row in annotation.rows),
        tuple(question for annotation in annotations for question in annotation.questions),
        tuple(once.values()),
        {name: members for annotation in annotations for name, members in annotation.groups.items()},
        tuple(dict.fromkeys(problem for annotation in annotations for problem in annotation.problems)),
        {
            key: [*dict.fromkeys(origin for annotation in annotations for origin in annotation.origins.get(key, ()))]
            for key in keys
        },
        {name: original for annotation in annotations for name, original in annotation.names.items()},
    )
