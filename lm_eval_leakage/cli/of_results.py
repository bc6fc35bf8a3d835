"""Commands that read runs and audits, without running a model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_leakage import __version__
from lm_eval_leakage.cli import arguments
from lm_eval_leakage.cli.arguments import USUAL, add_options
from lm_eval_leakage.cli.ending import CONDITION_MET, note, refuse, say, warn
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.seams.command_line import AddArguments, Command
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.logs.runs import results_of
from lm_eval_leakage.texts import as_json, visible

if TYPE_CHECKING:  # it imports scipy, which would slow `--help` down
    from lm_eval_leakage.results.clean_sets import Guarantee
    from lm_eval_leakage.results.conditions import Condition
    from lm_eval_leakage.results.result_types import Annotation, Row

PROBLEMS_SHOWN = 20


def calibrate(args: argparse.Namespace) -> None:
    """make a calibration from a model's own scores of questions that it cannot have seen"""
    from lm_eval_leakage.logs.calibration_file import read_calibration, write_calibration
    from lm_eval_leakage.results.own_calibration import own_calibration, summary

    problems: list[Problem] = []
    weights = None if args.combined is None else read_calibration(args.combined)
    calibration, compared = own_calibration(
        args.runs, args.unseen, problems, seen_folder=args.seen, reference=args.reference, weights=weights
    )
    write_calibration(args.output_path, calibration)
    say(summary(calibration, compared))
    note(f"written: {args.output_path}")
    tell_problems(("", problem) for problem in problems)


def identify(args: argparse.Namespace) -> None:
    """list the questions that models have probably seen, at a target false discovery rate"""
    from lm_eval_leakage.logs.calibration_file import read_calibration
    from lm_eval_leakage.results import identify as identification

    problems: list[Problem] = []
    if len(args.runs) != len(args.calibration):
        raise ValueError(
            f"{len(args.runs)} folder(s) of audits and {len(args.calibration)} --calibration file(s) are given; give "
            "one calibration for each folder, in the same order"
        )
    runs = [(run, read_calibration(file)) for run, file in zip(args.runs, args.calibration, strict=True)]
    detector = args.calibrated_by or runs[0][1].usual_detector
    found = identification.identify(runs, problems, detector, args.fdr)
    if args.output_path is not None:
        lines = [as_json(line) for line in identification.as_lines(found)]
        atomic_write(args.output_path, "\n".join([*lines, ""]))
    say(identification.summary(found))
    tell_problems(("", problem) for problem in problems)


def prevalence(args: argparse.Namespace) -> None:
    """estimate the share of each subject that a model has seen, and test which subjects have more flags than chance"""
    from lm_eval_leakage.logs.calibration_file import read_calibration
    from lm_eval_leakage.results import subject_prevalence as shares

    problems: list[Problem] = []
    if args.calibration is None:
        found = shares.by_null(args.runs, problems)
    else:
        calibration = read_calibration(args.calibration)
        detector = args.calibrated_by or calibration.usual_detector
        found = shares.by_calibration(args.runs, calibration, detector, args.fpr, problems)
    say(shares.as_table(found))
    for text in shares.notes(found):
        note(f"note: {text}")
    tell_problems(("", problem) for problem in problems)


def annotate(args: argparse.Namespace) -> None:
    """add leakage columns to the results of runs: the verdict, flagged questions, the accuracy without them"""
    from lm_eval_leakage.results.conditions import Condition, check_complete
    from lm_eval_leakage.results.tables import as_text, verdicts_in_words, write

    conditions = [Condition.of(text) for text in args.fail_on or ()]
    annotations = _annotations(args)
    rows = [row for annotation in annotations for row in annotation.rows]
    if not args.dry_run:
        for annotation in annotations:
            for file in write(annotation, __version__, args.output_path):
                note(f"written: {file}")
    say(as_text([row for row in rows if args.subjects or row.level != "subject"], args.format))
    if in_words := verdicts_in_words(rows, args.format):
        say(f"\n{in_words}")
    _tell_all(annotations)
    if conditions:
        check_complete(problem for annotation in annotations for problem in annotation.problems)
        _judge(conditions, rows, args.allow_untold)


def _judge(conditions: Sequence[Condition], rows: Sequence[Row], allow_untold: bool) -> None:
    """Exits with 1 if a condition is met, else with 2 if one cannot be judged, unless that is allowed."""
    for condition in filter(lambda one: one.reservation, conditions):
        note(f"note: {condition.reservation}")
    met = [sentence for condition in conditions for sentence in condition.met_by(rows)]
    untold = dict.fromkeys(sentence for condition in conditions for sentence in condition.untold_of(rows))
    for sentence in met:
        warn(f"fails: {sentence}")
    for sentence in untold:
        warn(f"note: {sentence}")
    if met:
        sys.exit(CONDITION_MET)
    if untold and not allow_untold:
        refuse(
            "--fail-on cannot be judged for all benchmarks, so that nothing shows that it holds; --allow-untold "
            "accepts those that are named above"
        )


def clean(args: argparse.Namespace) -> None:
    """write tasks for plain lm_eval that ask only the questions that are not flagged"""
    from lm_eval.tasks import TaskManager

    from lm_eval_leakage.harness.clean_files import own_folders, write_clean
    from lm_eval_leakage.results.answered import outermost
    from lm_eval_leakage.results.clean_sets import clean_name, clean_sets

    annotations = _annotations(args)
    judged, guarantee = _judged(annotations, args)
    sets = clean_sets(judged, "strong" if args.strong else "weak", args.keep_untested, guarantee)
    groups = {name: tasks for annotation in annotations for name, tasks in annotation.groups.items()}
    origins = {row.origin for annotation in annotations for row in annotation.rows if row.origin}
    manager = TaskManager(include_path=args.include_path or own_folders(results_of(Path(one)) for one in origins))
    problems = write_clean(sets, groups, args.output_path, manager, overwrite=args.overwrite)
    for one in sets:
        counts = f"{len(one.kept)} of {one.n_questions} questions kept, {one.n_untested} untested"
        say(visible(f"{one.name}: {counts}"))
    say(visible(f"{guarantee.text[0].upper()}{guarantee.text[1:]}."))
    _tell_all(annotations)
    for problem in problems:
        note(f"note: {problem}")
    names = dict.fromkeys(clean_name(outermost(one.task, groups) or one.task) for one in sets)
    _say_commands(annotations, args.output_path, list(names))


def _say_commands(annotations: Sequence[Annotation], folder: Path, tasks: Sequence[str]) -> None:
    """Prints for each model the command that runs the clean tasks as its run was."""
    from lm_eval_leakage.harness.clean_files import run_command

    commands = []
    for annotation in annotations:
        answered = [row for row in annotation.rows if row.origin]
        results = results_of(Path(answered[0].origin)) if answered else {}
        commands.append(run_command(results, {row.n_shot for row in answered}, folder, tasks))
    for command in filter(None, commands):
        say(visible(f"run them with: {command}"))
    if not any(commands):
        say(visible(f"run them with the run's own options and --include_path {folder} --tasks {','.join(tasks)}"))


def _judged(annotations: Sequence[Annotation], args: argparse.Namespace) -> tuple[Sequence[Annotation], Guarantee]:
    """The annotations with the flags that `clean` goes by, and what these guarantee."""
    from lm_eval_leakage.results.clean_sets import BY_FLAGS, UNCALIBRATED, by_calibration, by_target_rate

    if args.target_rate is not None:
        return by_target_rate(annotations, args.target_rate)
    return (by_calibration(annotations), BY_FLAGS) if args.calibrated else (annotations, UNCALIBRATED)


def report(args: argparse.Namespace) -> None:
    """write an HTML page of runs and audits: verdicts, columns, plots, the flagged questions"""
    from lm_eval_leakage.results.page import render

    annotations = _annotations(args)
    _write_page(render(annotations), args.output_path)
    _tell_all(annotations)


def leaderboard(args: argparse.Namespace) -> None:
    """compare many models on many benchmarks: verdicts, then shares flagged and ranks with intervals"""
    from lm_eval_leakage.results import leaderboard as standings

    annotations = _annotations(args)
    board = standings.leaderboard(annotations)
    if args.format == "html":
        _write_page(standings.as_page(board), args.output_path or Path("leaderboard.html"))
    else:
        text = (standings.as_csv if args.format == "csv" else standings.as_markdown)(board)
        if args.output_path is None:
            say(text)
        else:
            atomic_write(args.output_path, text + "\n")
    _tell_all(annotations)


def _annotations(args: argparse.Namespace) -> Sequence[Annotation]:
    from lm_eval_leakage.logs.calibration_file import read_calibration
    from lm_eval_leakage.results.annotate import annotate
    from lm_eval_leakage.results.verdicts import Calibrating

    calibrations = [read_calibration(file) for file in args.calibration or ()]
    calibrating = [Calibrating(one, args.calibrated_by or one.usual_detector, args.fpr) for one in calibrations]
    aliases = dict(_alias(text) for text in args.alias or ())
    return annotate(
        args.runs,
        args.audit or (),
        detector=args.detector,
        calibrating=calibrating,
        references=args.reference or (),
        aliases=aliases,
    )


def _alias(text: str) -> tuple[str, str]:
    other, is_given, model = text.partition("=")
    if not (other and is_given and model):
        raise ValueError(f"--alias is {text!r}; write it as OTHER=MODEL, two names of the same model")
    return other, model


def _tell_all(annotations: Sequence[Annotation]) -> None:
    many = len(annotations) > 1
    found = [(one.model if many else "", problem) for one in annotations for problem in one.problems]
    tell_problems(found)


def tell_problems(problems: Iterable[tuple[str, Problem]]) -> None:
    """Print problems as notes, each with its model if it has one; those that cost questions come first."""
    first = sorted(problems, key=lambda pair: not pair[1].incomplete)
    for model, problem in first[:PROBLEMS_SHOWN]:
        tell = warn if problem.incomplete else note  # what costs questions is told with --quiet, too
        tell(f"note: {model}: {problem}" if model else f"note: {problem}")
    if len(first) > PROBLEMS_SHOWN:
        more = len(first) - PROBLEMS_SHOWN
        note(f"note: and {more} more (`annotate` without --dry_run writes all of them into results_*_leakage.json)")


def _write_page(page: str, file: Path) -> None:
    atomic_write(file, page)
    say(f"written: {visible(str(file))} ({len(page.encode()) / 1e6:.1f} MB)")


COMMANDS_ON_RESULTS: Mapping[Command, AddArguments] = {
    calibrate: partial(add_options, options=arguments.CALIBRATE),
    identify: partial(add_options, options=arguments.IDENTIFY, defaults={"fdr": 0.1}),
    prevalence: partial(add_options, options=arguments.PREVALENCE, defaults=USUAL),
    annotate: partial(add_options, options=arguments.ANNOTATE, defaults=USUAL | {"format": "table"}),
    clean: arguments.clean_arguments,
    report: partial(add_options, options=arguments.REPORT, defaults=USUAL | {"output_path": Path("leakage.html")}),
    leaderboard: partial(add_options, options=arguments.LEADERBOARD, defaults=USUAL | {"format": "html"}),
}
