"""Judges the units of a plan: the verdict on each task by each model, or the reason why there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.arguments import parsed_args
from lm_eval_leakage.harness.named_model import NamedModel
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.jobs.checked_plan import CheckedPlan
from lm_eval_leakage.jobs.findings import TaskFindings, at_their_looks
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.judged_rows import (
    judged_row,
    why_skipped,
    with_orders_prevented,
    with_positive,
    without_positive,
)
from lm_eval_leakage.jobs.outcome import PAGE, TABLE_FILES, CheckOutcome, earlier_verdicts, texts_of, within
from lm_eval_leakage.jobs.plan import WITHIN_BUDGET, Plan, as_command
from lm_eval_leakage.jobs.plan_values import TRAIN
from lm_eval_leakage.jobs.present_runs import name_among_runs, run_of
from lm_eval_leakage.jobs.steps import Step, StepStatus
from lm_eval_leakage.jobs.units import Role, Unit
from lm_eval_leakage.logs.run import Problem, same_model
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.annotate_task import annotate_others, annotate_task
from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.exports import exported
from lm_eval_leakage.results.provenance import provenance_of_model
from lm_eval_leakage.results.references import Reference, references_of
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.rows import TASK_LEVEL
from lm_eval_leakage.results.unseen_questions import UnseenQuestions, unseen_questions
from lm_eval_leakage.results.verdict import Basis, VerdictWord, not_judged
from lm_eval_leakage.results.verdict_record import checked_task
from lm_eval_leakage.results.verdict_texts import REFERENCE_OPTION, REFERENCE_REMEDY, changing_options, remedy_by
from lm_eval_leakage.stats.pooling import UNKNOWN

NOT_MADE = "no audit of option orders was made"
NOT_JUDGED = "--fail-on cannot be judged for all benchmarks (--allow-no-verdict accepts that)"


def conclude(
    plan: Plan,
    prepared: CheckedPlan,
    folder: CampaignFolder,
    lost: Mapping[Unit, Attempt],
    remarks: Sequence[str] = (),
) -> CheckOutcome:
    """Judge the plan's units and nothing else, at the level of this look, and write pages, tables and exports.

    For each model there is a verdict on each task, or the reason why there is none.

    plan: the plan as the user gave it, whose command a remedy repeats
    prepared: the same plan, with a task for each of its files of questions
    lost: the last attempts at units that failed
    remarks: sentences to add to the problems of the outcome
    """
    units = prepared.units
    tasks = [_with_remedies(findings, plan) for findings in judge_tasks(prepared, folder, lost)]
    annotations = tuple(findings.annotation for findings in tasks)
    rows = [row for findings in tasks if findings.task for row in findings.own_rows]
    verdicts = [*map(checked_task, rows)]
    exports, left_out = exported(rows, plan.export, datetime.now(timezone.utc))
    problems = dict.fromkeys(
        [
            *left_out,
            *remarks,
            *(problem for findings in tasks for problem in findings.problems),
            *(str(within(folder, problem)) for annotation in annotations for problem in annotation.problems),
        ]
    )
    has_tables = plan.compares_models or not plan.is_here
    pages = [*([PAGE] if len(prepared.checked) == 1 else []), *(TABLE_FILES if has_tables else ())]
    outcome = CheckOutcome(
        tuple(verdicts),
        earlier_verdicts(folder.path, verdicts),
        folder=folder,
        pages=tuple(folder.path / name for name in pages),
        exports=tuple(folder.path / name for name in exports),
        n_units=len(units),
        n_done=len(units) - len(folder.left(units)),
        lost=tuple(lost.values()),
        problems=tuple(problems),
        annotations=annotations,
    )
    for name, text in {**texts_of(outcome), **exports}.items():
        atomic_write(folder.path / name, text)
    if plan.fail_on is None:
        return outcome
    condition = Condition.of(plan.fail_on)
    unjudged = "" if plan.allow_no_verdict else "; ".join(condition.unjudged_of(rows))
    return replace(
        outcome, failed=tuple(condition.met_by(rows)), unjudged=f"{NOT_JUDGED}: {unjudged}" if unjudged else ""
    )


def judge_tasks(
    prepared: CheckedPlan, folder: CampaignFolder, lost: Mapping[Unit, Attempt], *, keep: bool = True
) -> list[TaskFindings]:
    """Return the findings on every task of the plan by every model, with each verdict at the level of its look.

    A verdict comes from the units of its model and task alone. After the tasks of a model come the other benchmarks in
    runs that the user names, as findings whose `task` is empty.

    keep: whether new looks are written

    Raises RuntimeError if a model or a task has neither a verdict nor a reason: a check that leaves one out would
    pass.
    """
    all_findings = []
    setting = prepared.plan.reference
    for model in prepared.checked:
        references, problems = list[Reference](), list[Problem]()
        if isinstance(setting, Path):
            references, problems = _references_in(setting, prepared.who[model])
        for task in prepared.plan.tasks:
            all_findings.append(_findings(model, task, prepared, folder, lost, references, problems))
        if prepared.plan.runs:
            all_findings += _findings_on_other_benchmarks(model, prepared, folder)
    tasks = at_their_looks(all_findings, folder.path, keep=keep)
    for findings in tasks:
        rows = findings.own_rows
        if findings.task and (not rows or any(row.task != findings.task or not row.verdict.word for row in rows)):
            raise RuntimeError(
                f"{findings.annotation.model} on {findings.task} has no verdict, and no reason for that"
            )
    return tasks


def _findings_on_other_benchmarks(model: str, prepared: CheckedPlan, folder: CampaignFolder) -> list[TaskFindings]:
    """Return the findings on benchmarks outside the plan of which the given runs of a model have audits.

    All of them together are one element; the list is empty if there are none.
    """
    units = [unit for unit in prepared.units if unit.model == model and unit.role is Role.RUNS]
    steps = folder.steps_of(units).values()
    files = list(dict.fromkeys(Path(file) for step in steps for file in step.files))
    if not files:
        return []
    tasks = {*prepared.plan.tasks, *(name for step in steps for name in step.benchmarks)}
    who = prepared.who[model]
    annotation = annotate_others(name_among_runs(who), tasks, files)
    return [TaskFindings(who, "", annotation, {})] if annotation.rows else []


def _references_in(folder: Path, who: NamedModel) -> tuple[list[Reference], list[Problem]]:
    """Return the references that runs of other models than `who` in a folder give, and what could not be read."""
    model_run, problems = run_of(who), list[Problem]()
    others = [run for run in find_runs([folder], problems) if not same_model(run, model_run)]
    return references_of(others, problems), problems


# ---------------------------------------------------------------------- the findings on one task


def _findings(
    model: str,
    task: str,
    prepared: CheckedPlan,
    folder: CampaignFolder,
    lost: Mapping[Unit, Attempt],
    references: Sequence[Reference],
    problems: Sequence[Problem],
) -> TaskFindings:
    """Return the findings of the units of one model and one task, whose verdicts are not at the level of a look yet.

    references: those of the folder that the plan names; a model that the plan audits as the reference is added here
    problems: what could not be read of that folder
    """
    who, reference_models = prepared.who[model], prepared.models.keys() - {*prepared.checked}
    units = [unit for unit in prepared.units if unit.task == task and unit.model in (model, *reference_models)]
    steps = folder.steps_of(units)
    model_steps = {
        unit: step for unit, step in steps.items() if unit.model == model and unit.role is not Role.REFERENCE
    }
    files = _results_files(steps, reference_models, folder)
    problems = [*problems]
    if files[Role.REFERENCE]:
        references = [*references, *references_of(find_runs(files[Role.REFERENCE], problems), problems)]
    benchmarks = next((step.benchmarks for step in model_steps.values()), {task: ""})
    name = name_among_runs(who)
    annotation = Annotation(name, "", (), (), ())
    unseen, unused = _unseen_questions(files[Role.RUNS], files[Role.UNSEEN], references)
    if files[Role.RUNS]:
        annotation = annotate_task(name, task, {*benchmarks}, files[Role.RUNS], references=references, unseen=unseen)

    audits = [Unit.of(model, task, suffix) for suffix in prepared.audits.get(task, (FIRST_AUDIT,))]
    main_audit = audits[0]
    prevented = _why_not_audited(main_audit, model_steps, lost)
    why = prevented or why_skipped(annotation) or NOT_MADE
    lacking = _what_is_lacking(annotation, [folder.run_of(unit) for unit in audits])
    remedy = _sentence(steps[main_audit].remedy) if main_audit in model_steps else ""
    rows = [judged_row(row, why, remedy, lacking, prepared.plan.detect) for row in annotation.rows]
    if main_audit.kind == FIRST_AUDIT and prevented:
        rows = [with_orders_prevented(row, prevented) for row in rows]
    positive = None
    if files[Role.POSITIVE]:
        positive = annotate_task(name, task, {*benchmarks}, files[Role.POSITIVE])
    rows = _with_positive_control(rows, task, prepared.plan, positive, model_steps)
    if not any(row.task == task and not row.group for row in rows):
        made = provenance_of_model(who.name, who.identity)
        verdict = not_judged(why, remedy)
        rows.append(Row(name, task, TASK_LEVEL, "", "", 0, UNKNOWN, 0, 0, verdict=verdict, provenance=made))
    rows = [replace(row, unread=prepared.unread.get(row.task, "")) for row in rows]
    return TaskFindings(
        who,
        task,
        replace(annotation, rows=tuple(rows), problems=(*problems, *annotation.problems)),
        benchmarks,
        max((step.n_available for step in model_steps.values()), default=0) or None,
        any(step.whole for step in model_steps.values()),
        any(step.staged for step in model_steps.values()),
        (*dict.fromkeys(remark for step in model_steps.values() for remark in step.remarks), *unused),
    )


def _results_files(
    steps: Mapping[Unit, Step], reference_models: Collection[str], folder: CampaignFolder
) -> dict[Role, list[Path]]:
    """Return the results files of units by their role in the verdict, with an empty list for any other role.

    The files are given ones that a step reuses, or those of the unit's run in the folder. Every unit of a reference
    model has the role of a reference.
    """
    files: dict[Role, list[Path]] = defaultdict(list)
    for unit, step in steps.items():
        role = Role.REFERENCE if unit.model in reference_models else unit.role
        files[role] += map(Path, step.files or sorted(folder.run_of(unit).rglob("results_*.json")))
    return files


def _with_positive_control(
    rows: list[Row], task: str, plan: Plan, positive: Annotation | None, steps: Mapping[Unit, Step]
) -> list[Row]:
    """Return the rows with the result of the positive control, or with the reason why it could not be audited.

    positive: the audit of the positive control, if it was made
    """
    file = plan.positive_control
    control = "its train split" if file in (None, TRAIN) else f"the file {file}"
    if positive is not None:
        return [with_positive(row, positive, task, control) for row in rows]
    for unit, step in steps.items():
        if unit.role is Role.POSITIVE and step.status is StepStatus.NOT_POSSIBLE:
            rows = [without_positive(row, step.note, control) for row in rows]
    return rows


def _why_not_audited(audit: Unit, steps: Mapping[Unit, Step], lost: Mapping[Unit, Attempt]) -> str:
    """Return why an audit was not possible or failed; empty if neither is recorded."""
    step = steps.get(audit)
    if step is not None and step.status is StepStatus.NOT_POSSIBLE:
        return step.note
    if audit in lost:
        return f"its audit failed: {lost[audit].error}"
    return ""


def _sentence(clause: str) -> str:
    """Return a clause as a sentence, with a capital letter and a full stop; empty for an empty clause."""
    return f"{clause[:1].upper()}{clause[1:]}." if clause else ""


def _what_is_lacking(annotation: Annotation, folders: Sequence[Path]) -> str:
    """Return what the first incomplete log of audits in these folders has lost; empty if all are complete."""
    for problem in annotation.problems:
        file = problem.file if problem.incomplete else None
        if file is not None and any(file.is_relative_to(folder) for folder in folders):
            return problem.what
    return ""


def _unseen_questions(
    audits: Sequence[Path], unseen: Sequence[Path], references: Sequence[Reference]
) -> tuple[UnseenQuestions | None, list[str]]:
    """Return what the audits of unseen questions say, and the sentence why they are not used.

    Only one of both is returned; neither is if there are no such audits.

    audits, unseen: results files of the audits of the benchmark and of the unseen questions
    """
    if not unseen:
        return None, []
    try:
        runs = [run for reference in references for run in reference.runs]
        return unseen_questions(audits, unseen, [], text_references=runs), []
    except ValueError as error:
        return None, [f"the unseen questions are not used: {error}"]


# ---------------------------------------------------------------------- what may change a verdict


def _with_remedies(findings: TaskFindings, plan: Plan) -> TaskFindings:
    """Return the findings with a remedy beside each verdict that is missing or inconclusive and has none yet."""
    rows = []
    for row in findings.annotation.rows:
        is_open = row.verdict.word in (VerdictWord.NO_VERDICT, VerdictWord.INCONCLUSIVE)
        if is_open and not row.verdict.remedy:
            row = replace(row, verdict=replace(row.verdict, remedy=_remedy(row, plan, findings)))
        rows.append(row)
    return findings.with_rows(rows)


def _remedy(row: Row, plan: Plan, findings: TaskFindings) -> str:
    """Return the sentence on what may change a verdict: as a rule, the plan's own command with other options.

    A plan that no command line expresses gets the settings to change instead.
    """
    options = changing_options(row, not findings.whole, findings.n_available)
    if options is None:
        return remedy_by(None)
    if options == REFERENCE_OPTION:
        return REFERENCE_REMEDY
    if not plan.has_command:  # the folder of an engine keeps its questions
        changes = ", ".join(f"`{name}: {value}`" for name, value in options.items()) or "the control forms"
        return f"A plan with {changes} and another output_path may change that."
    if "model_args" in options:
        changed = [
            model.model_copy(update={"model_args": {**model.model_args, **parsed_args(options["model_args"])}})
            for model in plan.models
        ]
        return remedy_by(as_command(plan.changed(models=tuple(changed))))
    reset: dict[str, object] = {}
    if row.verdict.basis == Basis.RATIO:
        # a given reference has no audit of these questions, and kept the control forms from being scored
        reset = {"reference": None}
    if plan.budget is not None and options:  # no option fits beside a budget
        reset = {"budget": None, **{name: Plan.model_fields[name].default for name in WITHIN_BUDGET}}
    return remedy_by(as_command(plan.changed(**reset, **options)))
