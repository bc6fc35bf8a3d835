"""The plan of one task for one model, which decides for each of its units whether it is run, reused or skipped.

A unit is a run of the task or one of its audits. Its role says whether it is judged itself, or serves as reference,
unseen questions or positive control.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lm_eval_leakage.detectors.choice_confusion import ChoiceConfusion
from lm_eval_leakage.harness.backends import backend_of, why_cannot_answer
from lm_eval_leakage.harness.costs import task_needs
from lm_eval_leakage.harness.task_shelf import LoadedTask, PlacedRow, found_among
from lm_eval_leakage.harness.tasks.audited_rows import FILLERS_KEY
from lm_eval_leakage.harness.tasks.prospect import obstacle_of_unseen
from lm_eval_leakage.harness.tasks.templates import FILLER_AUDIT, FIRST_AUDIT
from lm_eval_leakage.jobs.drawing import (
    drawn_once,
    samples_of,
)
from lm_eval_leakage.jobs.manifest import is_same_model
from lm_eval_leakage.jobs.plan import CONFUSION, TOKENS
from lm_eval_leakage.jobs.plan_sources import PlanSources
from lm_eval_leakage.jobs.present_runs import PresentRuns, present_runs
from lm_eval_leakage.jobs.steps import Step, StepStatus, UnitWork
from lm_eval_leakage.jobs.task_rows import TaskRows, exchangeable
from lm_eval_leakage.jobs.units import RUN, Role, Unit
from lm_eval_leakage.questions.families import each_once
from lm_eval_leakage.questions.rendering import whole_text
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.filler_verdict import NUMBERS_ALONE
from lm_eval_leakage.results.formatting import count, counted, rounded_up, whole_percent
from lm_eval_leakage.results.verdict import FEWEST_JUDGED, VerdictWord
from lm_eval_leakage.stats.order_power import DETECT_TIMES

ORDERS_RUN, REFERENCE_RUN, UNSEEN_RUN = "option orders", "reference", "unseen questions"
POSITIVE_RUN, FILLERS_RUN = "positive control", "exchanged names"
WORDS_OF_SUFFIXES = {  # what the table of the plan calls a unit
    RUN: "accuracy",
    FIRST_AUDIT: ORDERS_RUN,
    FILLER_AUDIT: FILLERS_RUN,
    TOKENS: "token-level evidence",
    CONFUSION: "choice confusion",
}
ACCURACY_TAKES_LONG = "its accuracy takes generation, long without an accelerator; `accuracy: true` in a plan runs it"
NO_VERDICT_BY_ORDERS = "the option orders of the benchmark have no verdict"
NOT_ALIKE = "other questions cannot be put into the benchmark's own prompt"


@dataclass(frozen=True)
class UnitTask:
    """The task or audit of lm_eval that a unit runs.

    metadata: what it is loaded with, beside the arguments of the model and the metadata of the plan
    loaded: the task in memory; a text instead is the reason why it cannot be run
    """

    name: str
    metadata: Mapping[str, object]
    loaded: LoadedTask | str


class TaskPlan:
    """The plan of one task for one model, which makes the step of each of its units.

    model: the model's key in the plan
    name: the name of the task
    """

    def __init__(self, sources: PlanSources, model: str, name: str) -> None:
        self.sources, self.plan, self.model, self.name = sources, sources.plan, model, name
        self.rows = TaskRows(sources, model, name)

    def planned(self, unit: Unit, places: Sequence[Path]) -> Step:
        """Return the step of a unit: whether it is run, reused or skipped, and why.

        places: folders that may have a run of this unit
        """
        step = self._settled(unit) or self._step_by_task(unit, places)
        whole = len(self.rows.chosen) == len(self.rows.population)
        return replace(
            step,
            benchmarks=self.rows.benchmarks,
            n_available=len(self.rows.population),
            whole=whole,
            staged=self.rows.is_staged,
        )

    def _exchanges_beside_orders(self, unit: Unit) -> bool:
        """Return whether a unit exchanges names of a task that has an audit of option orders, too.

        The text of `rows.names` then says that names are not the main audit of the task.
        """
        return unit.suffix == FILLER_AUDIT and isinstance(self.rows.names, str)

    def _step(self, unit: Unit, n_questions: int, status: StepStatus = StepStatus.TO_RUN, note: str = "") -> Step:
        """Return a step of this status, which describes the unit as "reference: option orders" does."""
        words = [WORDS_OF_SUFFIXES.get(unit.suffix, unit.suffix)]
        if unit.suffix == FILLER_AUDIT:
            words = [f"exchanged {self.rows.fillers}"]
        if unit.role is Role.UNSEEN:
            words.insert(0, UNSEEN_RUN)
        if unit.role is Role.POSITIVE:
            words.insert(0, POSITIVE_RUN)
        if unit.role is Role.REFERENCE or unit.model != self.model:
            words.insert(0, REFERENCE_RUN)
        return Step(self.name, ": ".join(words), n_questions, status=status, note=note)

    def _reused(self, unit: Unit, n_questions: int, files: Sequence[Path]) -> Step:
        """Return the step of a unit whose results are in these files, so that it is not run."""
        folders = ", ".join(dict.fromkeys(str(file.parent) for file in files))
        return replace(self._step(unit, n_questions, StepStatus.THERE, folders), files=tuple(map(str, files)))

    def _settled(self, unit: Unit) -> Step | None:
        """Return the step of a unit that is not run, for a reason that is known before its task is loaded.

        None if the task has to be loaded to decide.
        """
        n = len(self.rows.chosen)
        if unit.kind == RUN and (reason := self.sources.unscored.get(self.name)):
            return self._step(unit, 0, StepStatus.NOT_POSSIBLE, reason)
        if unit.kind == RUN and self._takes_long:
            return self._step(unit, n, StepStatus.NOT_NEEDED, ACCURACY_TAKES_LONG)
        if unit.role is Role.RUNS and self.rows.given.has_all(unit.kind, self.rows.chosen):
            step = self._reused(unit, n, self.rows.given.with_any(unit.kind, self.rows.chosen))
            return replace(step, remarks=tuple(_remarks_on(self.rows.given)))
        if unit.suffix == FIRST_AUDIT and unit.role is not Role.RUNS and self.rows.obstacle is not None:
            return self._step(unit, 0, StepStatus.NOT_NEEDED, NO_VERDICT_BY_ORDERS)
        if unit.role is Role.REFERENCE and unit.suffix != TOKENS:
            return self._settled_reference(unit)
        return None

    def _settled_reference(self, unit: Unit) -> Step | None:
        """Return the step of a reference's audit that is not needed, not possible, or in the folder of the plan.

        None if the plan has no folder of references, but a model to audit as the reference.
        """
        n = len(self.rows.chosen)
        if isinstance(self.rows.orders, str) and unit.suffix != FILLER_AUDIT:
            return self._step(unit, n, StepStatus.NOT_POSSIBLE, self.rows.orders)
        if self.rows.design is not None and self.rows.design.is_exact:
            return self._step(unit, n, StepStatus.NOT_NEEDED, "the published orders were drawn at random")
        if self.rows.references is None:
            return None
        if rows := self.rows.references.among(self.rows.chosen):
            return self._step(unit, len(rows), StepStatus.THERE, str(self.plan.reference))
        why = f"{self.plan.reference} has no audit of these questions by another model"
        return self._step(unit, 0, StepStatus.NOT_POSSIBLE, why)

    def _task_of(self, unit: Unit) -> UnitTask:
        """Return the task that a unit runs: the benchmark itself, or an audit with the metadata of the unit's role."""
        if unit.kind == RUN:
            return UnitTask(self.name, {}, self.rows.base)
        name = f"{self.name}_{unit.suffix}"
        if unit.kind == FIRST_AUDIT:
            return UnitTask(name, self.rows.documented | self.rows.of_orders, self.rows.orders)
        metadata: dict[str, object] = {**self.rows.of_orders} if unit.suffix == FIRST_AUDIT else {}
        if unit.role is Role.UNSEEN:
            metadata |= self.plan.unseen_metadata
        elif unit.role is Role.POSITIVE:
            metadata |= self.plan.positive_metadata
        if unit.suffix == FILLER_AUDIT and unit.role in (Role.UNSEEN, Role.POSITIVE):
            metadata |= {FILLERS_KEY: self.rows.fillers}
        elif unit.suffix == FIRST_AUDIT and unit.role not in (Role.UNSEEN, Role.POSITIVE):
            metadata |= self.rows.documented | ({"control_form": False} if unit.role is Role.REFERENCE else {})
        unit_task = UnitTask(name, metadata, self.rows.load(name, metadata, unit.model))
        if isinstance(unit_task.loaded, str) or unit.role is not Role.UNSEEN or unit.suffix not in (TOKENS, CONFUSION):
            return unit_task
        return self._made_comparable(unit.suffix, unit_task)

    def _rows_of(self, unit: Unit, loaded: LoadedTask | str) -> list[PlacedRow]:
        """Return the rows that a unit runs: as a rule those that are drawn for the task.

        Unseen questions are all run; a positive control has as many rows as the task. An audit whose rows are not
        questions of the benchmark, such as one of question orders, draws from its own rows.
        """
        if unit.kind == RUN:
            return self.rows.chosen
        if isinstance(loaded, str):
            return []
        if unit.role is Role.UNSEEN:
            return loaded.rows
        exchanges_beside_orders = self._exchanges_beside_orders(unit)
        chosen = self.rows.names_beside if exchanges_beside_orders else self.rows.chosen
        if unit.role is Role.POSITIVE:
            return drawn_once(exchangeable(loaded, self.rows.fillers), len(chosen), self.plan.seed)
        if exchanges_beside_orders:
            return chosen
        rows = dict.fromkeys(row for _, row in found_among(loaded.rows, self.rows.chosen))
        return list(rows) or self.rows.drawn(loaded.keyed(loaded.rows))

    # ------------------------------------------------------------------ steps that need the unit's task

    def _step_by_task(self, unit: Unit, places: Sequence[Path]) -> Step:
        """Return the step of a unit whose task is loaded for it.

        A run in one of the places is reused; else the step says why the unit cannot be run, or what a worker runs.
        """
        unit_task = self._task_of(unit)
        loaded, rows = unit_task.loaded, self._rows_of(unit, unit_task.loaded)
        has_other_rows = unit.role in (Role.UNSEEN, Role.POSITIVE) or self._exchanges_beside_orders(unit)
        n = len(rows if has_other_rows else self.rows.chosen)
        if isinstance(loaded, str):
            return self._step(unit, n, StepStatus.NOT_POSSIBLE, loaded)
        for place in places:
            present = present_runs(
                [place],
                self.sources.who[unit.model],
                needs_control=unit.role is not Role.REFERENCE,
                is_same=is_same_model,
            )
            if files := present.exact(unit.suffix, rows, loaded):
                return self._reused(unit, n, files)
        return self._not_possible(unit, n, rows, loaded) or self._to_run(unit, rows, unit_task, loaded)

    def _not_possible(self, unit: Unit, n: int, rows: Sequence[PlacedRow], loaded: LoadedTask) -> Step | None:
        """Return the step of a unit that cannot be run or would give no verdict; None if no reason is known."""
        remedy, backend = "", self.sources.who[unit.model].model
        needs = sorted({task_needs(task) for task in loaded.leaves.values()})
        reason = next(filter(None, (why_cannot_answer(backend, need) for need in needs)), "")
        if not (reason or rows):
            reason = "no question can be read"
        elif not reason and unit.kind == FIRST_AUDIT and self.rows.obstacle is not None:
            reason, remedy = self.rows.obstacle.reason, self.rows.obstacle.remedy
        elif not reason and unit.role is Role.UNSEEN and unit.suffix == FIRST_AUDIT:
            natural = obstacle_of_unseen(loaded.leaves)
            reason = natural and f"they do not say what is natural: {natural}"
        elif not reason and unit.suffix == FILLER_AUDIT and self.rows.has_only_numbers:
            reason = NUMBERS_ALONE
        return replace(self._step(unit, n, StepStatus.NOT_POSSIBLE, reason), remedy=remedy) if reason else None

    def _to_run(self, unit: Unit, rows: Sequence[PlacedRow], unit_task: UnitTask, loaded: LoadedTask) -> Step:
        """Return the step with the work of a unit that is to be run; without, if none of its rows can be scored."""
        samples = samples_of(rows)
        size = self.sources.size(loaded, samples, unit.model)
        if not size.n_requests:
            reason, _ = (size.untestable.most_common(1) or [("its questions cannot be scored", 0)])[0]
            return self._step(unit, len(rows), StepStatus.NOT_POSSIBLE, reason)
        is_drawn = len(self.rows.chosen) < len(self.rows.population) and unit.role is not Role.UNSEEN
        n_read = size.n_read(self.sources.who[unit.model].model)
        work = UnitWork(
            task=unit_task.name,
            metadata=self.sources.metadata(unit.model, unit_task.metadata),
            samples=samples,
            digests={task: loaded.digest(task) for task in samples},
            num_fewshot=self.rows.num_fewshot_of(unit_task.name),
            seed=self.plan.seed if is_drawn else None,
            n_characters=size.n_characters,
            n_tokens=n_read + size.n_generated,
            size=size,
        )
        is_tested = unit.kind in (FIRST_AUDIT, FILLER_AUDIT)
        note = self._remark_on_count(loaded.keyed(rows), unit.kind) if is_tested else ""
        step = self._step(unit, len(rows), note=note)
        return replace(step, n_requests=size.n_requests, n_tokens=n_read, work=work)

    @cached_property
    def _takes_long(self) -> bool:
        """True if the task's accuracy takes generation on a CPU, and the plan does not set `accuracy`."""
        if self.plan.accuracy is not None or isinstance(self.rows.names, str) or isinstance(self.rows.base, str):
            return False
        backend = backend_of(self.sources.who[self.model].model)
        is_elsewhere = backend is not None and backend.has_server
        generates = any(task_needs(task) == "generate_until" for task in self.rows.base.leaves.values())
        if is_elsewhere or not generates:
            return False
        from lm_eval_leakage.stats.order_scores import find_device  # needs torch, which takes a second

        return self.sources.models[self.model].device == "cpu" or find_device("auto").type == "cpu"

    def _remark_on_count(self, rows: Sequence[PlacedRow], suffix: str) -> str:
        """Return the remark on which verdicts so many questions can have, by option orders or exchanged names."""
        n, design = len(each_once(rows, lambda row: row.key)), self.rows.design if suffix == FIRST_AUDIT else None
        n_enough = self.rows.n_enough if suffix == FIRST_AUDIT else self.rows.n_names_enough
        if n < FEWEST_JUDGED:
            return f"{counted(n)} are too few for a verdict, which needs {FEWEST_JUDGED}"
        extent = f"{counted(n)} and {counted(len(rows) - n, 'row')} with copies of them" if n < len(rows) else ""
        if self.plan.budget is not None and design is not None:
            extent = str(design.within)
        in_layouts = f"in {count(design.n_layouts)} layouts" if design is not None and design.n_layouts > 1 else ""
        leak = f"{whole_percent(self.plan.detect)} seen {DETECT_TIMES} times"
        power = f"probably enough to find {leak}"
        if n_enough is None:
            power = f"no number of questions is enough to find {leak}"
        elif n < n_enough:
            power = f"about {counted(rounded_up(n_enough))} are usually needed to find {leak}"
        may_exclude = self.rows.names_may_exclude(n) if design is None else design.may_exclude(n)
        words = f"{VerdictWord.EVIDENCE}, {VerdictWord.NONE_FOUND}" if may_exclude else VerdictWord.EVIDENCE
        ends = f"with {counted(n)}: {words} or {VerdictWord.INCONCLUSIVE}"
        return "; ".join(filter(None, (extent, in_layouts, power, ends)))

    def _made_comparable(self, suffix: str, unit_task: UnitTask) -> UnitTask:
        """Return an audit of unseen questions that scores them in the way in which the benchmark's are scored.

        The audit is of texts or of choice confusion. Prompts of the two are compared by a first question of each. If
        the benchmark's own prompt does not fit other questions, `loaded` is NOT_ALIKE.
        """
        question = _first_question(self.rows.load(f"{self.name}_{suffix}"), suffix)
        if question is None:
            return unit_task
        plain = replace(question, frame=None, prompt=None)  # without the benchmark's own prompt
        not_alike = replace(unit_task, loaded=NOT_ALIKE)
        if suffix == TOKENS:
            other = _first_question(unit_task.loaded, suffix)
            is_plain = whole_text(question) == whole_text(plain)
            if other is None or is_plain == (whole_text(other) == whole_text(replace(other, frame=None, prompt=None))):
                return unit_task
            return not_alike
        score = "letters" if question.prompt is None else "texts"
        if ChoiceConfusion().original_requests(question) != ChoiceConfusion(score=score).original_requests(plain):
            return not_alike
        if score == "letters":
            return unit_task
        metadata = {**unit_task.metadata, "score": score}
        return UnitTask(unit_task.name, metadata, self.rows.load(unit_task.name, metadata))


def _remarks_on(present: PresentRuns) -> Iterator[str]:
    """Yield a sentence for each given run of another model, and one for runs that do not record their weights."""
    for difference in present.others:
        yield f"runs of another model of this name are there and are not used: {difference}"
    if present.n_unknown:
        runs = counted(present.n_unknown, "run")
        yield f"the weights are not recorded in {runs} of --runs, taken for the model's by name"


def _first_question(loaded: LoadedTask | str, suffix: str) -> Question | None:
    """Return the first question of a task that an audit can score; choice confusion needs one with an answer."""
    for task in () if isinstance(loaded, str) else loaded.leaves.values():
        questions: Iterable[Question] = task.benchmark()
        for question in questions:
            if suffix == TOKENS or question.answer is not None:
                return question
    return None
