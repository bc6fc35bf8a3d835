"""The rows of one task that are drawn for one model, and whether they can give a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lm_eval_leakage.detectors.option_orders import EVERY
from lm_eval_leakage.harness.backends import why_cannot_answer
from lm_eval_leakage.harness.costs import task_needs
from lm_eval_leakage.harness.task_shelf import LoadedTask, PlacedRow, digest_of_rows, found_among
from lm_eval_leakage.harness.tasks.filler_audit import FillerAudit
from lm_eval_leakage.harness.tasks.order_status import STATUS_KEY
from lm_eval_leakage.harness.tasks.prospect import Obstacle, Prospect, natural_before
from lm_eval_leakage.harness.tasks.templates import FILLER_AUDIT, FIRST_AUDIT
from lm_eval_leakage.jobs.design import ERROR_OF_FIRST_LOOK, AuditDesign
from lm_eval_leakage.jobs.drawing import (
    FEWEST_DRAWN,
    FIRST_PART,
    N_QUESTIONS,
    STAGED_FROM,
    drawn_once,
)
from lm_eval_leakage.jobs.plan import ALL_QUESTIONS, ENOUGH, TOKENS
from lm_eval_leakage.jobs.plan_sources import PlanSources
from lm_eval_leakage.jobs.present_runs import present_references
from lm_eval_leakage.questions.families import each_once
from lm_eval_leakage.questions.rendering import AUDITED
from lm_eval_leakage.questions.slots import NAMES, NUMBERS
from lm_eval_leakage.questions.statements import NO_DETAIL
from lm_eval_leakage.results.filler_verdict import rows_usually_exclude, rows_usually_needed
from lm_eval_leakage.results.formatting import rounded_up
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.stats.order_power import DETECT_TIMES
from lm_eval_leakage.stats.order_sum import NaturalPart

SETTINGS_OF_ORDERS = frozenset(
    {"layouts", "orders"}
)  # keys of a plan's `metadata` that keep layouts from being chosen
NO_NAMES = "its questions have options, whose orders are scored"


class TaskRows:
    """The rows of one task for one model: those that may be drawn, and those that are.

    It says if they can give a verdict, and how many are needed for it.

    base, orders, names: the task itself, and its audits of option orders and of exchanged names. Each is the task in
        memory, or the reason why it cannot be run. `names` is NO_NAMES for a task that has an audit of option orders
    design: how many orders the audit of option orders scores; None if there is no such audit
    documented: metadata of the audit of option orders alone
    of_orders: metadata of that audit and of the same audit of the unseen questions
    given: the model's runs that the plan names
    references: other models' audits in the folder that the plan names; None without a folder
    population: the rows that may be drawn
    chosen: the rows that are drawn
    """

    def __init__(self, sources: PlanSources, model: str, name: str) -> None:
        self.sources, self.plan, self.model, self.name = sources, sources.plan, model, name
        self.who, self.given = sources.who[model], sources.given(model)
        orders, folder = self.plan.orders, self.plan.reference
        self.documented: dict[str, Any] = {} if orders is None else {STATUS_KEY: orders}
        self.of_orders: dict[str, Any] = {}
        self.base = self.load(name)
        if not isinstance(self.base, str):
            self.given = self.given.known_in(self.base)
        self.references = present_references(folder, self.who) if isinstance(folder, Path) else None
        self.orders, self.design = self._load_orders_with(self._layouts)
        # names are the main audit only of a task whose option orders cannot be scored
        self.names = self.load(f"{name}_{FILLER_AUDIT}") if isinstance(self.orders, str) else NO_NAMES
        if isinstance(self.orders, str) and isinstance(self.names, str) and self.names.startswith(NO_DETAIL):
            self.orders = f"{self.orders}; and {self.names}"
        if isinstance(self.orders, str) and (isinstance(self.base, str) or self.plan.budget is not None):
            raise ValueError(self.base if isinstance(self.base, str) else f"{name} cannot be checked: {self.orders}")
        if self._layouts and self.design is not None and self.design.n_orders <= 2:
            self.orders, self.design = self._load_orders_with({})
        self.chosen = self._draw()
        if self.plan.budget is not None and self.design is not None:
            self.of_orders = {"orders": self.design.within.n_orders}
            self.orders = self._audit_of_orders()

    def _audit_of_orders(self) -> LoadedTask | str:
        """Return the audit of option orders with its present metadata, or why it cannot be run."""
        return self.load(f"{self.name}_{FIRST_AUDIT}", self.documented | self.of_orders)

    def _load_orders_with(self, layouts: dict[str, Any]) -> tuple[LoadedTask | str, AuditDesign | None]:
        """Set the layouts in `of_orders`, and return the audit of option orders with its design."""
        self.of_orders = layouts
        orders = self._audit_of_orders()
        return orders, None if isinstance(orders, str) else self.sources.design(orders)

    @property
    def _layouts(self) -> dict[str, Any]:
        """The metadata of the layouts that the audit of option orders scores; empty for its default layout.

        They are every layout, or those of the references: a single layout misses leakage in others. The initializer
        takes questions of two options back to a single layout. With several, ties remain, since each layout prefers
        one of the two orders.
        """
        if self.plan.budget is not None or self.plan.metadata.keys() & SETTINGS_OF_ORDERS:
            return {}
        layouts = EVERY if self.references is None else self.references.layouts
        return {} if layouts == AUDITED else {"layouts": layouts}

    def _draw(self) -> list[PlacedRow]:
        """Set `population`, and return the rows that are drawn from it.

        The population has only rows that the given runs and the references have, where there are any.
        """
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
        return self.drawn(population)

    @cached_property
    def _exchangeable(self) -> list[PlacedRow]:
        """The rows whose names can be exchanged; empty unless names are the main audit of the task."""
        return [] if isinstance(self.names, str) else exchangeable(self.names, self.fillers)

    def drawn(self, rows: Sequence[PlacedRow]) -> list[PlacedRow]:
        """Return rows drawn at random, as many as `questions` of the plan or the first stage sets."""
        n = self.plan.questions if isinstance(self.plan.questions, int) else None
        if self.plan.questions == ENOUGH:
            n = max(self.n_enough or N_QUESTIONS, FEWEST_DRAWN)
            if self._is_early:
                n = max(FEWEST_DRAWN, rounded_up(min(n, len(self.population)) * FIRST_PART))
        return drawn_once(rows, n, self.plan.seed)

    @property
    def _is_early(self) -> bool:
        """True if this plan is that of the first stage, which draws fewer questions."""
        return (self.model, self.name) in self.sources.early

    @property
    def is_staged(self) -> bool:
        """True if so many rows are needed that a first stage of fewer rows is run before all."""
        is_free = self.plan.questions == ENOUGH and self.plan.budget is None
        # other rows would exchange other names, so that no answer of a first stage could be used again
        is_free = is_free and isinstance(self.names, str)
        return is_free and min(self.n_enough or 0, len(self.population)) >= STAGED_FROM

    @property
    def n_enough(self) -> int | None:
        """The number of questions with which the main audit probably finds `detect` of the plan.

        None if no number is enough, or if neither option orders nor names can be audited.
        """
        if not isinstance(self.names, str):
            return self.n_names_enough
        return None if self.design is None or self.obstacle_of_all is not None else self.design.n_enough

    @property
    def n_names_enough(self) -> int | None:
        """The number of rows with which exchanged names probably find `detect` of the plan; None if none is enough."""
        return rows_usually_needed(
            self.plan.detect, self.sources.level, has_reference=self._has_reference, fillers=self.fillers
        )

    def names_may_exclude(self, n: int) -> bool:
        """Return whether exchanged names in n rows may exclude `detect` of the plan, if a model has not seen them."""
        error, has_reference = ERROR_OF_FIRST_LOOK, self._has_reference
        shares = rows_usually_exclude(n, error, has_reference=has_reference, fillers=self.fillers)
        return dict(shares)[DETECT_TIMES] <= self.plan.detect

    @cached_property
    def names_beside(self) -> list[PlacedRow]:
        """The rows whose names are exchanged for a task that has an audit of option orders, too.

        They are drawn apart from `chosen`, since only some rows have a name, and they cost less than orders.
        """
        loaded = self.load(f"{self.name}_{FILLER_AUDIT}")
        n = self.plan.questions if isinstance(self.plan.questions, int) else None
        n = self.n_names_enough if self.plan.questions == ENOUGH else n
        return [] if isinstance(loaded, str) else drawn_once(exchangeable(loaded, self.fillers), n, self.plan.seed)

    @cached_property
    def fillers(self) -> str:
        """The kind of fillers that the task's rows exchange: NUMBERS if all its members do, else NAMES."""
        loaded = self.load(f"{self.name}_{FILLER_AUDIT}") if isinstance(self.names, str) else self.names
        kinds = set() if isinstance(loaded, str) else {task.fillers for task in loaded.leaves.values()}
        return NUMBERS if kinds == {NUMBERS} else NAMES

    @property
    def has_only_numbers(self) -> bool:
        """True if the rows exchange numbers, and have neither a reference nor unseen questions for a verdict."""
        return self.fillers == NUMBERS and not (self._has_reference or self.plan.unseen is not None)

    # ------------------------------------------------------------------ whether a verdict is possible

    @cached_property
    def obstacle_of_all(self) -> Obstacle | None:
        """The reason why the option orders of all questions that may be drawn give no verdict; None if they may."""
        return self._prospect(self.population).obstacle

    @cached_property
    def obstacle(self) -> Obstacle | None:
        """The reason why option orders of the drawn questions give no verdict; None if they may.

        A first stage has none of its own: it is run only where all questions may have a verdict.
        """
        if self.obstacle_of_all is not None:
            every = self.obstacle_of_all
            remedies = (*every.remedies, *self._remedies_by_texts())
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
        """True if a reference model is audited, or the folder of references has any of the rows."""
        return self.sources.has_reference_model or bool(self.references and self.references.among(self.population))

    @cached_property
    def _natural(self) -> NaturalPart | None:
        """The natural part that the unseen questions will give, where that decides whether there is a verdict."""
        leaves = {} if isinstance(self.orders, str) else self.orders.leaves
        if self.plan.unseen is None or all(task.orders.status != OrderStatus.PATTERNED for task in leaves.values()):
            return None
        metadata = {**self.of_orders, **self.plan.unseen_metadata}
        unseen = self.load(f"{self.name}_{FIRST_AUDIT}", metadata)
        return None if isinstance(unseen, str) else natural_before(unseen.leaves)

    def _remedies_by_texts(self) -> Iterator[str]:
        """Yield the remedy to test texts, which need no option orders; nothing if it would not help."""
        has_all = self.plan.unseen is not None and self.sources.has_reference_model
        if not self._prospect(self.population).has_enough_families:
            return
        task = self.load(f"{self.name}_{TOKENS}")
        if has_all or isinstance(task, str) or TOKENS not in self.plan.audits:
            return
        needs = {task_needs(leaf) for leaf in task.leaves.values()}
        if not any(why_cannot_answer(self.who.model, need) for need in needs):
            yield "unseen questions and a reference, beside which texts are tested (`--unseen FILE --reference ARGS`)"

    @cached_property
    def benchmarks(self) -> dict[str, str]:
        """The task or a group's tasks, each with a digest of its rows; it is empty for those that are not audited."""
        tested = self.names if isinstance(self.orders, str) else self.orders
        audited = {} if isinstance(tested, str) else tested.leaves
        every = {} if isinstance(self.base, str) else self.base.leaves
        digests = {task.audited: digest_of_rows(task, documented=False) for task in audited.values()}
        return {**dict.fromkeys(every, ""), **digests} or {self.name: ""}

    def load(
        self, name: str, metadata: Mapping[str, object] | None = None, model: str | None = None
    ) -> LoadedTask | str:
        """Return the task, or why it cannot be used.

        model: whose arguments tasks are loaded with, instead of those of this plan's model
        """
        return self.sources.load(name, model or self.model, metadata or {}, self.num_fewshot_of(name))

    def num_fewshot_of(self, name: str) -> int | None:
        """Return the number of examples that the plan gives to a task itself; audits have none."""
        return self.plan.num_fewshot if name == self.name else None


def exchangeable(audit: LoadedTask, fillers: str) -> list[PlacedRow]:
    """Return the rows that an audit can score; if it exchanges fillers, only rows that have fillers of this kind."""
    chosen = []
    for row in audit.rows:
        task = audit.leaves[row.task]
        has_slot = not isinstance(task, FillerAudit) or task.has_slot(task.eval_docs[row.index])
        if has_slot and getattr(task, "fillers", fillers) == fillers:
            chosen.append(row)
    return audit.keyed(chosen)
