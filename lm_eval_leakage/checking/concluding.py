"""From the runs of a check to its verdicts, page and JSON, by `annotate` and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lm_eval_leakage.checking.check_memory import CheckMemory
from lm_eval_leakage.checking.check_settings import CheckSettings
from lm_eval_leakage.checking.outcome import CheckOutcome, checked_task, split_by
from lm_eval_leakage.checking.planning import REFERENCES, RUNS, UNSEEN, PlannedCheck
from lm_eval_leakage.checking.runs_present import name_among_runs
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.inference.pooling import UNKNOWN
from lm_eval_leakage.logs.calibration_file import read_calibration, write_calibration
from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.logs.run import sanitized
from lm_eval_leakage.report.page import render
from lm_eval_leakage.results.annotate import Choices, annotate
from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.data_verdict import NO_VERDICT, not_judged
from lm_eval_leakage.results.own_calibration import own_calibration
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, TASK_LEVEL
from lm_eval_leakage.results.suspicion import benchmarks
from lm_eval_leakage.results.verdicts import Calibrating

PAGE, VERDICTS, CALIBRATION = "leakage.html", "verdicts.json", "calibration.json"
FPR = 0.05  # of calibrated flags
NOT_MADE = "no audit of option orders was made"


def calibrated(settings: CheckSettings, planned: PlannedCheck, memory: CheckMemory) -> tuple[CheckMemory, list[str]]:
    """The memory with the calibration by unseen questions, if they were given, or why there is none."""
    if settings.unseen is None:
        return memory, []
    problems: list[Problem] = []
    folder, (task,) = sanitized(planned.who.name), planned.tasks
    asked, unseen = (settings.output_path / room / task / folder for room in (RUNS, UNSEEN))
    file = settings.output_path / UNSEEN / task / folder / CALIBRATION
    try:
        made = own_calibration(asked, unseen, problems)
    except ValueError as error:
        return memory, [f"the unseen questions are not used: {error}"]
    write_calibration(file, made.calibration)
    return memory.with_calibration(name_among_runs(planned.who), file), []


def conclude(
    settings: CheckSettings, planned: PlannedCheck, memory: CheckMemory, problems: Sequence[str] = ()
) -> CheckOutcome:
    """Writes the page and the JSON."""
    annotations = _with_all_checked(_annotations(settings.output_path, memory), memory.checked)
    page = settings.output_path / PAGE
    atomic_write(page, render(annotations))
    rows = benchmarks([row for annotation in annotations for row in annotation.rows])
    model = name_among_runs(planned.who)
    own, others = split_by(rows, model, planned.tasks)
    outcome = CheckOutcome(
        tuple(map(checked_task, own)),
        tuple(map(checked_task, others)),
        planned.plan,
        page,
        problems=(*problems, *(str(found) for one in annotations if one.model == model for found in one.problems)),
        annotations=tuple(annotations),
    )
    atomic_write(settings.output_path / VERDICTS, outcome.as_json() + "\n")
    return outcome if settings.fail_on is None else _failed(outcome, settings.fail_on, own)


def _failed(outcome: CheckOutcome, word: str, rows: Sequence[Row]) -> CheckOutcome:
    condition = Condition.of(f"verdict>={word}")
    try:
        return replace(outcome, failed=tuple(condition.met_by(rows)))
    except ValueError as error:
        return replace(outcome, unjudged=str(error))


def _annotations(output: Path, memory: CheckMemory) -> list[Annotation]:
    runs = [*map(Path, memory.files), *([output / RUNS] if any((output / RUNS).rglob("results_*.json")) else [])]
    if not runs:
        return []
    own = [output / REFERENCES] if any((output / REFERENCES).rglob("results_*.json")) else []
    calibrations = [read_calibration(file) for file in memory.calibrations.values()]
    calibrating = [Calibrating(one, one.usual_detector, FPR) for one in calibrations]
    return annotate(runs, (), Choices(None, calibrating, [*map(Path, memory.references), *own]))


def _with_all_checked(annotations: Sequence[Annotation], checked: Mapping[str, Mapping[str, str]]) -> list[Annotation]:
    """The annotations with a verdict for everything that was checked: where no option orders could be asked, it
    cannot be told, with the reason."""
    found = [replace(one, rows=_judged(one.rows, checked.get(one.model, {}))) for one in annotations]
    for model, tasks in checked.items():
        there = {row.task for one in found if one.model == model for row in one.rows}
        rows = tuple(_without_run(model, task, reason) for task, reason in tasks.items() if task not in there)
        place = next((place for place, one in enumerate(found) if one.model == model), None)
        if place is not None:
            found[place] = replace(found[place], rows=(*found[place].rows, *rows))
        elif rows:
            found.append(Annotation(model, "", rows, (), ()))
    return found


def _judged(rows: Sequence[Row], reasons: Mapping[str, str]) -> tuple[Row, ...]:
    return tuple(
        replace(row, verdict=not_judged(reasons.get(row.task) or NOT_MADE))
        if row.verdict == NO_VERDICT and row.level != SUBJECT_LEVEL and not row.group
        else row
        for row in rows
    )


def _without_run(model: str, task: str, reason: str) -> Row:
    return Row(model, task, TASK_LEVEL, "", "", 0, UNKNOWN, 0, 0, verdict=not_judged(reason or NOT_MADE))
