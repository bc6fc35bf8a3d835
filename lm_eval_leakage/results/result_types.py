"""Collects the values of detectors that have no column in the registry, so that every audit shows up in the results.

What a reader needs to repeat a verdict: which model, which questions, which version of lm_eval, when.

Records of the results: audited and annotated questions, rows of tasks, groups and subjects, annotations.

The questions of audits, each once: its lines, those of its copies, and how many rows ask it.

Every test, rate and list of one model's questions is computed from these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from lm_eval_leakage.logs.audit_line import Arms, AuditLine
from lm_eval_leakage.logs.audits import audited_task, benchmarks_of_groups, with_audits
from lm_eval_leakage.logs.run import CONTENT, LOCAL, Problem, Run, digest_of, leaves
from lm_eval_leakage.records import FillerAnswers, OrderAnswers, Question
from lm_eval_leakage.results.verdict import NOT_AUDITED, DataVerdict
from lm_eval_leakage.stats.pooling import (
    FLAGGED_RATE,
    FLAGGED_RATE_GUARDED,
    FLAGGED_RATE_UNGUARDED,
    NAN,
    NULL_RATE_ROW,
    SKIPPED,
    Estimate,
    mean_and_stderr,
    poisson_binomial_tail,
    share,
)

NO_VALUES_OF_THEIR_OWN = {row.name for row in (SKIPPED, FLAGGED_RATE_GUARDED, FLAGGED_RATE_UNGUARDED)}
Values = Mapping[str, float]  # values of one detector on one question, by name
Key = TypeVar("Key")
One = TypeVar("One")
COMMIT = re.compile(r"[0-9a-f]{40}")
OF_FILES = "files with digest"  # in the provenance of a model with local files
OF_NAME = ("pretrained", "model")  # arguments that name the model itself
HUB_NAME = re.compile(r"(?P<owner>\w[\w.-]*)/(?P<name>\w[\w.-]*)", re.ASCII)  # of a model or data set


def grouped(items: Iterable[One], key: Callable[[One], Key]) -> dict[Key, list[One]]:
    """Return the items by key, in the order in which they come."""
    groups: dict[Key, list[One]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True)
class DetectorValue:
    """One value of one detector, over the questions of a task, group or subject.

    detector: id; name: of the row that the statistic declares
    n: tested questions; estimate: mean over them
    null_rate, pvalue: of a flagged rate alone: the mean null rate, and the probability, by chance, of at least as many
        flags among all tested questions (exact)
    """

    detector: str
    name: str
    n: int
    estimate: Estimate
    null_rate: float = NAN
    pvalue: float = NAN

    @property
    def key(self) -> str:
        """Its name in JSON and CSV: `token_evidence.min_k`."""
        return f"{self.detector}.{self.name}"


def values_of_line(line: AuditLine) -> Values:
    """Return what a question contributes to each row of its statistic; nothing where it was not tested."""
    if line.reason is not None:
        return {}
    null_rate = {} if line.null_rate is None else {NULL_RATE_ROW.name: line.null_rate}
    names = [name for name in line.row_names if name in line.values and name not in NO_VALUES_OF_THEIR_OWN]
    return null_rate | {name: line.values[name] for name in names}


def detector_values(questions: Iterable[Mapping[str, Values]]) -> tuple[DetectorValue, ...]:
    """Return every value of every detector, sorted by detector.

    questions: of each, its values by detector
    """
    measured = [(detector, values) for question in questions for detector, values in question.items() if values]
    return tuple(
        _over_questions(detector, name, [values for _, values in pairs])
        for detector, pairs in sorted(grouped(measured, lambda pair: pair[0]).items())
        for name in dict.fromkeys(name for _, values in pairs for name in values if name != NULL_RATE_ROW.name)
    )


def _over_questions(detector: str, name: str, of_questions: Sequence[Values]) -> DetectorValue:
    numbers = [values[name] for values in of_questions if name in values]
    null_rates = [values[NULL_RATE_ROW.name] for values in of_questions if NULL_RATE_ROW.name in values]
    if name != FLAGGED_RATE.name or not null_rates:
        return DetectorValue(detector, name, len(numbers), share(numbers))
    decidable = [values[name] for values in of_questions if values[NULL_RATE_ROW.name] < 0.5]  # not with 2 options
    rate = share(decidable)
    pvalue = poisson_binomial_tail(round(sum(numbers)), null_rates)
    return DetectorValue(detector, name, len(numbers), rate, mean_and_stderr(null_rates)[0], pvalue)


@dataclass(frozen=True)
class Provenance:
    """The provenance of a result: its model, questions and versions. A value is empty or None where the run does not
    say it.

    model: as it was given; weights: the name of its weights, on the hub or on disk, which may be another one
    revision: its commit, or a digest of its files, in words
    asked_as: backend and what else answers depend on, such as `hf, dtype=bfloat16`
    seed: by which the questions were drawn; None if they were not drawn at random
    lm_eval: its version; date: of the run, in ISO 8601
    digest: of all rows of the benchmark, how they are put, and what is documented about them
    dataset: on the hub, of which the questions are; config: the configuration of it, if there is one for all
    """

    model: str = ""
    revision: str = ""
    asked_as: str = ""
    seed: int | None = None
    lm_eval: str = ""
    date: str = ""
    weights: str = ""
    digest: str = ""
    dataset: str = ""
    config: str = ""


NOT_TOLD = Provenance()


def provenances(runs: Sequence[Run]) -> dict[str, Provenance]:
    """Return provenances by benchmark and group: that of the newest run with an audit of it; without any, of the
    newest run of it."""
    by_name: dict[str, Provenance] = {}
    for run in runs:
        provenance, groups = provenance_of(run), run.results.get("group_subtasks") or {}
        for name in (*run.logs, *groups):
            tasks = leaves(name, groups)
            dataset, config = _dataset(run, tasks)
            digest = _digest(run, dict(zip(tasks, tasks, strict=True)))
            by_name[name] = replace(provenance, digest=digest, dataset=dataset, config=config)
    for run in with_audits(runs):
        provenance, groups = provenance_of(run), benchmarks_of_groups(run)
        audits = {audited_task(run, audit): audit for audit in run.logs}
        for name in (*audits, *groups):
            of_run = by_name.get(name, NOT_TOLD)
            digest = _digest(run, {task: audits.get(task, task) for task in leaves(name, groups)})
            by_name[name] = replace(provenance, digest=digest, dataset=of_run.dataset, config=of_run.config)
    return by_name


def _digest(run: Run, tasks: Mapping[str, str]) -> str:
    """Return the digest of a benchmark's tasks, each with its name in the run; empty if that of a task is not
    recorded."""
    digests = {task: run.data[name] for task, name in tasks.items() if name in run.data}
    return digest_of(digests) if digests and len(digests) == len(tasks) else ""


def _dataset(run: Run, tasks: Sequence[str]) -> tuple[str, str]:
    """Return the data set on the hub that all of the tasks are made from, and the configuration that they have in
    common."""
    configs = [(run.results.get("configs") or {}).get(task) or {} for task in tasks]
    (dataset, *others), (config, *different) = (
        [*dict.fromkeys(str(config.get(key) or "") for config in configs)] for key in ("dataset_path", "dataset_name")
    )
    is_of_hub = HUB_NAME.fullmatch(dataset) and not others and not Path(dataset).exists()
    return (dataset, "" if different else config) if is_of_hub else ("", "")


def provenance_of(run: Run) -> Provenance:
    provenance = provenance_of_model(run.named, run.identity)
    commit = (run.results.get("config") or {}).get("model_sha")  # by the harness
    return replace(
        provenance,
        revision=provenance.revision or (f"revision {commit}" if isinstance(commit, str) and commit else ""),
        seed=run.draw.get("seed"),
        lm_eval=str(run.results.get("lm_eval_version") or ""),
        date=run.time[: len("2026-01-31")],
    )


def provenance_of_model(name: str, identity: Mapping[str, str]) -> Provenance:
    """Return the provenance of a model that has answered nothing yet. The revision is that of the model, then of what
    it was asked with, such as an adapter."""
    revisions, others = dict[str, str](), [identity.get("backend", "")]
    for argument, value in identity.items():
        if match := CONTENT.fullmatch(value):
            digest = match["digest"]
            revisions[argument] = f"{'revision' if COMMIT.fullmatch(digest) else OF_FILES} {digest}"
        elif argument not in (*OF_NAME, "backend"):
            others.append(f"{argument}={value}")
    of_name = [revisions.pop(argument) for argument in OF_NAME if argument in revisions]
    revision = ", ".join([*of_name, *(f"{argument} {content}" for argument, content in revisions.items())])
    named = next((identity[argument] for argument in OF_NAME if argument in identity), name)
    weights = name if LOCAL.fullmatch(named) else match["name"] if (match := CONTENT.fullmatch(named)) else named
    return Provenance(name, revision, ", ".join(filter(None, others)), weights=weights)


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
    key: as of `questions.families`; empty if the row has no known layout
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
    provenance: Provenance = NOT_TOLD
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


Lines = Mapping[str, AuditLine]  # of one question, by detector


@dataclass(frozen=True)
class AskedOnce:
    """A question that one row or several ask.

    key: equal for copies; the hash of the row where it cannot be read
    rows: the lines of each row by its hash, the first row of the benchmark first
    n_rows: number of rows with that hash, of each
    """

    key: str
    rows: Mapping[str, Lines]
    n_rows: Mapping[str, int]

    @property
    def name(self) -> str:
        """Return the hash of the first row."""
        return next(iter(self.rows))

    @cached_property
    def lines(self) -> Lines:
        """Return what counts: of each detector, the line of the first row that it judged."""
        merged: dict[str, AuditLine] = {}
        for by_detector in self.rows.values():
            for detector, line in by_detector.items():
                merged.setdefault(detector, line)
        return merged

    @property
    def first(self) -> AuditLine:
        """Return one line of the first row."""
        return next(iter(self.lines.values()))

    @property
    def scores(self) -> dict[str, float]:
        """Return the scores by the names of detectors."""
        return {name: score for line in self.lines.values() for name, score in line.scores.items()}


def asked_once(lines: Iterable[AuditLine], *, by_task: bool = False) -> list[AskedOnce]:
    """Return the questions of one model's lines, oldest first; if a detector judged a row twice, the later line
    counts.

    by_task: whether what two tasks ask counts once for each
    """
    rows: dict[str, dict[str, AuditLine]] = {}
    repeated: dict[str, set[int | None]] = {}
    for line in lines:
        row = rows.setdefault(line.question, {})
        if line.is_repeated and line.detector in row:
            repeated.setdefault(line.question, set()).add(line.doc_id)
        else:
            row[line.detector] = line
    first = {name: next(iter(by_detector.values())) for name, by_detector in rows.items()}

    def key(name: str) -> tuple[str, str]:
        """Return the key as an audit wrote it; the hash of a row that could not be read, or of a shard."""
        written = (line.question_key for line in rows[name].values() if line.question_key)
        return first[name].benchmark if by_task else "", next(written, name)

    def place(name: str) -> tuple[str, float]:
        """Return the task and the number of the row; unknown numbers last."""
        number = first[name].doc_id
        return first[name].benchmark, math.inf if number is None else number

    return [
        AskedOnce(
            question_key,
            {name: rows[name] for name in sorted(names, key=place)},
            {name: 1 + len(repeated.get(name, ())) for name in names},
        )
        for (_, question_key), names in grouped(rows, key).items()
    ]
