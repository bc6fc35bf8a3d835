"""One task of a plan for one model: which rows are drawn, and what is to be done for each of its units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lm_eval_leakage.detectors.choice_confusion import ChoiceConfusion
from lm_eval_leakage.detectors.option_orders import EVERY
from lm_eval_leakage.harness.backends import backend_of, why_cannot_answer
from lm_eval_leakage.harness.costs import task_needs
from lm_eval_leakage.harness.task_shelf import LoadedTask, PlacedRow, digest_of_rows, found_among
from lm_eval_leakage.harness.tasks.audited_rows import FILLERS_KEY
from lm_eval_leakage.harness.tasks.filler_audit import FillerAudit
from lm_eval_leakage.harness.tasks.order_status import STATUS_KEY
from lm_eval_leakage.harness.tasks.prospect import Obstacle, Prospect, natural_before, obstacle_of_unseen
from lm_eval_leakage.harness.tasks.templates import FILLER_AUDIT, FIRST_AUDIT
from lm_eval_leakage.jobs.design import AuditDesign
from lm_eval_leakage.jobs.drawing import (
    FEWEST_DRAWN,
    FIRST_PART,
    N_QUESTIONS,
    STAGED_FROM,
    drawn_once,
    samples_of,
)
from lm_eval_leakage.jobs.manifest import is_same_model
from lm_eval_leakage.jobs.plan import ALL_QUESTIONS, CONFUSION, ENOUGH, TOKENS
from lm_eval_leakage.jobs.plan_sources import PlanSources
from lm_eval_leakage.jobs.present_runs import PresentRuns, present_references, present_runs
from lm_eval_leakage.jobs.steps import Step, StepStatus, UnitWork
from lm_eval_leakage.jobs.units import RUN, Role, Unit
from lm_eval_leakage.questions.families import each_once
from lm_eval_leakage.questions.rendering import AUDITED, whole_text
from lm_eval_leakage.questions.slots import NAMES, NUMBERS
from lm_eval_leakage.questions.statements import NO_DETAIL
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.filler_verdict import NUMBERS_ALONE, rows_usually_needed
from lm_eval_leakage.results.formatting import count, counted, rounded_up, whole_percent
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.verdict import FEWEST_JUDGED, VerdictWord
from lm_eval_leakage.stats.order_power import DETECT_TIMES
from lm_eval_leakage.stats.order_sum import NaturalPart

HOW_ORDERS_ARE_ASKED = frozenset({"layouts", "orders"})  # keys of `metadata`: who gives one has the last word
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
NO_NAMES = "its questions have options, whose orders are asked"
NOT_ALIKE = "the benchmark's own prompt is not one in which other questions can be asked"


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
    """The plan of one task for one model: its drawn questions, and what is to be done for its units.

    model: its key in the plan
    """

    def __init__(self, sources: PlanSources, model: str, name: str) -> None:
        self.sources, self.plan, self.model, self.name = sources, sources.plan, model, name
        self.who, self.given = sources.who[model], sources.given(model)
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
        return orders, None if isinstance(orders, str) else self.sources.design(orders)

    @property
    def _layouts(self) -> dict[str, Any]:
        """The layouts of the audit of option orders. One alone misses leakage in others.

        Two options have one: each layout prefers one or the other, so that several leave ties.
        """
        if self.plan.budget is not None or self.plan.metadata.keys() & HOW_ORDERS_ARE_ASKED:
            return {}
        layouts = EVERY if self.references is None else self.references.layouts
        return {} if layouts == AUDITED else {"layouts": layouts}

    def _chosen(self) -> list[PlacedRow]:
        """Return the rows of the given runs, if there are any; among them, those that the reference has, too."""
        base = [] if isinstance(self.base, str) else self.base.rows
        audited = self._exchangeable
        if not isinstance(self.orders, str):
            audited = self.orders.keyed(self.orders.rows)
        read = [replace(row, key=base_row.key) for row, base_row in found_among(audited, base)]
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
            if self._is_early:
                n = max(FEWEST_DRAWN, rounded_up(min(n, len(self.population)) * FIRST_PART))
        return drawn_once(rows, n, self.plan.seed)

    @property
    def _is_early(self) -> bool:
        """Return whether only the questions of the first stage are asked."""
        return (self.model, self.name) in self.sources.early

    @property
    def is_staged(self) -> bool:
        is_free = self.plan.questions == ENOUGH and self.plan.budget is None
        # other rows would exchange other names, so that no answer of a first stage could be used again
        is_free = is_free and isinstance(self.names, str)
        return is_free and min(self.n_enough or 0, len(self.population)) >= STAGED_FROM

    @property
    def n_enough(self) -> int | None:
        """The number of questions that are enough; None, too, if neither option orders nor names are asked."""
        if not isinstance(self.names, str):
            return self._n_names_enough
        return None if self.design is None or self.obstacle_of_all is not None else self.design.n_enough

    @property
    def _n_names_enough(self) -> int | None:
        """Return how many rows that exchange their names are enough."""
        return rows_usually_needed(
            self.plan.detect, self.sources.level, has_reference=self._has_reference, fillers=self._fillers
        )

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
        """The reason why the option orders of all questions that may be drawn give no verdict; None if they may."""
        return self._prospect(self.population).obstacle

    @cached_property
    def obstacle(self) -> Obstacle | None:
        """The reason why the drawn questions give no verdict. A first stage is only asked where all may have one."""
        if self.obstacle_of_all is not None:
            every = self.obstacle_of_all
            remedies = (*every.remedies, *self._of_texts())
            return Obstacle(f"{every.reason}; no number of questions is enough", remedies)
        if self._is_early or (obstacle := self._prospect(self.chosen).obstacle) is None:
            return None
        n = 2 * len(self.chosen)
        while n < len(self.population):
            if self._prospect(drawn_once(self.population, n, self.plan.seed)).obstacle is None:
                break
            n *= 2
        enough = ALL_QUESTIONS if n >= len(self.population) else n
        return Obstacle(f"of those drawn, {obstacle.reason}", (f"more questions (`--questions {enough}`)",))

    def _prospect(self, rows: Sequence[PlacedRow]) -> Prospect:
        """Return what can be known of a verdict on these rows of the benchmark."""
        if isinstance(self.orders, str):
            return Prospect(())
        leaves = self.orders.leaves
        places = [(leaves[row.task], row.index) for _, row in found_among(self.orders.rows, rows)]
        return Prospect(places, self._has_reference, self._natural)

    @cached_property
    def _has_reference(self) -> bool:
        return self.sources.has_reference_model or bool(self.references and self.references.among(self.population))

    @cached_property
    def _natural(self) -> NaturalPart | None:
        """The natural part that the unseen questions will give, where that decides whether there is a verdict."""
        leaves = {} if isinstance(self.orders, str) else self.orders.leaves
        if self.plan.unseen is None or all(task.orders.status != OrderStatus.PATTERNED for task in leaves.values()):
            return None
        metadata = {**self.of_orders, **self.plan.of_unseen}
        unseen = self._loaded(f"{self.name}_{FIRST_AUDIT}", metadata)
        return None if isinstance(unseen, str) else natural_before(unseen.leaves)

    def _of_texts(self) -> Iterator[str]:
        """Yield the remedy by texts, which show evidence without any option orders."""
        has_all = self.plan.unseen is not None and self.sources.has_reference_model
        if not self._prospect(self.population).has_enough_families:
            return
        task = self._loaded(f"{self.name}_{TOKENS}")
        if has_all or isinstance(task, str) or TOKENS not in self.plan.audits:
            return
        needs = {task_needs(leaf) for leaf in task.leaves.values()}
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

    def planned(self, unit: Unit, places: Sequence[Path]) -> Step:
        step = self._without_asking(unit) or self._asked(unit, places)
        whole = len(self.chosen) == len(self.population)
        return replace(
            step, benchmarks=self.benchmarks, n_available=len(self.population), whole=whole, staged=self.is_staged
        )

    def _step(self, unit: Unit, n_questions: int, status: StepStatus = StepStatus.TO_RUN, note: str = "") -> Step:
        words = [IN_WORDS.get(unit.suffix, unit.suffix)]
        if unit.suffix == FILLER_AUDIT:
            words = [f"exchanged {self._fillers}"]
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
        n = len(self.chosen)
        if unit.kind == RUN and (reason := self.sources.unscored.get(self.name)):
            return self._step(unit, 0, StepStatus.NOT_POSSIBLE, reason)
        if unit.kind == RUN and self._takes_long:
            return self._step(unit, n, StepStatus.NOT_NEEDED, ACCURACY_TAKES_LONG)
        if unit.role is Role.RUNS and self.given.has_all(unit.kind, self.chosen):
            step = self._there(unit, n, self.given.with_any(unit.kind, self.chosen))
            return replace(step, remarks=tuple(_unlike(self.given)))
        if unit.suffix == FIRST_AUDIT and unit.role is not Role.RUNS and self.obstacle is not None:
            return self._step(unit, 0, StepStatus.NOT_NEEDED, NO_VERDICT_BY_ORDERS)
        if unit.role is not Role.REFERENCE or unit.suffix == TOKENS:
            return None
        if isinstance(self.orders, str) and unit.suffix != FILLER_AUDIT:
            return self._step(unit, n, StepStatus.NOT_POSSIBLE, self.orders)
        if self.design is not None and self.design.is_exact:
            return self._step(unit, n, StepStatus.NOT_NEEDED, "the published orders were drawn at random")
        if self.references is None:
            return None
        if rows := self.references.among(self.chosen):
            return self._step(unit, len(rows), StepStatus.THERE, str(self.plan.reference))
        why = f"{self.plan.reference} has no audit of these questions by another model"
        return self._step(unit, 0, StepStatus.NOT_POSSIBLE, why)

    def _task_of(self, unit: Unit) -> AskedTask:
        if unit.kind == RUN:
            return AskedTask(self.name, {}, self.base)
        name = f"{self.name}_{unit.suffix}"
        if unit.kind == FIRST_AUDIT:
            return AskedTask(name, self.documented | self.of_orders, self.orders)
        metadata: dict[str, object] = {**self.of_orders} if unit.suffix == FIRST_AUDIT else {}
        if unit.role is Role.UNSEEN:
            metadata |= self.plan.of_unseen
        elif unit.role is Role.POSITIVE:
            metadata |= self.plan.of_positive
        if unit.suffix == FILLER_AUDIT and unit.role in (Role.UNSEEN, Role.POSITIVE):
            metadata |= {FILLERS_KEY: self._fillers}
        elif unit.suffix == FIRST_AUDIT and unit.role not in (Role.UNSEEN, Role.POSITIVE):
            metadata |= self.documented | ({"control_form": False} if unit.role is Role.REFERENCE else {})
        asked_task = AskedTask(name, metadata, self._loaded(name, metadata, unit.model))
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
            return self.chosen
        if isinstance(loaded, str) or unit.role is Role.UNSEEN:
            return [] if isinstance(loaded, str) else loaded.rows
        chosen = self._names_beside if self._is_beside(unit) else self.chosen
        if unit.role is Role.POSITIVE:
            return drawn_once(_exchangeable(loaded, self._fillers), len(chosen), self.plan.seed)
        if self._is_beside(unit):
            return chosen
        rows = dict.fromkeys(row for _, row in found_among(loaded.rows, self.chosen))
        return list(rows) or self._drawn(loaded.keyed(loaded.rows))

    # ------------------------------------------------------------------ parts of a step

    def _asked(self, unit: Unit, places: Sequence[Path]) -> Step:
        """Return the step of a unit: what is there already, else what is to be run, else why it cannot be."""
        asked_task = self._task_of(unit)
        loaded, rows = asked_task.loaded, self._rows_of(unit, asked_task.loaded)
        n = len(rows if unit.role in (Role.UNSEEN, Role.POSITIVE) or self._is_beside(unit) else self.chosen)
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
        reason = next((why for need in needs if (why := why_cannot_answer(backend, need))), "")
        if not (reason or rows):
            reason = "no question can be read"
        elif not reason and unit.kind == FIRST_AUDIT and self.obstacle is not None:
            reason, remedy = self.obstacle.reason, self.obstacle.remedy
        elif not reason and unit.role is Role.UNSEEN and unit.suffix == FIRST_AUDIT:
            natural = obstacle_of_unseen(loaded.leaves)
            reason = natural and f"they do not say what is natural: {natural}"
        elif not reason and unit.suffix == FILLER_AUDIT and self._only_numbers:
            reason = NUMBERS_ALONE
        return replace(self._step(unit, n, StepStatus.NOT_POSSIBLE, reason), remedy=remedy) if reason else None

    def _to_run(self, unit: Unit, rows: Sequence[PlacedRow], asked_task: AskedTask, loaded: LoadedTask) -> Step:
        samples = samples_of(rows)
        size = self.sources.size(loaded, samples, unit.model)
        if not size.n_requests:
            reason, _ = (size.untestable.most_common(1) or [("its questions cannot be asked", 0)])[0]
            return self._step(unit, len(rows), StepStatus.NOT_POSSIBLE, reason)
        is_drawn = len(self.chosen) < len(self.population) and unit.role is not Role.UNSEEN
        n_read = size.n_read(self.sources.who[unit.model].model)
        work = UnitWork(
            task=asked_task.name,
            metadata=self.sources.metadata(unit.model, asked_task.metadata),
            samples=samples,
            digests={task: loaded.digest(task) for task in samples},
            num_fewshot=self._num_fewshot(asked_task.name),
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
        if self.plan.accuracy is not None or isinstance(self.names, str) or isinstance(self.base, str):
            return False
        backend = backend_of(self.who.model)
        is_elsewhere = backend is not None and backend.has_server
        generates = any(task_needs(task) == "generate_until" for task in self.base.leaves.values())
        if is_elsewhere or not generates:
            return False
        from lm_eval_leakage.stats.order_scores import find_device  # needs torch, which takes a second

        return self.sources.models[self.model].device == "cpu" or find_device("auto").type == "cpu"

    def _of_count(self, rows: Sequence[PlacedRow], suffix: str) -> str:
        """Return the remark on the number of questions in an audit of option orders or exchanged names."""
        n, design = len(each_once(rows, lambda row: row.key)), self.design if suffix == FIRST_AUDIT else None
        n_enough = self.n_enough if suffix == FIRST_AUDIT else self._n_names_enough
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
            power = f"about {counted(n_enough)} are usually needed to find {what}"
        other = VerdictWord.INCONCLUSIVE if n_enough is None or n < n_enough else VerdictWord.NONE_FOUND
        ends = f"with {counted(n)}: {VerdictWord.EVIDENCE} or {other}"
        return "; ".join(filter(None, (copies, in_layouts, power, ends)))

    def _loaded(
        self, name: str, metadata: Mapping[str, object] | None = None, model: str | None = None
    ) -> LoadedTask | str:
        """Return the task, or why it cannot be used.

        model: whose arguments tasks are loaded with, instead of those of this plan's model
        """
        return self.sources.load(name, model or self.model, metadata or {}, self._num_fewshot(name))

    def _num_fewshot(self, name: str) -> int | None:
        """Return the number of examples that the plan gives to a task itself; audits have none."""
        return self.plan.num_fewshot if name == self.name else None

    def _asked_alike(self, suffix: str, asked_task: AskedTask) -> AskedTask:
        """Return choice confusion and texts of unseen questions as of the benchmark, so that they can be compared."""
        question = _first_question(self._loaded(f"{self.name}_{suffix}"), suffix)
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
        if ChoiceConfusion().original(question) != ChoiceConfusion(score=score).original(plain):
            return not_alike
        if score == "letters":
            return asked_task
        metadata = {**asked_task.metadata, "score": score}
        return AskedTask(asked_task.name, metadata, self._loaded(asked_task.name, metadata))


def _unlike(present: PresentRuns) -> Iterator[str]:
    for difference in present.others:
        yield f"runs of another model of this name are there and are not used: {difference}"
    if present.n_unknown:
        runs = f"{counted(present.n_unknown, 'run')} that --runs names do not say which weights they are of"
        yield f"{runs}; they are used by the model's name"


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
    """Return the first question of a task that can be asked. Choice confusion needs its answer, too."""
    tasks = () if isinstance(loaded, str) else loaded.leaves.values()
    questions = (question for task in tasks for question in task.benchmark())
    return next((question for question in questions if suffix == TOKENS or question.answer is not None), None)
