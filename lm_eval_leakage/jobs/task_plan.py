"""One task of a plan for one model: what is to be done for each of its units."""

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
IN_WORDS = {
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
class AskedTask:
    """A task or audit that a unit asks.

    metadata: by which it is loaded, beside the arguments of the model and the metadata of the plan
    loaded: or why it cannot be asked
    """

    name: str
    metadata: Mapping[str, object]
    loaded: LoadedTask | str


class TaskPlan:
    """The plan of one task for one model: what is to be done for its units.

    model: its key in the plan
    """

    def __init__(self, sources: PlanSources, model: str, name: str) -> None:
        self.sources, self.plan, self.model, self.name = sources, sources.plan, model, name
        self.rows = TaskRows(sources, model, name)

    def _is_beside(self, unit: Unit) -> bool:
        """Return whether a unit exchanges names where option orders are asked, too."""
        return unit.suffix == FILLER_AUDIT and isinstance(self.rows.names, str)

    def planned(self, unit: Unit, places: Sequence[Path]) -> Step:
        step = self._without_asking(unit) or self._asked(unit, places)
        whole = len(self.rows.chosen) == len(self.rows.population)
        return replace(
            step,
            benchmarks=self.rows.benchmarks,
            n_available=len(self.rows.population),
            whole=whole,
            staged=self.rows.is_staged,
        )

    def _step(self, unit: Unit, n_questions: int, status: StepStatus = StepStatus.TO_RUN, note: str = "") -> Step:
        words = [IN_WORDS.get(unit.suffix, unit.suffix)]
        if unit.suffix == FILLER_AUDIT:
            words = [f"exchanged {self.rows.fillers}"]
        if unit.role is Role.UNSEEN:
            words.insert(0, UNSEEN_RUN)
        if unit.role is Role.POSITIVE:
            words.insert(0, POSITIVE_RUN)
        if unit.role is Role.REFERENCE or unit.model != self.model:
            words.insert(0, REFERENCE_RUN)
        return Step(self.name, ": ".join(words), n_questions, status=status, note=note)

    def _there(self, unit: Unit, n_questions: int, files: Sequence[Path]) -> Step:
        folders = ", ".join(dict.fromkeys(str(file.parent) for file in files))
        return replace(self._step(unit, n_questions, StepStatus.THERE, folders), files=tuple(map(str, files)))

    def _without_asking(self, unit: Unit) -> Step | None:
        """Return the step of a unit for which the model is not asked; None if it is to be asked.

        The step has what given runs answer, or why the unit is not run.
        """
        n = len(self.rows.chosen)
        if unit.kind == RUN and (reason := self.sources.unscored.get(self.name)):
            return self._step(unit, 0, StepStatus.NOT_POSSIBLE, reason)
        if unit.kind == RUN and self._takes_long:
            return self._step(unit, n, StepStatus.NOT_NEEDED, ACCURACY_TAKES_LONG)
        if unit.role is Role.RUNS and self.rows.given.has_all(unit.kind, self.rows.chosen):
            step = self._there(unit, n, self.rows.given.with_any(unit.kind, self.rows.chosen))
            return replace(step, remarks=tuple(_unlike(self.rows.given)))
        if unit.suffix == FIRST_AUDIT and unit.role is not Role.RUNS and self.rows.obstacle is not None:
            return self._step(unit, 0, StepStatus.NOT_NEEDED, NO_VERDICT_BY_ORDERS)
        if unit.role is not Role.REFERENCE or unit.suffix == TOKENS:
            return None
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

    def _task_of(self, unit: Unit) -> AskedTask:
        if unit.kind == RUN:
            return AskedTask(self.name, {}, self.rows.base)
        name = f"{self.name}_{unit.suffix}"
        if unit.kind == FIRST_AUDIT:
            return AskedTask(name, self.rows.documented | self.rows.of_orders, self.rows.orders)
        metadata: dict[str, object] = {**self.rows.of_orders} if unit.suffix == FIRST_AUDIT else {}
        if unit.role is Role.UNSEEN:
            metadata |= self.plan.unseen_metadata
        elif unit.role is Role.POSITIVE:
            metadata |= self.plan.positive_metadata
        if unit.suffix == FILLER_AUDIT and unit.role in (Role.UNSEEN, Role.POSITIVE):
            metadata |= {FILLERS_KEY: self.rows.fillers}
        elif unit.suffix == FIRST_AUDIT and unit.role not in (Role.UNSEEN, Role.POSITIVE):
            metadata |= self.rows.documented | ({"control_form": False} if unit.role is Role.REFERENCE else {})
        asked_task = AskedTask(name, metadata, self.rows.load(name, metadata, unit.model))
        if (
            isinstance(asked_task.loaded, str)
            or unit.role is not Role.UNSEEN
            or unit.suffix not in (TOKENS, CONFUSION)
        ):
            return asked_task
        return self._asked_alike(unit.suffix, asked_task)

    def _rows_of(self, unit: Unit, loaded: LoadedTask | str) -> list[PlacedRow]:
        """Return the drawn questions; all of the unseen ones.

        An audit whose rows are not questions of the benchmark, such as one of question orders, draws from its own.
        """
        if unit.kind == RUN:
            return self.rows.chosen
        if isinstance(loaded, str) or unit.role is Role.UNSEEN:
            return [] if isinstance(loaded, str) else loaded.rows
        chosen = self.rows.names_beside if self._is_beside(unit) else self.rows.chosen
        if unit.role is Role.POSITIVE:
            return drawn_once(exchangeable(loaded, self.rows.fillers), len(chosen), self.plan.seed)
        if self._is_beside(unit):
            return chosen
        rows = dict.fromkeys(row for _, row in found_among(loaded.rows, self.rows.chosen))
        return list(rows) or self.rows.drawn(loaded.keyed(loaded.rows))

    # ------------------------------------------------------------------ parts of a step

    def _asked(self, unit: Unit, places: Sequence[Path]) -> Step:
        """Return the step of a unit: what is there already, else what is to be run, else why it cannot be."""
        asked_task = self._task_of(unit)
        loaded, rows = asked_task.loaded, self._rows_of(unit, asked_task.loaded)
        n = len(rows if unit.role in (Role.UNSEEN, Role.POSITIVE) or self._is_beside(unit) else self.rows.chosen)
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
                return self._there(unit, n, files)
        return self._impossible(unit, n, rows, loaded) or self._to_run(unit, rows, asked_task, loaded)

    def _impossible(self, unit: Unit, n: int, rows: Sequence[PlacedRow], loaded: LoadedTask) -> Step | None:
        """Return why rows cannot be asked, or would give no verdict; None if nothing is known to prevent it."""
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

    def _to_run(self, unit: Unit, rows: Sequence[PlacedRow], asked_task: AskedTask, loaded: LoadedTask) -> Step:
        samples = samples_of(rows)
        size = self.sources.size(loaded, samples, unit.model)
        if not size.n_requests:
            reason, _ = (size.untestable.most_common(1) or [("its questions cannot be scored", 0)])[0]
            return self._step(unit, len(rows), StepStatus.NOT_POSSIBLE, reason)
        is_drawn = len(self.rows.chosen) < len(self.rows.population) and unit.role is not Role.UNSEEN
        n_read = size.n_read(self.sources.who[unit.model].model)
        work = UnitWork(
            task=asked_task.name,
            metadata=self.sources.metadata(unit.model, asked_task.metadata),
            samples=samples,
            digests={task: loaded.digest(task) for task in samples},
            num_fewshot=self.rows.num_fewshot_of(asked_task.name),
            seed=self.plan.seed if is_drawn else None,
            n_characters=size.n_characters,
            n_tokens=n_read + size.n_generated,
            size=size,
        )
        is_tested = unit.kind in (FIRST_AUDIT, FILLER_AUDIT)
        note = self._of_count(loaded.keyed(rows), unit.kind) if is_tested else ""
        step = self._step(unit, len(rows), note=note)
        return replace(step, n_requests=size.n_requests, n_tokens=n_read, work=work)

    @cached_property
    def _takes_long(self) -> bool:
        """True if its accuracy takes generation on a CPU, and the plan does not ask for it by name."""
        if self.plan.accuracy is not None or isinstance(self.rows.names, str) or isinstance(self.rows.base, str):
            return False
        backend = backend_of(self.sources.who[self.model].model)
        is_elsewhere = backend is not None and backend.has_server
        generates = any(task_needs(task) == "generate_until" for task in self.rows.base.leaves.values())
        if is_elsewhere or not generates:
            return False
        from lm_eval_leakage.stats.order_scores import find_device  # needs torch, which takes a second

        return self.sources.models[self.model].device == "cpu" or find_device("auto").type == "cpu"

    def _of_count(self, rows: Sequence[PlacedRow], suffix: str) -> str:
        """Return the remark on the number of questions in an audit of option orders or exchanged names."""
        n, design = len(each_once(rows, lambda row: row.key)), self.rows.design if suffix == FIRST_AUDIT else None
        n_enough = self.rows.n_enough if suffix == FIRST_AUDIT else self.rows.n_names_enough
        if n < FEWEST_JUDGED:
            return f"{counted(n)} are too few for a verdict, which needs {FEWEST_JUDGED}"
        copies = f"{counted(n)} and {counted(len(rows) - n, 'row')} with copies of them" if n < len(rows) else ""
        if self.plan.budget is not None and design is not None:
            copies = str(design.within)
        in_layouts = f"in {count(design.n_layouts)} layouts" if design is not None and design.n_layouts > 1 else ""
        what = f"{whole_percent(self.plan.detect)} seen {DETECT_TIMES} times"
        power = f"probably enough to find {what}"
        if n_enough is None:
            power = f"no number of questions is enough to find {what}"
        elif n < n_enough:
            power = f"about {counted(rounded_up(n_enough))} are usually needed to find {what}"
        may_exclude = n_enough is not None and 2 * n >= n_enough  # a model may need half as many as usual
        words = f"{VerdictWord.EVIDENCE}, {VerdictWord.NONE_FOUND}" if may_exclude else VerdictWord.EVIDENCE
        ends = f"with {counted(n)}: {words} or {VerdictWord.INCONCLUSIVE}"
        return "; ".join(filter(None, (copies, in_layouts, power, ends)))

    def _asked_alike(self, suffix: str, asked_task: AskedTask) -> AskedTask:
        """Return choice confusion and texts of unseen questions as of the benchmark, so that they can be compared."""
        question = _first_question(self.rows.load(f"{self.name}_{suffix}"), suffix)
        if question is None:
            return asked_task
        plain, not_alike = replace(question, frame=None, prompt=None), replace(asked_task, loaded=NOT_ALIKE)
        if suffix == TOKENS:
            other = _first_question(asked_task.loaded, suffix)
            is_plain = whole_text(question) == whole_text(plain)
            if other is None or is_plain == (whole_text(other) == whole_text(replace(other, frame=None, prompt=None))):
                return asked_task
            return not_alike
        score = "letters" if question.prompt is None else "texts"
        if ChoiceConfusion().original_requests(question) != ChoiceConfusion(score=score).original_requests(plain):
            return not_alike
        if score == "letters":
            return asked_task
        metadata = {**asked_task.metadata, "score": score}
        return AskedTask(asked_task.name, metadata, self.rows.load(asked_task.name, metadata))


def _unlike(present: PresentRuns) -> Iterator[str]:
    for difference in present.others:
        yield f"runs of another model of this name are there and are not used: {difference}"
    if present.n_unknown:
        runs = f"{counted(present.n_unknown, 'run')} that --runs names do not say which weights they are of"
        yield f"{runs}; they are used by the model's name"


def _first_question(loaded: LoadedTask | str, suffix: str) -> Question | None:
    """Return the first question of a task that can be asked. Choice confusion needs its answer, too."""
    for task in () if isinstance(loaded, str) else loaded.leaves.values():
        questions: Iterable[Question] = task.benchmark()
        for question in questions:
            if suffix == TOKENS or question.answer is not None:
                return question
    return None
