"""Plans a check: which questions, what is there already, what this backend can answer, what is to be run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.checking.check_plan import (
    ACCURACY_RUN,
    CONFUSION_RUN,
    NOT_NEEDED,
    NOT_POSSIBLE,
    ORDERS_RUN,
    REFERENCE_RUN,
    THERE,
    TOKENS_RUN,
    UNSEEN_RUN,
    CheckPlan,
    PlannedStep,
)
from lm_eval_leakage.checking.check_settings import CheckSettings
from lm_eval_leakage.checking.drawing import ChosenIndices, RowFinder, drawn, samples_of
from lm_eval_leakage.checking.runs_present import (
    PresentRuns,
    model_key,
    models_among,
    name_among_runs,
    present_references,
    present_runs,
)
from lm_eval_leakage.harness.checks.foreseen import check_model, warn_if_one_at_a_time, why_cannot_answer
from lm_eval_leakage.harness.checks.task_names import check_task_names
from lm_eval_leakage.harness.models.tokenizer_only import TokenizerOnly, tokenizer_on_disk
from lm_eval_leakage.harness.running.own_benchmark import is_file_of_questions, write_task
from lm_eval_leakage.harness.running.saved_run import BATCH_SIZE, DEVICE, NamedModel
from lm_eval_leakage.harness.running.sizes import ROWS_MEASURED, needs_of, size_of
from lm_eval_leakage.harness.running.task_shelf import LoadedTask, PlacedRow, TaskShelf, placed_rows
from lm_eval_leakage.harness.tasks.audit_suffixes import FIRST_AUDIT
from lm_eval_leakage.results.data_verdict import EXACT, FEWEST_JUDGED
from lm_eval_leakage.results.formatting import counted

AUDITS = {ORDERS_RUN: FIRST_AUDIT, TOKENS_RUN: "leakage_tokens", CONFUSION_RUN: "choice_confusion"}
OF_UNSEEN = (FIRST_AUDIT, "leakage_tokens")
RUNS, REFERENCES, UNSEEN, OWN_TASKS = "runs", "reference", "unseen", "tasks"  # folders of the output


@dataclass(frozen=True)
class CheckJob:
    """A run that is missing.

    n_characters: of its requests
    """

    step: PlannedStep
    who: NamedModel
    loaded: LoadedTask
    samples: ChosenIndices
    output: Path
    n_characters: int


@dataclass(frozen=True)
class PlannedCheck:
    """jobs: of the model, then of the reference
    files: results files of the given runs that are of this model
    unjudged: why there will be no audit of option orders, by task
    """

    plan: CheckPlan
    who: NamedModel
    tasks: tuple[str, ...]
    jobs: tuple[CheckJob, ...] = ()
    files: tuple[Path, ...] = ()
    unjudged: Mapping[str, str] = field(default_factory=dict)


def plan_check(settings: CheckSettings, say: Callable[[str], None]) -> PlannedCheck:
    """Loads tasks and data, and no model. Raises ValueError or OSError for anything that would end the check later."""
    how = (settings.batch_size or BATCH_SIZE, settings.device or DEVICE, settings.apply_chat_template)
    who = NamedModel(settings.model, settings.model_args, *how)
    folder = settings.output_path / OWN_TASKS
    files = [task for task in settings.tasks if is_file_of_questions(task)]
    _check_early(settings, files)
    own = {task: write_task(Path(task).expanduser(), folder) for task in files}
    say("reading the tasks ...")
    included = [part for part in (settings.include_path or "").split(":") if part]
    shelf = TaskShelf([*([str(folder)] if own else []), *included])
    names = [name for task in settings.tasks for name in ([own[task]] if task in own else shelf.names([task]))]
    given = _given_runs(settings, who)
    tokenizers = _Tokenizers()
    planned = [_PlannedTask(settings, who, shelf, name, given, tokenizers) for name in dict.fromkeys(names)]
    pairs = [pair for task in planned for pair in task.steps()]
    return PlannedCheck(
        CheckPlan(
            who.name, who.model, settings.seed, tuple(step for step, _ in pairs), tokenizers.of(who) is not None
        ),
        who,
        tuple(task.name for task in planned),
        tuple(sorted((job for _, job in pairs if job is not None), key=lambda job: job.who != who)),
        given.files,
        {step.task: step.note for step, _ in pairs if step.what == ORDERS_RUN and step.status == NOT_POSSIBLE},
    )


def _check_early(settings: CheckSettings, files: Sequence[str]) -> None:
    """Raises ValueError or ImportError for what can be known before the index of tasks is built."""
    check_task_names([task for task in settings.tasks if task not in files], settings.include_path)
    check_model(settings.model, (), settings.model_args)
    warn_if_one_at_a_time(settings.model, settings.model_args)
    if isinstance(settings.reference, Mapping):
        check_model(settings.model, (), settings.reference)


def _given_runs(settings: CheckSettings, who: NamedModel) -> PresentRuns:
    """Raises ValueError if they hold no run of this model: a name that is spelled otherwise would go unnoticed."""
    given = present_runs(settings.runs, model_key(who), needs_control=settings.reference is None)
    if settings.runs and not given.files:
        names = ", ".join(map(repr, models_among(settings.runs))) or "no model"
        raise ValueError(
            f"runs has no complete run of {name_among_runs(who)!r}, only of {names}; give model_args as in those runs"
        )
    return given


class _Tokenizers:
    """Those of the check's models that are on disk, each loaded once."""

    def __init__(self) -> None:
        self._known: dict[str, TokenizerOnly | None] = {}

    def of(self, who: NamedModel) -> TokenizerOnly | None:
        key = repr(sorted(who.model_args.items()))
        if key not in self._known:
            self._known[key] = tokenizer_on_disk(who.model_args)
        return self._known[key]


StepAndJob = tuple[PlannedStep, CheckJob | None]


class _PlannedTask:
    """The steps of one task."""

    def __init__(
        self,
        settings: CheckSettings,
        who: NamedModel,
        shelf: TaskShelf,
        name: str,
        given: PresentRuns,
        tokenizers: _Tokenizers,
    ) -> None:
        self.settings, self.who, self.shelf, self.name, self.given = settings, who, shelf, name, given
        self.tokenizers = tokenizers
        self.output = settings.output_path / RUNS / name
        self.own = present_runs([self.output], model_key(who), needs_control=settings.reference is None)
        self.base = self._loaded(name)
        self.orders = self._loaded(f"{name}_{FIRST_AUDIT}")
        if isinstance(self.base, str) and isinstance(self.orders, str):
            raise ValueError(self.base)
        self.references = self._given_references()
        self.chosen = self._chosen()

    def steps(self) -> Iterator[StepAndJob]:
        yield self._accuracy()
        for what, suffix in AUDITS.items():
            yield self._audit(what, suffix)
        if self.settings.reference is not None:
            yield self._reference(self.settings.reference)
        if self.settings.unseen is not None:
            yield from (self._unseen(suffix, self.settings.unseen) for suffix in OF_UNSEEN)

    # ------------------------------------------------------------------ which questions

    def _chosen(self) -> list[PlacedRow]:
        """Those of the given runs, if there are any; among them, those that the reference has, too."""
        base = [] if isinstance(self.base, str) else placed_rows(self.base)
        audited = [] if isinstance(self.orders, str) else placed_rows(self.orders)
        finder = RowFinder(audited)
        population = [row for row in base if finder.find(row) is not None] or base or audited
        population = self.given.among(population) or population
        if self.references is not None:
            population = self.references.among(population) or population
        return drawn(population, self.settings.questions, self.settings.seed)

    def _given_references(self) -> PresentRuns | None:
        folder = self.settings.reference
        return present_references(folder, model_key(self.who)) if isinstance(folder, Path) else None

    # ------------------------------------------------------------------ the steps

    def _accuracy(self) -> StepAndJob:
        step = PlannedStep(self.name, ACCURACY_RUN, len(self.chosen))
        if isinstance(self.base, str):
            return replace(step, status=NOT_POSSIBLE, note=self.base), None
        for present in (self.given, self.own):
            if present.has_answers(self.chosen):
                return self._there(step, present, self.chosen[0].task), None
        return self._to_run(step, self.base, self.chosen, self.output, self.who)

    def _audit(self, what: str, suffix: str) -> StepAndJob:
        step = PlannedStep(self.name, what, len(self.chosen))
        for present in (self.given, self.own):
            if present.has_audits(suffix, self.chosen):
                return self._there(step, present, suffix), None
        loaded = self.orders if suffix == FIRST_AUDIT else self._loaded(f"{self.name}_{suffix}")
        if isinstance(loaded, str):
            return replace(step, status=NOT_POSSIBLE, note=loaded), None
        return self._to_run(step, loaded, self._found_in(loaded), self.output, self.who)

    def _reference(self, reference: Path | Mapping[str, Any]) -> StepAndJob:
        step = PlannedStep(self.name, REFERENCE_RUN, len(self.chosen))
        if isinstance(self.orders, str):
            return replace(step, status=NOT_POSSIBLE, note=self.orders), None
        if all(task.orders.status in EXACT for task in self.orders.leaves.values()):
            return replace(step, status=NOT_NEEDED, note="the published orders are random"), None
        if isinstance(reference, Path):
            found = [] if self.references is None else self.references.among(self.chosen)
            note = str(reference) if found else f"{reference} has no audit of these questions by another model"
            return replace(step, n_questions=len(found), status=THERE if found else NOT_POSSIBLE, note=note), None
        other = replace(self.who, model_args=reference)
        output = self.settings.output_path / REFERENCES / self.name
        present = present_runs([output], model_key(other), needs_control=False)
        if present.has_audits(FIRST_AUDIT, self.chosen):
            return self._there(step, present, FIRST_AUDIT), None
        loaded = self._loaded(self.orders.name, reference, control_form=False)
        assert not isinstance(loaded, str), "the same audit was loaded before"
        return self._to_run(step, loaded, self._found_in(loaded), output, other)

    def _unseen(self, suffix: str, file: Path) -> StepAndJob:
        step = PlannedStep(self.name, f"{UNSEEN_RUN}: {_in_words(suffix)}")
        loaded = self._loaded(f"{self.name}_{suffix}", data_files=str(file))
        if isinstance(loaded, str):
            return replace(step, status=NOT_POSSIBLE, note=loaded), None
        rows, output = placed_rows(loaded), self.settings.output_path / UNSEEN / self.name
        present = present_runs([output], model_key(self.who))
        if present.has_audits(suffix, rows):
            return self._there(step, present, suffix), None
        return self._to_run(replace(step, n_questions=len(rows)), loaded, rows, output, self.who)

    # ------------------------------------------------------------------ parts of a step

    def _loaded(self, name: str, model_args: Mapping[str, Any] | None = None, **metadata: object) -> LoadedTask | str:
        """The task, or why it cannot be used."""
        arguments = self.settings.model_args if model_args is None else model_args
        try:
            return self.shelf.load(name, {**arguments, **metadata})
        except (ValueError, KeyError) as error:
            return str(error)

    def _there(self, step: PlannedStep, present: PresentRuns, name: str) -> PlannedStep:
        return replace(step, status=THERE, note=str(present.folders.get(name, "")))

    def _found_in(self, loaded: LoadedTask) -> list[PlacedRow]:
        finder = RowFinder(placed_rows(loaded))
        return [found for row in self.chosen if (found := finder.find(row)) is not None]

    def _to_run(
        self, step: PlannedStep, loaded: LoadedTask, rows: Sequence[PlacedRow], output: Path, who: NamedModel
    ) -> StepAndJob:
        needs = {needs_of(task) for task in loaded.leaves.values()}
        reasons = [reason for need in sorted(needs) if (reason := why_cannot_answer(who.model, need))]
        if reasons or not rows:
            return replace(step, status=NOT_POSSIBLE, note=reasons[0] if reasons else "no question can be read"), None
        step = replace(step, n_questions=len(rows), note=_too_few(step, len(rows)))
        some = [(loaded.leaves[row.task], row.index) for row in drawn(rows, ROWS_MEASURED, 0)]
        tokenizer = self.tokenizers.of(who)
        chat = tokenizer.apply_chat_template if tokenizer is not None and who.apply_chat_template else None
        size = size_of(some, len(rows), tokenizer, chat)
        if not size.n_requests:
            reason, _ = (size.untestable.most_common(1) or [("its questions cannot be asked", 0)])[0]
            return replace(step, status=NOT_POSSIBLE, note=reason), None
        step = replace(step, n_requests=size.n_requests, n_tokens=size.n_read(who.model))
        return step, CheckJob(step, who, loaded, samples_of(rows), output, size.n_characters)


def _too_few(step: PlannedStep, n: int) -> str:
    if step.what != ORDERS_RUN or n >= FEWEST_JUDGED:
        return ""
    return f"{counted(n)} are too few for a verdict, which needs {FEWEST_JUDGED}"


def _in_words(suffix: str) -> str:
    return next(what for what, own in AUDITS.items() if own == suffix)
