"""Turns the runs of a check into verdicts, page and JSON.

`annotate` reads the runs. There is one record per model and task, which has the same words and numbers on screen, on
the page and as JSON.

Verdicts are given at the level of their look. Who asks 100 questions, then 300, then 1,000 has three chances of a
false alarm, so the looks at one benchmark by one model share one error, as those of a seal do (`stats.looks`): each
has a level of its own, and the p-value is adjusted for it before those that are shown together are adjusted by Holm's
method. The same questions asked again are the same look, at its own level. A first stage of fewer questions is no
look: it ends with evidence at a tenth of the look's level, which is taken off the whole's, or with an upper bound of
the share of seen questions that excludes what has to be excluded; all such bounds of a benchmark share one error, too.
A model is known by what its answers depend on, a benchmark by a digest of all its rows; runs that do not say which
model they are of have looks of their own.
Limits: nothing counts looks in another folder, or without the file.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from hashlib import blake2b
from html import escape
from itertools import islice
from pathlib import Path

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.named_model import NamedModel
from lm_eval_leakage.harness.preflight import parsed_args
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.jobs.checked_plan import CheckedPlan
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.plan import TRAIN, WITHIN_BUDGET, Plan, PlanModel, as_command
from lm_eval_leakage.jobs.plan_table import PlanTable
from lm_eval_leakage.jobs.present_runs import name_among_runs, run_of
from lm_eval_leakage.jobs.steps import Step, StepStatus
from lm_eval_leakage.jobs.units import Room, Unit
from lm_eval_leakage.logs.audit_line import window_needed
from lm_eval_leakage.logs.run import Problem, digest_of, same_model
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.annotate_task import annotate_others, annotate_task
from lm_eval_leakage.results.comparison import Plot, comparison_plot
from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.data_verdict import at_its_level
from lm_eval_leakage.results.exports import exported
from lm_eval_leakage.results.formatting import count, counted
from lm_eval_leakage.results.leaderboard import as_csv, as_page, leaderboard, leaderboard_as_markdown, records
from lm_eval_leakage.results.page import render_page
from lm_eval_leakage.results.provenance import provenance_of_model
from lm_eval_leakage.results.references import Reference, references_of
from lm_eval_leakage.results.result_types import Annotation, AuditedQuestion, Row
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, TASK_LEVEL, adjusted_rows
from lm_eval_leakage.results.tables import benchmarks
from lm_eval_leakage.results.unseen_questions import UnseenQuestions, unseen_questions
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL, Basis, DataVerdict, VerdictWord, not_judged
from lm_eval_leakage.results.verdict_record import PARTS, VERDICTS, CheckedTask, checked_task, verdicts_in
from lm_eval_leakage.results.verdict_texts import REFERENCE_OPTION, REFERENCE_REMEDY, changing_options, remedy_by
from lm_eval_leakage.results.verdict_words import word_with_aim
from lm_eval_leakage.stats.looks import FIRST_STAGE, Look, look_of, look_record, number_alone
from lm_eval_leakage.stats.pooling import UNKNOWN
from lm_eval_leakage.stats.positive_control import PositiveControl, ratio_at_most
from lm_eval_leakage.texts import as_json, visible

LOOKS = "looks.jsonl"
VERDICTS_SHOWN = 20
HTML_HEADS = ("model", "task", "verdict", "why", "figures")
PAGE = "leakage.html"
TABLE_FILES = ("leaderboard.html", "leaderboard.json", "leaderboard.csv", "leaderboard.md")
NOT_MADE = "no audit of option orders was made"


def read_looks(folder: Path) -> list[Look]:
    """Return the looks that are recorded in a folder.

    Raises ValueError for a file that this package did not write: looks that are lost would raise the error.
    """
    file = folder / LOOKS
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [look_of(json.loads(line)) for line in lines]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{file}, which counts the looks at each benchmark, is not as this package wrote it ({error!r}); restore "
            "it, or give another output_path"
        ) from error


@dataclass(frozen=True)
class TaskFindings:
    """The findings of the units of one model and one task of the plan, and of nothing else.

    task: a task or group; empty for other benchmarks in runs that the user names, which are shown and adjusted for
    annotation: its rows, those of its members and of its subjects
    whole: whether all of its `n_available` questions are asked; staged: whether fewer might have ended it
    benchmarks: the tasks in it with digests of their rows, see `Step`
    problems: what is to be said of its runs
    """

    who: NamedModel
    task: str
    annotation: Annotation
    benchmarks: Mapping[str, str]
    n_available: int | None = None
    whole: bool = False
    staged: bool = False
    problems: tuple[str, ...] = ()

    @property
    def own_rows(self) -> list[Row]:
        """The rows of the task or group itself, one for each number of examples."""
        return benchmarks(self.annotation.rows)

    def with_rows(self, rows: Iterable[Row]) -> TaskFindings:
        return replace(self, annotation=replace(self.annotation, rows=tuple(rows)))


def at_their_looks(tasks: Sequence[TaskFindings], folder: Path, *, keep: bool = True) -> list[TaskFindings]:
    """Return the findings with every verdict at the level of its look. New looks are in the folder when this returns.

    The folder is locked by whoever calls this.

    keep: whether new looks are written
    """
    earlier = read_looks(folder)
    looks, rows = list(earlier), list[Row]()
    for task in tasks:
        look = _look_at(task)
        if look is not None:
            look, is_new = number_alone(looks, look)
            looks += [look] if is_new else []
        rows += task.annotation.rows if look is None else [_at_look(row, look, task) for row in task.annotation.rows]
    if keep and len(looks) > len(earlier):
        atomic_write(folder / LOOKS, "".join(f"{json.dumps(look_record(look))}\n" for look in looks))
    adjusted = iter([replace(row, verdict=at_its_level(row.verdict)) for row in adjusted_rows(rows)])
    return [task.with_rows(islice(adjusted, len(task.annotation.rows))) for task in tasks]


def _look_at(findings: TaskFindings) -> Look | None:
    """Return the look at a task that has a p-value, which is all that could alarm; not numbered yet."""
    if not findings.task:
        return None
    tested = [row for row in findings.own_rows if row.verdict.tested.n or row.verdict.has_texts]
    if not tested:
        return None
    row, digests = tested[-1], {name: digest for name, digest in findings.benchmarks.items() if digest}
    # by what its answers depend on, so that it is the same model under another path
    identity = f"[{digest_of(findings.who.identity)}]"
    model = identity if row.provenance.asked_as else f"{findings.annotation.model} [unknown]"
    benchmark = f"{findings.task} [{digest_of(digests or findings.benchmarks)}]"
    digest = _digest_of(findings.annotation.audited_questions, row.verdict)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    of, verdict = f"{model} on {benchmark}", row.verdict
    return Look(0, of, digest, EVIDENCE_LEVEL, verdict.pvalue, verdict.tested.log_evalue, "", now)


def _digest_of(questions: Sequence[AuditedQuestion], verdict: DataVerdict) -> str:
    """Return the digest of which questions were tested, and by what.

    With another reference, other unseen questions or in other layouts, their p-value is another one.
    """
    basis, texts = verdict.basis, verdict.texts
    unseen = "" if texts is None else f"{texts.n_unseen} {texts.mean:.4g}"
    digest = blake2b(f"{basis}{unseen}".encode(), digest_size=8)
    orders_of = {question.doc_hash: question.orders for question in questions if question.orders is not None}
    for name, orders in sorted(orders_of.items()):
        reference = orders.reference if basis == Basis.REFERENCE else ()
        digest.update(json.dumps([name, reference, *orders.layouts]).encode())
    fillers_of = {question.doc_hash: question.fillers for question in questions if question.fillers is not None}
    for name, fillers in sorted(fillers_of.items()):
        digest.update(json.dumps([name, fillers.block, fillers.reference, *fillers.layouts, fillers.start]).encode())
    return digest.hexdigest()


def _at_look(row: Row, look: Look, findings: TaskFindings) -> Row:
    """Return a row with its verdict at the level of the look; it may be of a member of the group, or of a subject."""
    spent = look.share / look.alpha * (1 - FIRST_STAGE if findings.staged else 1)
    return replace(row, verdict=replace(row.verdict, look=look.number, spent=spent))


def ends_first_stage(verdict: DataVerdict) -> bool:
    """Return whether the fewer questions that are asked first are enough."""
    if verdict.word == VerdictWord.NONE_FOUND:
        return True
    return verdict.deciding_pvalue <= EVIDENCE_LEVEL * FIRST_STAGE / (1 - FIRST_STAGE)


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check, which `check` returns.

    verdicts: of the models and tasks of this check; others: of earlier checks into the same folder, as they were
        given then
    plan: the units and what was to be done for each
    plan_text: of a dry run, instead
    pages: the HTML page, and for several models the tables; none if nothing was run (dry_run)
    exports: the files in other formats, which `export` asks for
    failed: why `fail_on` is met, a sentence per verdict
    unjudged: which verdicts `fail_on` cannot judge, with reasons; empty if none, or if they are allowed
    n_units, n_done: of the plan
    lost: the last attempt of each unit that was given up; the verdicts rest on the others
    problems: what could not be read, joined or judged
    annotations: from which the page is made
    """

    verdicts: tuple[CheckedTask, ...]
    others: tuple[CheckedTask, ...]
    plan: PlanTable | None = None
    plan_text: str = ""
    folder: CampaignFolder | None = None
    pages: tuple[Path, ...] = ()
    exports: tuple[Path, ...] = ()
    failed: tuple[str, ...] = ()
    unjudged: str = ""
    n_units: int = 0
    n_done: int = 0
    lost: tuple[Attempt, ...] = ()
    problems: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = field(default=(), repr=False, compare=False)

    @property
    def page(self) -> Path | None:
        return next(iter(self.pages), None)

    def plot(self) -> Plot:
        """The plot that compares the models and tasks of the folder, which a notebook shows; `plot().save("plot.svg")`
        keeps it.

        Raises ValueError if no audit has anything to draw.
        """
        return comparison_plot(self.annotations)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """A sentence for each unit that failed, with the reason."""
        return tuple(f"{attempt.unit.id}: {attempt.error}{self._log_of(attempt.unit)}" for attempt in self.lost)

    def _log_of(self, unit: Unit) -> str:
        log = None if self.folder is None else self.folder.log_of(unit)
        return f" (log: {log})" if log is not None and log.exists() else ""

    def as_text(self, most: int = VERDICTS_SHOWN) -> str:
        """Return the text that the command prints.

        It has the verdicts or, if there are more than `most`, how many there are of each word and those with evidence.
        """
        if len(self.verdicts) <= most:
            return "\n\n".join(map(verdict_paragraph, self.verdicts))
        counts = Counter(task.verdict for task in self.verdicts)
        words = ", ".join(f"{word} {count(counts[word])}" for word in reversed(VerdictWord) if counts[word])
        alarming = [
            task for task in self.verdicts if task.verdict in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE)
        ]
        return "\n\n".join(
            [f"{count(len(self.verdicts))} verdicts: {words}", *map(verdict_paragraph, alarming[:most])]
        )

    def as_json(self) -> str:
        """Return the records of this check and, apart from them, of earlier ones, as strict JSON."""
        parts = zip(PARTS, (self.verdicts, self.others), strict=True)
        return as_json({part: [verdict.as_record for verdict in verdicts] for part, verdicts in parts}, indent=1)

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col" style="text-align:left">{head}</th>' for head in HTML_HEADS)
        rows = "".join(map(_html_row, self.verdicts))
        page = "" if self.page is None else f"<p>Details: {escape(visible(str(self.page)))}</p>"
        caption = "<caption>Verdicts of lm-eval-leakage</caption>"
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{page}"


def _html_row(task: CheckedTask) -> str:
    word = word_with_aim(task.verdict, task.detect)
    cells = (f"<strong>{_escaped(word)}</strong>", _escaped(task.summary), _escaped(task.figures))
    data = "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells)
    names = "".join(
        f'<th scope="row" style="text-align:left">{_escaped(name)}</th>' for name in (task.model, task.task)
    )
    return f"<tr>{names}{data}</tr>"


def _escaped(text: str) -> str:
    return escape(visible(text))


def verdict_paragraph(task: CheckedTask) -> str:
    """Return the verdict of one model and task, as it is printed."""
    word = word_with_aim(task.verdict, task.detect).replace(task.verdict, task.verdict.upper(), 1)
    facts = [f"{task.model} on {task.task}: {word}", f"  {task.summary}", f"  {task.figures}"]
    return "\n".join(visible(fact) for fact in facts if fact.strip())


def earlier_verdicts(folder: Path, now: Sequence[CheckedTask]) -> tuple[CheckedTask, ...]:
    """Return those of earlier checks into the same folder, of other models or tasks than `now`."""
    judged_now = {key for verdict in now for key in verdict.keys}
    return tuple(verdict for verdict in verdicts_in(folder) if judged_now.isdisjoint(verdict.keys))


def conclude(
    plan: Plan,
    prepared: CheckedPlan,
    folder: CampaignFolder,
    lost: Mapping[Unit, Attempt],
    remarks: Sequence[str] = (),
) -> CheckOutcome:
    """Judge the plan's units and nothing else, at the level of this look, and write the result.

    For each model there is a verdict on each task, or the reason why there is none.

    plan: as it was asked for; prepared: as it was carried out
    lost: the last attempts at units that are not done
    """
    units = prepared.units()
    tasks = [_with_remedies(findings, plan) for findings in judged(plan, prepared, folder, lost)]
    annotations = tuple(findings.annotation for findings in tasks)
    rows = [row for findings in tasks if findings.task for row in findings.own_rows]
    verdicts = [*map(checked_task, rows)]
    exports, left_out = exported(rows, plan.export, datetime.now(timezone.utc))
    problems = dict.fromkeys(
        [
            *left_out,
            *remarks,
            *(problem for findings in tasks for problem in findings.problems),
            *(str(_within(folder, problem)) for annotation in annotations for problem in annotation.problems),
        ]
    )
    outcome = CheckOutcome(
        tuple(verdicts),
        earlier_verdicts(folder.path, verdicts),
        folder=folder,
        pages=tuple(folder.path / name for name in _pages(plan)),
        exports=tuple(folder.path / name for name in exports),
        n_units=len(units),
        n_done=len(units) - len(folder.left(units)),
        lost=tuple(lost.values()),
        problems=tuple(problems),
        annotations=annotations,
    )
    for name, text in {**texts_of(outcome), **exports}.items():
        atomic_write(folder.path / name, text)
    failed, unjudged = gate(plan, rows)
    return replace(outcome, failed=failed, unjudged=unjudged)


def judged(
    plan: Plan, prepared: CheckedPlan, folder: CampaignFolder, lost: Mapping[Unit, Attempt], *, keep: bool = True
) -> list[TaskFindings]:
    """Return the verdicts on every task of the plan by every model, each from its own units alone.

    Other benchmarks in runs that the user names follow, without a task.

    keep: whether new looks are written

    Raises RuntimeError if a model or a task has neither a verdict nor a reason: a check that leaves one out would
    pass.
    """
    all_findings = []
    for model in plan.models:
        others = _references_in(plan.reference, model.who) if isinstance(plan.reference, Path) else ([], [])
        all_findings += [_findings(model, task, prepared, folder, lost, *others) for task in prepared.plan.tasks]
        all_findings += _others_given(model, prepared, folder)
    tasks = at_their_looks(all_findings, folder.path, keep=keep)
    for findings in tasks:
        rows = findings.own_rows
        if findings.task and (not rows or any(row.task != findings.task or not row.verdict.word for row in rows)):
            raise RuntimeError(
                f"{findings.annotation.model} on {findings.task} has no verdict, and no reason for that"
            )
    return tasks


def _others_given(model: PlanModel, prepared: CheckedPlan, folder: CampaignFolder) -> list[TaskFindings]:
    """Return the findings on other benchmarks that the given runs of a model have audits of."""
    units = [unit for unit in prepared.units() if unit.model == model.key and unit.room is Room.RUNS]
    steps = [step for unit in units if prepared.plan.runs and (step := folder.step_of(unit)) is not None]
    files = list(dict.fromkeys(Path(file) for step in steps for file in step.files))
    if not files:
        return []
    tasks = {*prepared.plan.tasks, *(name for step in steps for name in step.benchmarks)}
    annotation = annotate_others(name_among_runs(model.who), tasks, files)
    return [TaskFindings(model.who, "", annotation, {})] if annotation.rows else []


def _references_in(folder: Path, who: NamedModel) -> tuple[list[Reference], list[Problem]]:
    """Return the references that other models' runs in a folder give, and what could not be read of them."""
    model_run, problems = run_of(who), list[Problem]()
    others = [run for run in find_runs([folder], problems) if not same_model(run, model_run)]
    return references_of(others, problems), problems


def _pages(plan: Plan) -> Iterator[str]:
    """Yield the names of the page of one model, and of the tables of whatever an engine has done."""
    if len(plan.models) == 1:
        yield PAGE
    if plan.compares_models or not plan.is_here:
        yield from TABLE_FILES


def _within(folder: CampaignFolder, problem: Problem) -> Problem:
    """Return a problem with its file relative to the folder, which may be moved."""
    if problem.file is not None and _is_in(problem, folder.path):
        return replace(problem, file=problem.file.relative_to(folder.path))
    return problem


def _is_in(problem: Problem, folder: Path) -> bool:
    return problem.file is not None and problem.file.is_relative_to(folder)


def texts_of(outcome: CheckOutcome) -> dict[str, str]:
    """Return the texts of the files of an outcome by their names.

    They are the verdicts, and the page of one model or the tables of several.
    """
    texts = {VERDICTS: outcome.as_json() + "\n"}
    wanted = {page.name for page in outcome.pages}
    if PAGE in wanted:
        texts[PAGE] = render_page(outcome.annotations, outcome.others)
    return texts | (_tables_of(outcome) if len(wanted) > 1 else {})


def _tables_of(outcome: CheckOutcome) -> dict[str, str]:
    board = leaderboard(outcome.annotations)
    if outcome.folder is not None:
        board = replace(board, problems=tuple(_within(outcome.folder, problem) for problem in board.problems))
    problems = [str(problem) for problem in board.problems]
    as_object = {"rows": records(board), "detectors": list(board.detectors), "problems": problems}
    texts = (as_page(board), as_json(as_object, indent=1), as_csv(board), leaderboard_as_markdown(board))
    return {name: f"{text.rstrip()}\n" for name, text in zip(TABLE_FILES, texts, strict=True)}


def gate(plan: Plan, rows: Sequence[Row]) -> tuple[tuple[str, ...], str]:
    """Return why `fail_on` is met, a sentence per verdict, and what it cannot judge, unless that is allowed."""
    if plan.fail_on is None:
        return (), ""
    condition = Condition.of(plan.fail_on)
    unjudged = () if plan.allow_no_verdict else condition.unjudged_of(rows)
    remedy = "--fail-on cannot be judged for all benchmarks (--allow-no-verdict accepts that): "
    return tuple(condition.met_by(rows)), f"{remedy}{'; '.join(unjudged)}" if unjudged else ""


def _findings(
    model: PlanModel,
    task: str,
    prepared: CheckedPlan,
    folder: CampaignFolder,
    lost: Mapping[Unit, Attempt],
    references: Sequence[Reference],
    problems: Sequence[Problem],
) -> TaskFindings:
    """Return the findings of the units of one model and one task; not at the level of its look yet.

    references: what other models say, besides the plan's own reference; problems: what could not be read of them
    """
    plan, others = prepared.plan, {other.key for other in prepared.plan.reference_models}
    units = [unit for unit in prepared.units() if unit.task == task and unit.model in (model.key, *others)]
    steps = {unit: step for unit in units if (step := folder.step_of(unit)) is not None}
    files: dict[Room, list[Path]] = defaultdict(list)
    for unit, step in steps.items():  # given ones, or its own
        room = Room.REFERENCE if unit.model in others else unit.room
        files[room] += map(Path, step.files or sorted(folder.run_of(unit).rglob("results_*.json")))
    problems = [*problems]
    if files[Room.REFERENCE]:
        references = [*references, *references_of(find_runs(files[Room.REFERENCE], problems), problems)]
    model_steps = {
        unit: step for unit, step in steps.items() if unit.model == model.key and unit.room is not Room.REFERENCE
    }
    tasks = next((step.benchmarks for step in model_steps.values()), {task: ""})
    name = name_among_runs(model.who)
    annotation = Annotation(name, "", (), (), ())
    unseen, unused = _unseen_questions(files[Room.RUNS], files[Room.UNSEEN], references)
    if files[Room.RUNS]:
        annotation = annotate_task(name, task, {*tasks}, files[Room.RUNS], references=references, unseen=unseen)
    audits = [Unit(model.key, task, suffix) for suffix in prepared.audits.get(task, (FIRST_AUDIT,))]
    audit = audits[0]
    prevented = _why_not_judged(audit, model_steps, lost)
    why = prevented or _skipped(annotation) or NOT_MADE
    in_audits = [folder.run_of(unit) for unit in audits]
    lacking = next(
        (
            problem.what
            for problem in annotation.problems
            if problem.incomplete and any(_is_in(problem, at) for at in in_audits)
        ),
        "",
    )
    remedy = _sentence(steps[audit].remedy) if audit in model_steps else ""
    rows = [_judged(row, why, remedy, lacking, plan.detect) for row in annotation.rows]
    if audit.kind == FIRST_AUDIT and prevented:
        rows = [_with_orders_prevented(row, prevented) for row in rows]
    if files[Room.POSITIVE]:
        control = annotate_task(name, task, {*tasks}, files[Room.POSITIVE])
        rows = [_with_positive(row, control, task, plan) for row in rows]
    for unit, step in model_steps.items():
        if unit.room is Room.POSITIVE and step.status is StepStatus.NOT_POSSIBLE and not files[Room.POSITIVE]:
            rows = [_without_positive(row, step.note, plan) for row in rows]
    if not any(row.task == task and not row.group for row in rows):
        made = provenance_of_model(model.who.name, model.who.identity)
        verdict = not_judged(why, remedy)
        rows.append(Row(name, task, TASK_LEVEL, "", "", 0, UNKNOWN, 0, 0, verdict=verdict, provenance=made))
    rows = [replace(row, unread=prepared.unread.get(row.task, "")) for row in rows]
    return TaskFindings(
        model.who,
        task,
        replace(annotation, rows=tuple(rows), problems=(*problems, *annotation.problems)),
        tasks,
        max((step.n_available for step in model_steps.values()), default=0) or None,
        any(step.whole for step in model_steps.values()),
        any(step.staged for step in model_steps.values()),
        (*dict.fromkeys(remark for step in model_steps.values() for remark in step.remarks), *unused),
    )


def _with_positive(row: Row, control: Annotation, task: str, plan: Plan) -> Row:
    """Return the row of the task itself with the result of the audit of the positive control."""
    verdict = next((control_row.verdict for control_row in benchmarks(control.rows) if control_row.task == task), None)
    if verdict is None or row.task != task or row.level == SUBJECT_LEVEL:
        return row
    if verdict.beside is not None and verdict.basis != row.verdict.basis:
        verdict = verdict.beside
    tested, learned = row.verdict.tested, verdict.tested
    positive = PositiveControl(_control_of(plan), verdict.n, learned.mean, learned.mean_error, learned.pvalue)
    if positive.shows_memory:
        bound = ratio_at_most(tested.mean, tested.mean_error, learned.mean, learned.mean_error)
        positive = replace(positive, at_most=bound)
    return replace(row, verdict=replace(row.verdict, positive=positive))


def _control_of(plan: Plan) -> str:
    return "its train split" if plan.positive_control in (None, TRAIN) else f"the file {plan.positive_control}"


def _without_positive(row: Row, why: str, plan: Plan) -> Row:
    """Return the row with the reason why there is no positive control."""
    if not row.verdict.basis or row.level == SUBJECT_LEVEL:
        return row
    return replace(row, verdict=replace(row.verdict, positive=PositiveControl(_control_of(plan), 0, reason=why)))


def _with_orders_prevented(row: Row, why: str) -> Row:
    """Return the row with the reason why option orders were not asked, where names were."""
    verdict = row.verdict
    if verdict.basis != Basis.FILLERS or verdict.beside is not None:
        return row
    return replace(row, verdict=replace(verdict, beside=not_judged(why)))


def _why_not_judged(audit: Unit, steps: Mapping[Unit, Step], lost: Mapping[Unit, Attempt]) -> str:
    """Return why an audit of option orders was not made; empty if nothing is known to have prevented it."""
    step = steps.get(audit)
    if step is not None and step.status is StepStatus.NOT_POSSIBLE:
        return step.note
    if audit in lost:
        return f"its audit failed: {lost[audit].error}"
    return ""


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}." if clause else ""


def _judged(row: Row, why: str, remedy: str, lacking: str, detect: float) -> Row:
    """Return the row with the reason, and what may change it, where there is no verdict.

    An audit whose log has lost questions has none: what is left may be any part. Any other verdict has the share that
    it should be able to find.
    """
    if not row.verdict.basis:  # texts are tested without any orders
        is_part = row.level == SUBJECT_LEVEL or row.group
        return row if is_part else replace(row, verdict=replace(not_judged(why, remedy), texts=row.verdict.texts))
    if lacking:
        return replace(row, verdict=not_judged(lacking))
    return replace(row, verdict=replace(row.verdict, detect=detect)) if row.verdict.basis else row


def _unseen_questions(
    audits: Sequence[Path], unseen: Sequence[Path], references: Sequence[Reference]
) -> tuple[UnseenQuestions | None, list[str]]:
    """Return what the audits of unseen questions say, if some were asked, or why they are not used."""
    if not unseen:
        return None, []
    try:
        runs = [run for reference in references for run in reference.runs]
        return unseen_questions(audits, unseen, [], text_references=runs), []
    except ValueError as error:
        return None, [f"the unseen questions are not used: {error}"]


def _skipped(annotation: Annotation) -> str:
    """Return why no question has option orders, where the audits say so; empty if one has."""
    questions = annotation.audited_questions
    reasons = [question.reason for question in questions if question.reason]
    if not reasons or any(question.orders or question.fillers for question in questions):
        return ""
    longest = max(reasons, key=window_needed)
    of_longest = f", the longest since {longest}"
    why = of_longest if window_needed(longest) else f": {Counter(reasons).most_common(1)[0][0]}"
    return f"all {counted(len(questions))} were skipped{why}"


def _with_remedies(findings: TaskFindings, plan: Plan) -> TaskFindings:
    def remedied(row: Row) -> Row:
        if row.verdict.word not in (VerdictWord.NO_VERDICT, VerdictWord.INCONCLUSIVE) or row.verdict.remedy:
            return row
        return replace(row, verdict=replace(row.verdict, remedy=_remedy(row, plan, findings)))

    return findings.with_rows(map(remedied, findings.annotation.rows))


def _remedy(row: Row, plan: Plan, findings: TaskFindings) -> str:
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
    # where a reference was given, it has no audit of these questions, and the control forms were not asked
    given = {"reference": None} if row.verdict.basis == Basis.RATIO else {}
    if plan.budget is not None and options:  # none of which fits beside it
        given = {"budget": None, **{name: Plan.model_fields[name].default for name in WITHIN_BUDGET}}
    return remedy_by(as_command(plan.changed(**given, **options)))
