"""From the runs of a check to its verdicts, page and JSON: by `annotate` and the page, with one record per model and
task, which has the same words and numbers on screen, on the page and as JSON.

Verdicts are told at the level of their look. Who asks 100 questions, then 300, then 1,000 has three chances of a false
alarm, so the looks at one benchmark by one model share one error, as those of a seal do (`stats.looks`): each has a
level of its own, and the p-value is adjusted for it before those that are shown together are adjusted by Holm's
method. The same questions asked again are the same look, at its own level. A model is known by what its answers depend
on, a benchmark by a digest of all its rows; runs that do not say which model they are of have looks of their own.
Limits: nothing counts looks in another folder, or without the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from hashlib import blake2b
from html import escape
from itertools import islice
from pathlib import Path

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.jobs.plan import Plan, as_command
from lm_eval_leakage.jobs.planning import REFERENCES, RUNS, UNSEEN, CheckPlan, PlannedCheck, name_among_runs
from lm_eval_leakage.logs.calibration_file import write_calibration
from lm_eval_leakage.logs.run import digest_of, in_brackets
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.columns import ACCURACY_UNFLAGGED, NULL_RATE
from lm_eval_leakage.results.comparison import Plot, comparison_plot
from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.data_verdict import (
    BY_RATIO,
    BY_REFERENCE,
    CANNOT_TELL,
    EVIDENCE_LEVEL,
    NO_VERDICT,
    at_its_level,
    not_judged,
)
from lm_eval_leakage.results.own_calibration import own_calibration
from lm_eval_leakage.results.page import render
from lm_eval_leakage.results.result_types import Annotation, AuditedQuestion, Row, provenance_of_model
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, TASK_LEVEL, adjusted_rows
from lm_eval_leakage.results.tables import benchmarks
from lm_eval_leakage.results.told_verdicts import changing_options, remedy_by, told_verdict
from lm_eval_leakage.results.verdicts import Calibrating
from lm_eval_leakage.stats.looks import Look, as_record, look_of, numbered_alone
from lm_eval_leakage.stats.pooling import UNKNOWN
from lm_eval_leakage.texts import as_json, visible

LOOKS = "looks.jsonl"
UNKNOWN_MODEL = " [unknown]"


def read_looks(folder: Path) -> list[Look]:
    """Raises ValueError for a file that this package did not write: looks that are lost would raise the error."""
    file = folder / LOOKS
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [look_of(json.loads(line)) for line in lines]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{file}, which counts the looks at each benchmark, is not as this package wrote it ({error!r}); restore "
            "it, or give another output_path"
        ) from error


def at_their_looks(annotations: Sequence[Annotation], planned: PlannedCheck, folder: Path) -> list[Annotation]:
    """The annotations with every verdict at the level of its look. New looks are in the folder when this returns.

    The folder is locked by whoever calls this.
    """
    earlier = read_looks(folder)
    known, found = list(earlier), dict[str, Look]()
    for task, look in _asked(annotations, planned):
        found[task], is_new = numbered_alone(known, look)
        known += [found[task]] if is_new else []
    if len(known) > len(earlier):
        atomic_write(folder / LOOKS, "".join(f"{json.dumps(as_record(look))}\n" for look in known))
    looked = [_at_look(row, planned, found) for one in annotations for row in one.rows]
    rows = iter([replace(row, verdict=at_its_level(row.verdict)) for row in adjusted_rows(looked)])
    return [replace(one, rows=tuple(islice(rows, len(one.rows)))) for one in annotations]


def _asked(annotations: Sequence[Annotation], planned: PlannedCheck) -> Iterator[tuple[str, Look]]:
    """The looks at the tasks that have a p-value, which is all that could alarm; not numbered yet."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    for one in annotations:
        tested = {row.task: row for row in one.rows if row.task in planned.tasks and row.verdict.tested.n}
        for task, row in tested.items():
            model = in_brackets(planned.who.identity) if row.provenance.asked_as else UNKNOWN_MODEL
            benchmark = f"{task} [{digest_of(planned.benchmarks[task])}]"
            own = [found for found in one.audited_questions if found.benchmark in planned.benchmarks[task]]
            digest = _digest_of(own or one.audited_questions, row.verdict.basis)  # given runs may name it otherwise
            of, verdict = f"{one.model}{model} on {benchmark}", row.verdict
            yield task, Look(0, of, digest, EVIDENCE_LEVEL, verdict.pvalue, verdict.tested.log_evalue, "", now)


def _digest_of(questions: Sequence[AuditedQuestion], basis: str) -> str:
    """Of which questions were tested, and by what: with another reference, their p-value is another one."""
    digest = blake2b(basis.encode(), digest_size=8)
    asked = {one.doc_hash: one.orders for one in questions if one.orders is not None}
    for name, orders in sorted(asked.items()):
        digest.update(json.dumps([name, orders.reference if basis == BY_REFERENCE else ()]).encode())
    return digest.hexdigest()


def _at_look(row: Row, planned: PlannedCheck, looks: dict[str, Look]) -> Row:
    """Also a row of a task in a group that was looked at, and of a subject; where several were, by the latest look."""
    task = row.task.partition("/")[0] if row.level == SUBJECT_LEVEL else row.task
    own = [look for name, look in looks.items() if name in (task, row.group) or task in planned.benchmarks[name]]
    if not own:
        return row
    last = max(own, key=lambda look: look.number)
    return replace(row, verdict=replace(row.verdict, look=last.number, spent=last.share / last.alpha))


HTML_HEADS = ("model", "task", "verdict", "why", "figures")


@dataclass(frozen=True)
class CheckedTask:
    """The verdict on one model and task. Numbers are None where they are undefined.

    verdict: one of strong evidence, evidence, none found, cannot be told
    summary: why, in short; figures: what was counted, and accuracies; both as screen and page show them
    sentence: the verdict with all of its reasons; reason: without the word
    pvalue: its own; pvalue_adjusted: for its look and the `n_adjusted` verdicts that are shown together, which decides
        the word
    look: its number among the looks at this benchmark by this model in the folder; None if nothing was tested
    ratio, ratio_low: the order ratio and its bound
    n: questions of the run; n_copies: how many of them are copies of others, which only the accuracy counts
    n_tested: those that were tested one by one; flagged: how many of these are flagged; expected: how many would be by
        chance
    accuracy: of the run, with its standard error; accuracy_unflagged: on its unflagged questions, with the ends of
        the 95 % interval
    time: when it was told, in ISO 8601
    citation: a sentence to copy; revision: of the model; seed: by which the questions were drawn, None if they are all
    """

    model: str
    task: str
    verdict: str
    summary: str
    figures: str
    sentence: str
    reason: str
    basis: str
    published_orders: str
    pvalue: float | None
    pvalue_adjusted: float | None
    n_adjusted: int
    ratio: float | None
    ratio_low: float | None
    n: int
    n_tested: int
    flagged: int | None
    expected: float | None
    metric: str
    accuracy: float | None
    accuracy_stderr: float | None
    accuracy_unflagged: float | None
    accuracy_unflagged_low: float | None
    accuracy_unflagged_high: float | None
    n_copies: int = 0
    time: str = field(default="", compare=False)
    citation: str = ""
    revision: str = ""
    seed: int | None = None
    look: int | None = None


@dataclass(frozen=True)
class CheckOutcome:
    """What `check` returns.

    verdicts: of the tasks of this check; others: of earlier checks into the same folder, as they were told then
    page: the HTML page; None if nothing was run (dry_run)
    failed: why `fail_on` is met, a sentence per verdict
    unjudged: which verdicts `fail_on` cannot judge, with reasons; empty if none, or if they are allowed
    unfinished: which runs failed, and why, a sentence each; the verdicts rest on the others
    problems: what could not be read, joined or judged
    annotations: from which the page is made
    """

    verdicts: tuple[CheckedTask, ...]
    others: tuple[CheckedTask, ...]
    plan: CheckPlan
    page: Path | None = None
    failed: tuple[str, ...] = ()
    unjudged: str = ""
    unfinished: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = field(default=(), repr=False, compare=False)

    def plot(self) -> Plot:
        """The plot that compares the models and tasks of the folder, which a notebook shows; `plot().save("plot.svg")`
        keeps it.

        Raises ValueError if no audit has anything to draw.
        """
        return comparison_plot(self.annotations)

    def as_text(self) -> str:
        """As the command prints it."""
        return "\n\n".join(map(told, self.verdicts))

    def as_json(self) -> str:
        """The records of this check and, apart from them, of earlier ones, strict JSON."""
        told = {"verdicts": [*map(asdict, self.verdicts)], "earlier": [*map(asdict, self.others)]}
        return as_json(told, indent=1)

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col" style="text-align:left">{head}</th>' for head in HTML_HEADS)
        rows = "".join(map(_html_row, self.verdicts))
        page = "" if self.page is None else f"<p>Details: {escape(visible(str(self.page)))}</p>"
        caption = "<caption>Verdicts of lm-eval-leakage</caption>"
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{page}"


def _html_row(one: CheckedTask) -> str:
    cells = (f"<strong>{escape(one.verdict)}</strong>", _escaped(one.summary), _escaped(one.figures))
    data = "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells)
    names = "".join(f'<th scope="row" style="text-align:left">{_escaped(name)}</th>' for name in (one.model, one.task))
    return f"<tr>{names}{data}</tr>"


def _escaped(text: str) -> str:
    return escape(visible(text))


def checked_task(row: Row) -> CheckedTask:
    verdict, short = row.verdict, told_verdict(row)
    rate, unflagged = NULL_RATE.of(row), ACCURACY_UNFLAGGED.of(row)
    return CheckedTask(
        model=row.model,
        task=row.name,
        verdict=verdict.word,
        summary=short.sentence,
        figures=short.figures,
        sentence=verdict.sentence,
        reason=verdict.reason,
        basis=verdict.basis,
        published_orders=verdict.orders,
        pvalue=_defined(verdict.pvalue),
        pvalue_adjusted=_defined(verdict.deciding_pvalue),
        n_adjusted=verdict.n_together,
        ratio=_defined(verdict.ratio.value),
        ratio_low=_defined(verdict.ratio.low),
        n=row.n,
        n_tested=row.n_tested,
        flagged=sum(row.flags.values()) if row.n_tested else None,
        expected=_defined(rate * row.n_tested) if row.n_tested else None,
        metric=row.metric,
        accuracy=_defined(row.accuracy.value),
        accuracy_stderr=_defined(row.accuracy.stderr),
        accuracy_unflagged=_defined(unflagged.value),
        accuracy_unflagged_low=_defined(unflagged.low),
        accuracy_unflagged_high=_defined(unflagged.high),
        n_copies=row.n_copies,
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        citation=short.citation,
        revision=row.provenance.revision,
        seed=row.provenance.seed,
        look=verdict.look or None,
    )


def _defined(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def told(one: CheckedTask) -> str:
    """The verdict of one model and task, as it is printed."""
    facts = [f"{one.model} on {one.task}: {one.verdict.upper()}", f"  {one.summary}", f"  {one.figures}"]
    return "\n".join(visible(fact) for fact in facts if fact.strip())


def earlier_verdicts(file: Path, now: Sequence[CheckedTask]) -> tuple[CheckedTask, ...]:
    """Those of earlier checks into the same folder, of other models or tasks than `now`; none if the file cannot be
    read."""
    names = {(one.model, one.task) for one in now}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        records = [CheckedTask(**record) for part in ("verdicts", "earlier") for record in found[part]]
    except (OSError, ValueError, TypeError, KeyError):
        return ()
    return tuple(one for one in records if (one.model, one.task) not in names)


PAGE, VERDICTS, CALIBRATION = "leakage.html", "verdicts.json", "calibration.json"
FPR = 0.05  # of calibrated flags
NOT_MADE = "no audit of option orders was made"


FilesByRoom = Mapping[str, Sequence[Path]]  # results files that are judged, by folder of the output


def conclude(settings: Plan, planned: PlannedCheck, files: FilesByRoom, problems: Sequence[str] = ()) -> CheckOutcome:
    """Judges the runs in `files` and nothing else, at the level of this look, and writes the page and the JSON."""
    calibrations, reasons = _calibrations(files)
    looked = at_their_looks(_annotations(settings, files, calibrations), planned, settings.output_path)
    judged = _with_all_checked(looked, planned)
    annotations = [replace(one, rows=_with_remedies(one.rows, settings, planned)) for one in judged]
    model = name_among_runs(planned.who)
    rows = benchmarks([row for annotation in annotations for row in annotation.rows])
    own = sorted((row for row in rows if row.task in planned.tasks), key=lambda row: planned.tasks.index(row.task))
    verdicts = tuple(map(checked_task, own))
    outcome = CheckOutcome(
        verdicts,
        earlier_verdicts(settings.output_path / VERDICTS, verdicts),
        planned.plan,
        settings.output_path / PAGE,
        problems=(
            *(*planned.unlike, *reasons, *problems),
            *(str(found) for one in annotations if one.model == model for found in one.problems),
        ),
        annotations=tuple(annotations),
    )
    atomic_write(settings.output_path / PAGE, render(annotations, outcome.others))
    atomic_write(settings.output_path / VERDICTS, outcome.as_json() + "\n")
    failed, unjudged = gate(settings, own)
    return replace(outcome, failed=failed, unjudged=unjudged)


def gate(plan: Plan, rows: Sequence[Row]) -> tuple[tuple[str, ...], str]:
    """Why `fail_on` is met, a sentence per verdict, and which verdicts it cannot judge, unless that is allowed."""
    if plan.fail_on is None:
        return (), ""
    condition = Condition.of(plan.fail_on)
    untold = () if plan.allow_untold else condition.untold_of(rows)
    remedy = "--fail-on cannot be judged for all benchmarks (--allow-untold accepts that): "
    return tuple(condition.met_by(rows)), f"{remedy}{'; '.join(untold)}" if untold else ""


def _calibrations(files: FilesByRoom) -> tuple[list[Calibrating], list[str]]:
    """By unseen questions, if some were asked, or why there is none."""
    if not files[UNSEEN]:
        return [], []
    try:
        made, _ = own_calibration(files[RUNS], files[UNSEEN], [])
    except ValueError as error:
        return [], [f"the unseen questions are not used: {error}"]
    write_calibration(files[UNSEEN][0].parent / CALIBRATION, made)
    return [Calibrating(made, made.usual_detector, FPR)], []


def _annotations(settings: Plan, files: FilesByRoom, calibrations: Sequence[Calibrating]) -> list[Annotation]:
    if not files[RUNS]:
        return []
    given = [settings.reference] if isinstance(settings.reference, Path) else []
    return annotate(files[RUNS], calibrating=calibrations, references=[*given, *files[REFERENCES]])


def _with_all_checked(annotations: Sequence[Annotation], planned: PlannedCheck) -> list[Annotation]:
    """The annotations with a verdict for everything that was checked: where no option orders could be asked, it
    cannot be told, with the reason."""
    model = name_among_runs(planned.who)
    found = [replace(one, rows=_judged(one.rows, planned.unjudged)) for one in annotations]
    there = {row.task for one in found for row in one.rows}
    made = provenance_of_model(planned.who.name, planned.who.identity)
    rows = tuple(
        replace(_without_run(model, task, planned.unjudged.get(task, "")), provenance=made)
        for task in planned.tasks
        if task not in there
    )
    if found:
        return [*found[:-1], replace(found[-1], rows=(*found[-1].rows, *rows))]
    return [Annotation(model, "", rows, (), ())] if rows else []


def _judged(rows: Sequence[Row], reasons: Mapping[str, str]) -> tuple[Row, ...]:
    return tuple(
        replace(row, verdict=not_judged(reasons.get(row.task) or NOT_MADE))
        if row.verdict == NO_VERDICT and row.level != SUBJECT_LEVEL and not row.group
        else row
        for row in rows
    )


def _with_remedies(rows: Sequence[Row], settings: Plan, planned: PlannedCheck) -> tuple[Row, ...]:
    return tuple(
        replace(row, verdict=replace(row.verdict, remedy=_remedy(row, settings, planned)))
        if row.verdict.word == CANNOT_TELL
        else row
        for row in rows
    )


def _remedy(row: Row, settings: Plan, planned: PlannedCheck) -> str:
    options = changing_options(row.verdict, has_more=row.task not in planned.whole)
    if options is None:
        return remedy_by(None)
    # where a reference was given, it has no audit of these questions, and the control forms were not asked
    given = {"reference": None} if row.verdict.basis == BY_RATIO else {}
    return remedy_by(as_command(settings.changed(**given, **options)))


def _without_run(model: str, task: str, reason: str) -> Row:
    return Row(model, task, TASK_LEVEL, "", "", 0, UNKNOWN, 0, 0, verdict=not_judged(reason or NOT_MADE))
