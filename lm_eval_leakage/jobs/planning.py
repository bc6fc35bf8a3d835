"""Plans units: which questions are asked, what is there already, what the backend can answer, what is to be run.

Where a plan is carried out in this process, all of its units are planned first, and shown as a table; a worker of an
engine plans each unit when it takes it.

A run counts as one of this model only if it says so: by the identity that was written into it (weights, arguments,
chat template), not by the model's name. Runs that the user names (`--runs`) may say nothing about it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from lm_eval_leakage.detectors.choice_confusion import ChoiceConfusion
from lm_eval_leakage.detectors.option_orders import EVERY, LAYOUT_SETS
from lm_eval_leakage.harness.backends import backend_of, why_cannot_answer
from lm_eval_leakage.harness.costs import RunSize, needs_of, size_of_chosen
from lm_eval_leakage.harness.models.request_tokens import tokenizer_on_disk
from lm_eval_leakage.harness.saved_run import NamedModel
from lm_eval_leakage.harness.task_shelf import LoadedTask, PlacedRow, TaskShelf, digest_of_rows, found_among
from lm_eval_leakage.harness.tasks.base_task import STATUS_KEY
from lm_eval_leakage.harness.tasks.data import FILLERS_KEY, row_names
from lm_eval_leakage.harness.tasks.filler_audit import FillerAudit
from lm_eval_leakage.harness.tasks.prospect import Obstacle, Prospect, natural_before, obstacle_of_unseen
from lm_eval_leakage.harness.tasks.task import drawn
from lm_eval_leakage.harness.tasks.templates import FILLER_AUDIT, FIRST_AUDIT, split_name
from lm_eval_leakage.jobs.design import MANY_TOGETHER, AuditDesign
from lm_eval_leakage.jobs.plan import (
    ALL_QUESTIONS,
    CONFUSION,
    ENOUGH,
    REFERENCE,
    ROOMS,
    RUN,
    RUNS,
    TOKENS,
    Plan,
    Unit,
)
from lm_eval_leakage.logs.audit_line import AuditLine, content_of
from lm_eval_leakage.logs.audits import lines_of_audits
from lm_eval_leakage.logs.model_settings import contradiction
from lm_eval_leakage.logs.run import (
    IDENTITY,
    POSITIVE,
    UNSEEN,
    Problem,
    Run,
    identity_differences,
    model_named,
    same_model,
    sanitized,
)
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.questions.families import QuestionsInPrompts, each_once
from lm_eval_leakage.questions.rendering import AUDITED, whole_text
from lm_eval_leakage.questions.slots import NAMES, NUMBERS
from lm_eval_leakage.questions.statements import NO_DETAIL
from lm_eval_leakage.records import Question
from lm_eval_leakage.registry import without_reference
from lm_eval_leakage.results.answered import TaskRun, chosen_runs
from lm_eval_leakage.results.filler_verdict import NUMBERS_ALONE, rows_usually_needed
from lm_eval_leakage.results.formatting import DASH, about, count, counted, rounded_up, whole_percent
from lm_eval_leakage.results.published_orders import EXACT, PATTERNED_ORDERS
from lm_eval_leakage.results.result_types import AnnotatedQuestion
from lm_eval_leakage.results.verdict_words import EVIDENCE_LEVEL, FEWEST_JUDGED
from lm_eval_leakage.stats.looks import share_alone
from lm_eval_leakage.stats.order_power import DETECT_TIMES
from lm_eval_leakage.stats.order_scores import find_device
from lm_eval_leakage.stats.order_sum import NaturalPart
from lm_eval_leakage.texts import visible

ChosenIndices = Mapping[str, Sequence[int]]  # indices of questions by task, sorted, as lm_eval's `samples` takes them


def drawn_once(rows: Sequence[PlacedRow], n: int | None, seed: int) -> list[PlacedRow]:
    """`n` questions at random, none a copy of another; all rows, with copies, for None or if there are no more
    questions."""
    once = each_once(rows, lambda row: row.key)
    return list(rows) if n is None or n >= len(once) else drawn(once, n, seed)


def samples_of(rows: Iterable[PlacedRow]) -> ChosenIndices:
    samples: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        samples[row.task].add(row.index)
    return {task: sorted(indices) for task, indices in samples.items()}


N_QUESTIONS = 300  # where no number is enough
FEWEST_DRAWN = 200  # where fewer would be enough for a verdict: an accuracy needs more
STAGED_FROM = 2 * FEWEST_DRAWN  # questions; so many are drawn in two stages
FIRST_PART = 0.28  # of them in the first stage, at least `FEWEST_DRAWN`: enough for about two in three clean models
HOW_ORDERS_ARE_ASKED = frozenset({"layouts", "orders"})  # keys of `metadata`: who gives one has the last word
Asked = Mapping[str, frozenset[str]]  # names of questions, by RUN or the suffix of an audit


def _names(kind: str, row: PlacedRow) -> list[str]:
    """An answer is known by its task and row, since a row of the same text may have another right answer; what an
    audit asked is known by row or text."""
    if kind == RUN:
        return [f"{row.task} {row.doc_hash}"]
    return [name for name in (row.doc_hash, row.content) if name]


@dataclass(frozen=True)
class PresentRun:
    """A run that is complete.

    data: digests of all rows of its tasks; empty for runs of others
    detectors: by which its audits judged, by suffix
    questions: those whose data rows it does not record, as its prompts word them
    """

    asked: Asked
    data: Mapping[str, str]
    files: tuple[Path, ...]
    detectors: Asked
    questions: tuple[Question, ...] = ()

    def is_of(self, kind: str, rows: Sequence[PlacedRow], loaded: LoadedTask) -> bool:
        """Whether it asked exactly these rows, of tasks with the same rows, and judged with the same parameters."""
        data = {name: digest_of_rows(task) for name, task in loaded.leaves.items()}
        if kind != RUN and not self.detectors.get(kind, frozenset()) <= _detectors(loaded):
            return False
        if not rows or any(self.data.get(name) != data[name] for name in {row.task for row in rows}):
            return False
        names = [_names(kind, row) for row in rows]
        return {first for first, *_ in names} <= self.asked.get(kind, frozenset()) <= {*chain.from_iterable(names)}


@dataclass(frozen=True)
class PresentRuns:
    """One model's runs, oldest first.

    others: how other models of the same name differ from it whose runs are there, too, in words
    n_unknown: number of runs of this name that do not say which model they are of
    """

    runs: tuple[PresentRun, ...] = ()
    others: tuple[str, ...] = ()
    n_unknown: int = 0

    @property
    def layouts(self) -> str:
        """In which the newest audit of option orders asked them: a reference is only compared in the same."""
        names = [name for run in self.runs for name in sorted(run.detectors.get(FIRST_AUDIT, ()))]
        return next((own for own in LAYOUT_SETS if f"layouts={own}" in names[-1]), AUDITED) if names else EVERY

    def known_in(self, loaded: LoadedTask) -> PresentRuns:
        """Return the runs with their questions of unrecorded rows searched in this task.

        A group is not searched, since such a run does not name its members.
        """
        if len(loaded.leaves) != 1 or not any(run.questions for run in self.runs):
            return self
        ((task, built),) = loaded.leaves.items()
        read = ((content_of(doc)[0], row_names(doc)[0]) for doc in built.eval_docs)
        known = QuestionsInPrompts((one.stem, one.options, f"{task} {doc_hash}") for one, doc_hash in read if one)

        def told(run: PresentRun) -> PresentRun:
            names = {name for one in run.questions if (name := known.find(one.stem, one.options))}
            return replace(run, asked={**run.asked, RUN: run.asked[RUN] | names})

        return replace(self, runs=tuple(map(told, self.runs)))

    def with_any(self, kind: str, rows: Sequence[PlacedRow]) -> tuple[Path, ...]:
        """Files of the runs that answered any of these rows, or that have any such audit: a verdict is adjusted for
        those of other benchmarks, too."""
        names = {name for row in rows for name in _names(kind, row)}
        found = [run for run in self.runs if kind in run.asked and (kind != RUN or names & run.asked[RUN])]
        return tuple(file for run in found for file in run.files)

    def exact(self, kind: str, rows: Sequence[PlacedRow], loaded: LoadedTask) -> tuple[Path, ...]:
        """The newest run that asked exactly these rows as the task asks; empty if there is none."""
        return next((run.files for run in reversed(self.runs) if run.is_of(kind, rows, loaded)), ())

    def asked(self, kind: str, rows: Sequence[PlacedRow]) -> list[PlacedRow]:
        """Those of the rows that were asked."""
        known = frozenset[str]().union(*(run.asked.get(kind, ()) for run in self.runs))
        return [row for row in rows if not known.isdisjoint(_names(kind, row))]

    def has_all(self, kind: str, rows: Sequence[PlacedRow]) -> bool:
        return bool(rows) and len(self.asked(kind, rows)) == len(rows)

    def among(self, rows: Sequence[PlacedRow]) -> list[PlacedRow]:
        """The rows that were answered and audited; if there are none, those that were either; else none."""
        answered = self.asked(RUN, rows)
        return self.asked(FIRST_AUDIT, answered) or answered or self.asked(FIRST_AUDIT, rows)


def name_among_runs(who: NamedModel) -> str:
    """A model's name with its revision, as `logs.runs` makes it."""
    return model_named(who.name, who.model_args)


def present_runs(
    places: Iterable[Path], who: NamedModel, *, by_name: bool = False, needs_control: bool = True
) -> PresentRuns:
    """The complete runs of this model as it is now.

    by_name: whether runs count that do not say which model of this name they are of
    needs_control: whether an audit of written orders counts only with the control forms or a reference
    """
    problems: list[Problem] = []
    found = [run for run in _runs(places, problems) if run.results_file is not None]
    if not found:
        return PresentRuns()
    identity, key = who.identity, sanitized(name_among_runs(who))
    own = run_of(who)
    plain = {run.results_file: contradiction(run, own) for run in found if not run.identity and run.key == key}
    unknown = [run for run in found if plain.get(run.results_file) == ""]
    others = [run for run in found if run.identity and run.identity != identity and sanitized(run.named) == key]
    same = [run for run in found if run.identity == identity or (by_name and run in unknown)]
    differences = [*(identity_differences(run.identity, identity) for run in others), *plain.values()]
    told = dict.fromkeys(filter(None, differences))
    return PresentRuns(_present(same, problems, needs_control), tuple(told), len(unknown))


def present_references(folder: Path, who: NamedModel) -> PresentRuns:
    """The audits of all models in a folder but this one."""
    problems, own = list[Problem](), run_of(who)
    return PresentRuns(
        _present([run for run in _runs([folder], problems) if not same_model(run, own)], problems, False)
    )


def run_of(who: NamedModel) -> Run:
    """Return a run of the model that has asked nothing, to compare others with."""
    config = {"model": who.model, "model_args": dict(who.model_args)}
    return Run(name_among_runs(who), "", {IDENTITY: who.identity, "config": config})


def _runs(places: Iterable[Path], problems: list[Problem]) -> list[Run]:
    there = [place for place in places if place.exists()]
    try:
        return find_runs(there, problems) if there else []
    except ValueError:  # a folder without a run
        return []


def _present(runs: Sequence[Run], problems: list[Problem], needs_control: bool) -> tuple[PresentRun, ...]:
    found = []
    for run in runs:
        audited, detectors = _audited(run, needs_control)
        answered = _answered(run, problems)
        rows = frozenset(f"{one.task} {answer.doc_hash}" for one, answer in answered if answer.doc_hash)
        questions = tuple(answer.question for _, answer in answered if answer.question is not None)
        files = () if run.results_file is None else (run.results_file,)
        found.append(PresentRun({**audited, RUN: rows}, run.data, files, detectors, questions))
    return tuple(found)


def _detectors(loaded: LoadedTask) -> frozenset[str]:
    """By which an audit judges; which reference a task has is known only where its log is read."""
    return frozenset(without_reference(name) for task in loaded.leaves.values() for name in task.detectors.values())


def _answered(run: Run, problems: list[Problem]) -> list[tuple[TaskRun, AnnotatedQuestion]]:
    found: list[tuple[TaskRun, AnnotatedQuestion]] = []
    for one in chosen_runs([run], problems):
        answers = one.answers(problems)
        if len({answer.doc_id for answer in answers}) >= one.n_questions:
            found += [(one, answer) for answer in answers]
    return found


def _audited(run: Run, needs_control: bool) -> tuple[Asked, Asked]:
    """Names of the questions that were asked, and detectors. Nothing if lines are missing: then it is run again."""
    lost: list[Problem] = []
    lines = list(lines_of_audits([run], lost))
    found: dict[str, list[AuditLine]] = defaultdict(list)
    for task, line in [] if any(problem.incomplete for problem in lost) else lines:
        found[(split_name(task) or ("", task))[1]].append(line)
    kept = {name: own for name, own in found.items() if name != FIRST_AUDIT or _says_enough(own, needs_control)}
    return {
        suffix: frozenset(name for line in own for name in (line.question, content_of(line.doc)[1]) if name)
        for suffix, own in kept.items()
    }, {suffix: frozenset(without_reference(line.detector) for line in own) for suffix, own in kept.items()}


def _says_enough(lines: Sequence[AuditLine], needs_control: bool) -> bool:
    """Whether a verdict can be computed from an audit of option orders. Questions with a natural order, or with one
    order that could be compared, are never asked in the control forms."""
    asked = [line.orders for line in lines if line.orders is not None]
    open_ones = [line for line in lines if line.reason is None and not line.guards]
    tested = [line for line in open_ones if line.orders is None or len(line.orders.compared) != 1]
    known = [line for line in lines if line.published_orders is not None]
    is_compared = any(line.published_orders in EXACT for line in lines)
    is_compared |= any(one.control or one.reference for one in asked)
    return bool(known) and (is_compared or not tested or not needs_control)


TO_RUN, THERE, NOT_NEEDED, NOT_POSSIBLE = "to run", "there already", "not needed", "not possible"
ORDERS_RUN, REFERENCE_RUN, UNSEEN_RUN = "option orders", "reference", "unseen questions"
POSITIVE_RUN = "positive control"
FILLERS_RUN = "exchanged names"
ACCURACY_TAKES_LONG = "its accuracy takes generation, long without an accelerator; `accuracy: true` in a plan runs it"
IN_WORDS = {
    RUN: "accuracy",
    FIRST_AUDIT: ORDERS_RUN,
    FILLER_AUDIT: FILLERS_RUN,
    TOKENS: "token-level evidence",
    CONFUSION: "choice confusion",
}
HEADINGS = ("task", "what", "questions", "requests", "tokens, about", "status")


@dataclass(frozen=True)
class UnitJob:
    """What a model is asked for a unit.

    seed: by which its questions were drawn; None if they are all
    """

    who: NamedModel
    loaded: LoadedTask
    samples: ChosenIndices
    size: RunSize
    seed: int | None = None

    @property
    def n_tokens(self) -> int:
        """That are read, and at most generated."""
        return self.size.n_read(self.who.model) + self.size.n_generated


@dataclass(frozen=True)
class PlannedStep:
    """What is to be done for a unit; all but `job` is written into the unit's file, from which verdicts are told.

    n_questions, n_requests, n_tokens: 0 if unknown; tokens are estimated
    status: one of the four above; note: where it is, or why not; remedy: what may change that
    files: results files of given runs that are there already
    remarks: what is to be said of them
    benchmarks: the tasks in it, with digests of the rows of those whose option orders can be audited
    n_available: questions that may be drawn; 0 if unknown; whole: whether all of them are asked
    staged: whether fewer questions might have been the end
    job: None where the model is not asked
    """

    task: str
    what: str
    n_questions: int = 0
    n_requests: int = 0
    n_tokens: int = 0
    status: str = TO_RUN
    note: str = ""
    remedy: str = ""
    files: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    benchmarks: Mapping[str, str] = field(default_factory=dict, hash=False)
    n_available: int = 0
    whole: bool = False
    staged: bool = False
    job: UnitJob | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> PlannedStep:
        """Raises TypeError for what is not a record of `as_record`."""
        return cls(**{**record, "files": tuple(record["files"]), "remarks": tuple(record["remarks"])})

    @property
    def as_record(self) -> dict[str, Any]:
        told = asdict(replace(self, job=None))
        del told["job"]
        return told


@dataclass(frozen=True)
class CheckPlan:
    """What a check of one model does.

    seed: by which questions were drawn
    counted: whether tokens are counted by the model's tokenizer
    remarks: what is to be said of its tasks
    """

    model: str
    backend: str
    seed: int
    steps: tuple[PlannedStep, ...]
    counted: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def to_run(self) -> list[PlannedStep]:
        return [step for step in self.steps if step.status == TO_RUN]

    @property
    def as_text(self) -> str:
        lines = [HEADINGS, *(_cells(step) for step in self.steps)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(HEADINGS) - 1)]
        table = "\n".join(_line(line, widths) for line in lines)
        paragraphs = (visible(self._head), visible_lines(table), visible_lines("\n".join(self.remarks)), self._sum)
        return "\n\n".join(filter(None, paragraphs))

    @property
    def _head(self) -> str:
        return f"Check of {self.model} ({self.backend}); questions are drawn at random with seed {self.seed}"

    @property
    def _sum(self) -> str:
        if not self.to_run:
            return "Nothing has to be run."
        n_tokens = sum(step.n_tokens for step in self.to_run)
        n_requests = sum(step.n_requests for step in self.to_run)
        how = "counted in a part of the questions" if self.counted else "taking four bytes for a token"
        return f"To run: {counted(n_requests, 'request')} with about {about(n_tokens)} tokens ({how})."


def visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def _cells(step: PlannedStep) -> Sequence[str]:
    status = f"{step.status}: {step.note}" if step.note else step.status
    status += f"; {step.remedy}" if step.remedy else ""
    numbers = [step.n_questions, step.n_requests]
    tokens = about(step.n_tokens) if step.n_tokens else DASH
    return (step.task, step.what, *(count(number) if number else DASH for number in numbers), tokens, status)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = [
        f"{cell:{'<' if place < 2 else '>'}{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=False))
    ]
    return "  ".join([*first, cells[-1]]).rstrip()


NO_NAMES = "its questions have options, whose orders are asked"
NOT_ALIKE = "the benchmark's own prompt is not one in which other questions can be asked"
TASKS_KEPT = 8  # of which the drawn questions are remembered


Planned = Mapping[Unit, PlannedStep]


class Planner:
    """Loads tasks and data, and no model.

    early: tasks that are at their first stage, where there are two
    """

    def __init__(self, plan: Plan, shelf: TaskShelf, early: Collection[str] = ()) -> None:
        self.plan, self.shelf, self.early = plan, shelf, early
        self._task = lru_cache(TASKS_KEPT)(partial(_PlannedTask, self))
        # by the keys of models; a tokenizer is None if it is not on this machine
        self.tokenizer = cache(lambda key: tokenizer_on_disk(plan.model(key).model_args))
        self.given = cache(lambda key: _given_runs(plan, plan.model(key).who))

    def step(self, unit: Unit, places: Sequence[Path] = ()) -> PlannedStep:
        """What is to be done for a unit.

        places: where the unit's files may be; they count if they are of this model and these questions

        Raises ValueError or OSError if the task cannot be loaded, and if the given runs are of other models.
        """
        is_own = unit.room != REFERENCE and any(one.key == unit.model for one in self.plan.models)
        main = unit.model if is_own else self.plan.models[0].key
        return self._task(main, unit.task).planned(unit, places)

    def table(self, planned: Planned, left_out: Mapping[Unit, str], remarks: Sequence[str]) -> CheckPlan:
        """Of a plan of one model.

        left_out: units that are not possible, with the reasons
        remarks: what is to be said of its tasks
        """
        model, place = self.plan.models[0], self.plan.tasks.index
        steps = [
            PlannedStep(unit.task, IN_WORDS.get(unit.kind, unit.kind), status=NOT_POSSIBLE, note=why)
            for unit, why in left_out.items()
        ]
        in_rooms = sorted(planned, key=lambda unit: ROOMS.index(unit.room))
        steps += [replace(planned[unit], job=None) for unit in in_rooms]
        steps.sort(key=lambda step: place(step.task))
        is_counted = self.tokenizer(model.key) is not None
        return CheckPlan(model.who.name, model.model, self.plan.seed, tuple(steps), is_counted, tuple(remarks))


def _unlike(present: PresentRuns) -> Iterator[str]:
    for difference in present.others:
        yield f"runs of another model of this name are there and are not used: {difference}"
    if present.n_unknown:
        told = f"{counted(present.n_unknown, 'run')} that --runs names do not say which weights they are of"
        yield f"{told}; they are used by the model's name"


def _given_runs(plan: Plan, who: NamedModel) -> PresentRuns:
    """Raises ValueError if they hold no run of the only model: a name that is spelled otherwise would go unnoticed."""
    given = present_runs(plan.runs, who, by_name=True, needs_control=plan.reference is None)
    if plan.runs and not given.runs and len(plan.models) == 1:
        if given.others:
            raise ValueError(
                f"runs has only runs of another model that is called {who.name!r}, too: {given.others[0]}; leave it "
                "out to run this model"
            )
        names = ", ".join(dict.fromkeys(repr(run.model) for run in _runs(plan.runs, [])))
        if not names:
            raise ValueError("runs has no complete run of any model; name the --output_path of a run")
        raise ValueError(
            f"runs has no complete run of {name_among_runs(who)!r}, only of {names}; give model_args as in those runs"
        )
    return given


class _PlannedTask:
    """The questions that are drawn of one task for one model, and its units."""

    def __init__(self, planner: Planner, model: str, name: str) -> None:
        self.planner, self.plan, self.model, self.name = planner, planner.plan, model, name
        self.who, self.given = self.plan.model(model).who, planner.given(model)
        orders, folder = self.plan.orders, self.plan.reference
        self.documented: dict[str, Any] = {} if orders is None else {STATUS_KEY: orders}  # metadata of their audit
        self.of_orders: dict[str, Any] = {}  # likewise, and of that of the unseen questions
        self.base = self._loaded(name)
        if not isinstance(self.base, str):
            self.given = self.given.known_in(self.base)
        self.references = present_references(folder, self.who) if isinstance(folder, Path) else None
        self.orders, self.design = self._asked_in(self._layouts)
        # the rows of a task without options that can be asked: what exchanges their names, or why nothing does
        self.names = self._loaded(f"{name}_{FILLER_AUDIT}") if isinstance(self.orders, str) else NO_NAMES
        if isinstance(self.orders, str) and isinstance(self.names, str) and self.names.startswith(NO_DETAIL):
            self.orders = f"{self.orders}; and {self.names}"
        if isinstance(self.orders, str) and (isinstance(self.base, str) or self.plan.budget is not None):
            raise ValueError(self.base if isinstance(self.base, str) else f"{name} cannot be checked: {self.orders}")
        if self._layouts and self.design is not None and self.design.n_orders <= 2:
            self.orders, self.design = self._asked_in({})
        self.chosen = self._chosen()
        if self.plan.budget is not None and self.design is not None:
            self.of_orders = {"orders": self.design.within.n_orders}
            self.orders = self._audit_of_orders()

    def _audit_of_orders(self) -> LoadedTask | str:
        return self._loaded(f"{self.name}_{FIRST_AUDIT}", self.documented | self.of_orders)

    def _asked_in(self, layouts: dict[str, Any]) -> tuple[LoadedTask | str, AuditDesign | None]:
        self.of_orders = layouts
        orders = self._audit_of_orders()
        return orders, None if isinstance(orders, str) else AuditDesign(orders, self.plan)

    @property
    def _layouts(self) -> dict[str, Any]:
        """One alone misses leakage in others. Two options have one: each layout prefers one or the other, so that
        several leave ties."""
        if self.plan.budget is not None or self.plan.metadata.keys() & HOW_ORDERS_ARE_ASKED:
            return {}
        own = EVERY if self.references is None else self.references.layouts
        return {} if own == AUDITED else {"layouts": own}

    def _chosen(self) -> list[PlacedRow]:
        """Those of the given runs, if there are any; among them, those that the reference has, too."""
        base = [] if isinstance(self.base, str) else self.base.rows
        audited = self._exchangeable
        if not isinstance(self.orders, str):
            audited = self.orders.keyed(self.orders.rows)
        read = [replace(row, key=found.key) for row, found in found_among(audited, base)]
        if not (read or isinstance(self.base, str)):
            base = self.base.keyed(base)
        population = read or base or audited
        population = self.given.among(population) or population
        if self.references is not None:
            population = self.references.among(population) or population
        self.population = population
        if self.plan.budget is not None and self.design is not None:
            return self.design.affordable(each_once(population, lambda row: row.key))
        return self._drawn(population)

    @cached_property
    def _exchangeable(self) -> list[PlacedRow]:
        """The rows whose names can be exchanged, where that is what is asked."""
        return [] if isinstance(self.names, str) else _exchangeable(self.names, self._fillers)

    def _drawn(self, rows: Sequence[PlacedRow]) -> list[PlacedRow]:
        n = self.plan.questions if isinstance(self.plan.questions, int) else None
        if self.plan.questions == ENOUGH:
            n = max(self.n_enough or N_QUESTIONS, FEWEST_DRAWN)
            if self.name in self.planner.early:
                n = max(FEWEST_DRAWN, rounded_up(min(n, len(self.population)) * FIRST_PART))
        return drawn_once(rows, n, self.plan.seed)

    @property
    def is_staged(self) -> bool:
        is_free = self.plan.questions == ENOUGH and self.plan.budget is None
        # other rows would exchange other names, so that no answer of a first stage could be used again
        is_free = is_free and isinstance(self.names, str)
        return self.plan.is_here and is_free and min(self.n_enough or 0, len(self.population)) >= STAGED_FROM

    @property
    def n_enough(self) -> int | None:
        """None, too, if neither option orders nor names are asked."""
        if not isinstance(self.names, str):
            return self._n_names_enough
        return None if self.design is None or self.obstacle_of_all is not None else self.design.n_enough

    @property
    def _n_names_enough(self) -> int | None:
        """Return how many rows that exchange their names are enough."""
        level = EVIDENCE_LEVEL * share_alone(1) / (1 if self.plan.is_here else MANY_TOGETHER)
        return rows_usually_needed(self.plan.detect, level, has_reference=self._has_reference, fillers=self._fillers)

    @cached_property
    def _names_beside(self) -> list[PlacedRow]:
        """Return the rows that exchange their names where option orders are asked, too. They are drawn by themselves,
        since only a part of the rows has a name, and they cost less than orders."""
        loaded = self._loaded(f"{self.name}_{FILLER_AUDIT}")
        n = self.plan.questions if isinstance(self.plan.questions, int) else None
        n = self._n_names_enough if self.plan.questions == ENOUGH else n
        return [] if isinstance(loaded, str) else drawn_once(_exchangeable(loaded, self._fillers), n, self.plan.seed)

    @cached_property
    def _fillers(self) -> str:
        """Return what its rows exchange."""
        loaded = self._loaded(f"{self.name}_{FILLER_AUDIT}") if isinstance(self.names, str) else self.names
        kinds = set() if isinstance(loaded, str) else {task.fillers for task in loaded.leaves.values()}
        return NUMBERS if kinds == {NUMBERS} else NAMES

    @property
    def _only_numbers(self) -> bool:
        """Return whether its rows exchange numbers, and nothing is there beside which those have a verdict."""
        return self._fillers == NUMBERS and not (self._has_reference or self.plan.unseen is not None)

    def _is_beside(self, unit: Unit) -> bool:
        """Return whether a unit exchanges names where option orders are asked, too."""
        return unit.suffix == FILLER_AUDIT and isinstance(self.names, str)

    # ------------------------------------------------------------------ whether a verdict is possible

    @cached_property
    def obstacle_of_all(self) -> Obstacle | None:
        """Why the option orders of all questions that may be drawn have no verdict; None if they may have one."""
        return self._prospect(self.population).obstacle

    @cached_property
    def obstacle(self) -> Obstacle | None:
        """Why those of the drawn questions have none. A first stage is only asked where all may have one."""
        if self.obstacle_of_all is not None:
            every = self.obstacle_of_all
            remedies = (*every.remedies, *self._of_texts())
            return Obstacle(f"{every.reason}; no number of questions is enough", remedies)
        if self.name in self.planner.early or (found := self._prospect(self.chosen).obstacle) is None:
            return None
        n = 2 * len(self.chosen)
        while n < len(self.population):
            if self._prospect(drawn_once(self.population, n, self.plan.seed)).obstacle is None:
                break
            n *= 2
        enough = ALL_QUESTIONS if n >= len(self.population) else n
        return Obstacle(f"of those drawn, {found.reason}", (f"more questions (`--questions {enough}`)",))

    def _prospect(self, rows: Sequence[PlacedRow]) -> Prospect:
        """What can be known of a verdict on these rows of the benchmark."""
        if isinstance(self.orders, str):
            return Prospect(())
        leaves = self.orders.leaves
        asked = [(leaves[row.task], row.index) for _, row in found_among(self.orders.rows, rows)]
        return Prospect(asked, self._has_reference, self._natural)

    @cached_property
    def _has_reference(self) -> bool:
        return bool(self.plan.reference_models or (self.references and self.references.among(self.population)))

    @cached_property
    def _natural(self) -> NaturalPart | None:
        """What the unseen questions will say, where that decides whether there is a verdict."""
        leaves = {} if isinstance(self.orders, str) else self.orders.leaves
        if self.plan.unseen is None or all(task.orders.status != PATTERNED_ORDERS for task in leaves.values()):
            return None
        asked = {**self.of_orders, **self.plan.of_unseen}
        unseen = self._loaded(f"{self.name}_{FIRST_AUDIT}", asked)
        return None if isinstance(unseen, str) else natural_before(unseen.leaves)

    def _of_texts(self) -> Iterator[str]:
        """Texts show evidence without any option orders."""
        has_all = self.plan.unseen is not None and self.plan.reference_models
        if not self._prospect(self.population).has_enough_families:
            return
        task = self._loaded(f"{self.name}_{TOKENS}")
        if has_all or isinstance(task, str) or TOKENS not in self.plan.audits:
            return
        needs = {needs_of(leaf) for leaf in task.leaves.values()}
        if not any(why_cannot_answer(self.who.model, need) for need in needs):
            yield "unseen questions and a reference, beside which texts are tested (`--unseen FILE --reference ARGS`)"

    @cached_property
    def benchmarks(self) -> dict[str, str]:
        """The tasks in it, with digests of the rows of those whose orders or names are asked; else empty ones."""
        tested = self.names if isinstance(self.orders, str) else self.orders
        audited = {} if isinstance(tested, str) else tested.leaves
        every = {} if isinstance(self.base, str) else self.base.leaves
        digests = {task.audited: digest_of_rows(task, documented=False) for task in audited.values()}
        return {**dict.fromkeys(every, ""), **digests} or {self.name: ""}

    # ------------------------------------------------------------------ the steps

    def planned(self, unit: Unit, places: Sequence[Path]) -> PlannedStep:
        step = self._without_asking(unit) or self._asked(unit, self._task_of(unit), places)
        whole = len(self.chosen) == len(self.population)
        return replace(
            step, benchmarks=self.benchmarks, n_available=len(self.population), whole=whole, staged=self.is_staged
        )

    def _step(self, unit: Unit, n_questions: int, status: str = TO_RUN, note: str = "") -> PlannedStep:
        words = [IN_WORDS.get(unit.suffix, unit.suffix)]
        if unit.suffix == FILLER_AUDIT:
            words = [f"exchanged {self._fillers}"]
        if unit.room == UNSEEN:
            words.insert(0, UNSEEN_RUN)
        if unit.room == POSITIVE:
            words.insert(0, POSITIVE_RUN)
        if unit.room == REFERENCE or unit.model != self.model:
            words.insert(0, REFERENCE_RUN)
        return PlannedStep(self.name, ": ".join(words), n_questions, status=status, note=note)

    def _there(self, unit: Unit, n_questions: int, files: Sequence[Path]) -> PlannedStep:
        folders = ", ".join(dict.fromkeys(str(file.parent) for file in files))
        return replace(self._step(unit, n_questions, THERE, folders), files=tuple(map(str, files)))

    def _without_asking(self, unit: Unit) -> PlannedStep | None:
        """What given runs answer, or why the reference is not asked; None if the model is to be asked."""
        n = len(self.chosen)
        if unit.kind == RUN and self._takes_long:
            return self._step(unit, n, NOT_NEEDED, ACCURACY_TAKES_LONG)
        if unit.room == RUNS and self.given.has_all(unit.kind, self.chosen):
            step = self._there(unit, n, self.given.with_any(unit.kind, self.chosen))
            return replace(step, remarks=tuple(_unlike(self.given)))
        if unit.suffix == FIRST_AUDIT and unit.room != RUNS and self.obstacle is not None:
            return self._step(unit, 0, NOT_NEEDED, "the option orders of the benchmark have no verdict")
        if unit.room != REFERENCE or unit.suffix == TOKENS:
            return None
        if isinstance(self.orders, str) and unit.suffix != FILLER_AUDIT:
            return self._step(unit, n, NOT_POSSIBLE, self.orders)
        if self.design is not None and self.design.is_exact:
            return self._step(unit, n, NOT_NEEDED, "the published orders were drawn at random")
        if self.references is None:
            return None
        if found := self.references.among(self.chosen):
            return self._step(unit, len(found), THERE, str(self.plan.reference))
        why = f"{self.plan.reference} has no audit of these questions by another model"
        return self._step(unit, 0, NOT_POSSIBLE, why)

    def _task_of(self, unit: Unit) -> LoadedTask | str:
        """What the model is asked, or why it cannot be."""
        if unit.room == RUNS and unit.kind in (RUN, FIRST_AUDIT):
            return self.base if unit.kind == RUN else self.orders
        asked: dict[str, object] = {**self.of_orders} if unit.suffix == FIRST_AUDIT else {}
        if unit.room == UNSEEN:
            asked |= self.plan.of_unseen
        elif unit.room == POSITIVE:
            asked |= self.plan.of_positive
        if unit.suffix == FILLER_AUDIT and unit.room in (UNSEEN, POSITIVE):
            asked |= {FILLERS_KEY: self._fillers}
        elif unit.suffix == FIRST_AUDIT and unit.room not in (UNSEEN, POSITIVE):
            asked |= self.documented | ({"control_form": False} if unit.room == REFERENCE else {})
        loaded = self._loaded(unit.asked, asked, self.plan.model(unit.model).model_args)
        if isinstance(loaded, str) or unit.room != UNSEEN or unit.suffix not in (TOKENS, CONFUSION):
            return loaded
        return self._asked_alike(unit.suffix, loaded, asked)

    def _rows_of(self, unit: Unit, loaded: LoadedTask | str) -> list[PlacedRow]:
        """The drawn questions; an audit whose rows are not questions of the benchmark, such as one of question orders,
        draws from its own. All of the unseen ones."""
        if unit.kind == RUN:
            return self.chosen
        if isinstance(loaded, str) or unit.room == UNSEEN:
            return [] if isinstance(loaded, str) else loaded.rows
        asked = self._names_beside if self._is_beside(unit) else self.chosen
        if unit.room == POSITIVE:
            return drawn_once(_exchangeable(loaded, self._fillers), len(asked), self.plan.seed)
        if self._is_beside(unit):
            return asked
        found = dict.fromkeys(found for _, found in found_among(loaded.rows, self.chosen))
        return list(found) or self._drawn(loaded.keyed(loaded.rows))

    # ------------------------------------------------------------------ parts of a step

    def _asked(self, unit: Unit, loaded: LoadedTask | str, places: Sequence[Path]) -> PlannedStep:
        """What is there already, else what is to be run, else why it cannot be."""
        rows = self._rows_of(unit, loaded)
        n = len(rows if unit.room in (UNSEEN, POSITIVE) or self._is_beside(unit) else self.chosen)
        if isinstance(loaded, str):
            return self._step(unit, n, NOT_POSSIBLE, loaded)
        who = self.plan.model(unit.model).who
        for place in places:
            present = present_runs([place], who, needs_control=unit.room != REFERENCE)
            if files := present.exact(unit.suffix, rows, loaded):
                return self._there(unit, n, files)
        needs = {needs_of(task) for task in loaded.leaves.values()}
        reasons = [reason for need in sorted(needs) if (reason := why_cannot_answer(who.model, need))]
        if reasons or not rows:
            return self._step(unit, n, NOT_POSSIBLE, reasons[0] if reasons else "no question can be read")
        if unit.kind == FIRST_AUDIT and self.obstacle is not None:
            step = self._step(unit, n, NOT_POSSIBLE, self.obstacle.reason)
            return replace(step, remedy=self.obstacle.remedy)
        if unit.room == UNSEEN and unit.suffix == FIRST_AUDIT and (reason := obstacle_of_unseen(loaded.leaves)):
            return self._step(unit, n, NOT_POSSIBLE, f"they do not say what is natural: {reason}")
        if unit.suffix == FILLER_AUDIT and self._only_numbers:
            return self._step(unit, n, NOT_POSSIBLE, NUMBERS_ALONE)
        samples = samples_of(rows)
        size = size_of_chosen(loaded.leaves, samples, self.planner.tokenizer(unit.model), who.apply_chat_template)
        if not size.n_requests:
            reason, _ = (size.untestable.most_common(1) or [("its questions cannot be asked", 0)])[0]
            return self._step(unit, len(rows), NOT_POSSIBLE, reason)
        is_drawn = len(self.chosen) < len(self.population) and unit.room != UNSEEN
        step = self._step(unit, len(rows))
        return replace(
            step,
            n_requests=size.n_requests,
            n_tokens=size.n_read(who.model),
            note=self._of_count(loaded.keyed(rows), unit.kind) if unit.kind in (FIRST_AUDIT, FILLER_AUDIT) else "",
            job=UnitJob(who, loaded, samples, size, self.plan.seed if is_drawn else None),
        )

    @cached_property
    def _takes_long(self) -> bool:
        """Whether its accuracy takes generation on a CPU, and nobody asked for it by name."""
        if self.plan.accuracy is not None or isinstance(self.names, str) or isinstance(self.base, str):
            return False
        backend = backend_of(self.who.model)
        is_elsewhere = backend is not None and backend.has_server
        generates = any(needs_of(task) == "generate_until" for task in self.base.leaves.values())
        is_on_cpu = self.plan.model(self.model).device == "cpu" or find_device("auto").type == "cpu"
        return generates and is_on_cpu and not is_elsewhere

    def _of_count(self, rows: Sequence[PlacedRow], suffix: str) -> str:
        """What is to be said of the number of questions in an audit of option orders or exchanged names."""
        n, design = len(each_once(rows, lambda row: row.key)), self.design if suffix == FIRST_AUDIT else None
        n_enough = self.n_enough if suffix == FIRST_AUDIT else self._n_names_enough
        if n < FEWEST_JUDGED:
            return f"{counted(n)} are too few for a verdict, which needs {FEWEST_JUDGED}"
        copies = f"{counted(n)} and {counted(len(rows) - n, 'row')} with copies of them" if n < len(rows) else ""
        if self.plan.budget is not None and design is not None:
            copies = str(design.within)
        asked = f"in {count(design.n_layouts)} layouts" if design is not None and design.n_layouts > 1 else ""
        what = f"{whole_percent(self.plan.detect)} seen {DETECT_TIMES} times"
        power = f"probably enough to find {what}"
        if n_enough is None:
            power = f"no number of questions is enough to find {what}"
        elif n < n_enough:
            power = f"about {counted(n_enough)} are usually needed to find {what}"
        return "; ".join(filter(None, (copies, asked, power)))

    def _loaded(
        self, name: str, metadata: Mapping[str, object] | None = None, model_args: Mapping[str, Any] | None = None
    ) -> LoadedTask | str:
        """The task, or why it cannot be used."""
        arguments = self.who.model_args if model_args is None else model_args
        try:
            loaded = self.planner.shelf.load(name, {**arguments, **self.plan.metadata, **(metadata or {})})
        except (ValueError, KeyError) as error:
            return str(error)
        if name == self.name and self.plan.num_fewshot is not None:
            # before digests of its rows are taken, which say how many examples stand before each
            for task in loaded.leaves.values():
                if task.get_config("num_fewshot") != 0:  # which lm_eval does not change either
                    task.set_config(key="num_fewshot", value=self.plan.num_fewshot)
        return loaded

    def _asked_alike(self, suffix: str, loaded: LoadedTask, asked: Mapping[str, object]) -> LoadedTask | str:
        """Choice confusion and texts of unseen questions as those of the benchmark, so that they may be compared."""
        question = _first_question(self._loaded(f"{self.name}_{suffix}"), suffix)
        if question is None:
            return loaded
        plain = replace(question, frame=None, prompt=None)
        if suffix == TOKENS:
            other = _first_question(loaded, suffix)
            is_plain = whole_text(question) == whole_text(plain)
            if other is None or is_plain == (whole_text(other) == whole_text(replace(other, frame=None, prompt=None))):
                return loaded
            return NOT_ALIKE
        score = "letters" if question.prompt is None else "texts"
        if ChoiceConfusion().original(question) != ChoiceConfusion(score=score).original(plain):
            return NOT_ALIKE
        return loaded if score == "letters" else self._loaded(f"{self.name}_{CONFUSION}", {**asked, "score": score})


def _exchangeable(audit: LoadedTask, fillers: str) -> list[PlacedRow]:
    """Return the rows that an audit can ask: of one that exchanges fillers, those with such a filler."""
    chosen = []
    for row in audit.rows:
        task = audit.leaves[row.task]
        has_slot = not isinstance(task, FillerAudit) or task.has_slot(task.eval_docs[row.index])
        if has_slot and getattr(task, "fillers", fillers) == fillers:
            chosen.append(row)
    return audit.keyed(chosen)


def _first_question(loaded: LoadedTask | str, suffix: str) -> Question | None:
    """Choice confusion needs its answer, too."""
    tasks = () if isinstance(loaded, str) else loaded.leaves.values()
    questions = (one for task in tasks for one in task.benchmark())
    return next((one for one in questions if suffix == TOKENS or one.answer is not None), None)
