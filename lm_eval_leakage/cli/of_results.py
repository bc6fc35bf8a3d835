"""Commands that read runs and audits, and run no model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from lm_eval_leakage import __version__
from lm_eval_leakage.files import write_whole
from lm_eval_leakage.results.annotation import Annotation

Command = Callable[[argparse.Namespace], None]
PROBLEMS_SHOWN = 20


def identify(args: argparse.Namespace) -> None:
    """say which questions models have probably seen, with a bound on the share of mistakes"""
    from lm_eval_leakage.results import identify as identification
    from lm_eval_leakage.statistics.known_scores import load

    try:
        runs = [(Path(folder), load(calibration)) for folder, calibration in args.run]
        found = identification.identify(runs, args.detector, args.level)
    except ValueError as error:
        sys.exit(str(error))
    if args.output_path is not None:
        lines = [json.dumps(line, ensure_ascii=False) for line in identification.as_lines(found)]
        write_whole(args.output_path, "\n".join([*lines, ""]))
    print(identification.summary(found))


def prevalence(args: argparse.Namespace) -> None:
    """say what share of each subject a model has probably seen, and which subjects have too many flags for chance"""
    from lm_eval_leakage.results import prevalence as shares
    from lm_eval_leakage.statistics.known_scores import load

    try:
        if args.calibration is None:
            found = shares.by_null(args.run)
        else:
            found = shares.by_calibration(args.run, load(args.calibration), args.detector, args.fpr)
    except ValueError as error:
        sys.exit(str(error))
    print(shares.as_table(found))


def annotate(args: argparse.Namespace) -> None:
    """add leakage columns to the results of runs: how many questions are flagged, and the accuracy without them"""
    from lm_eval_leakage.results.conditions import Condition
    from lm_eval_leakage.results.tables import as_text
    from lm_eval_leakage.results.written import write

    try:
        conditions = [Condition.of(text) for text in args.fail_if]
        annotations = _annotations(args)
        rows = [row for annotation in annotations for row in annotation.rows]
        if not args.dry_run:  # before anything is printed, since a closed pipe ends the command
            for annotation in annotations:
                for file in write(annotation, __version__, args.output_path):
                    print(f"written: {file}", file=sys.stderr)
        print(as_text([row for row in rows if args.subjects or row.level != "subject"], args.format))
        _tell_problems(annotations)
        met = [sentence for condition in conditions for sentence in condition.met_by(rows)]
    except ValueError as error:
        _refuse(error)
    if met:
        print("\n".join(f"fails: {sentence}" for sentence in met), file=sys.stderr)
        sys.exit(1)


def clean(args: argparse.Namespace) -> None:
    """write tasks that ask only the questions that are not flagged, for plain lm_eval"""
    from lm_eval.tasks import TaskManager

    from lm_eval_leakage.harness.clean_files import write_clean
    from lm_eval_leakage.results.chosen_runs import outermost
    from lm_eval_leakage.results.clean import by_calibration, clean_name, clean_sets

    try:
        annotations = _annotations(args)
        judged = by_calibration(annotations) if args.calibrated else annotations
        sets = clean_sets(judged, "strong" if args.strong else "weak", args.keep_untested)
        groups = {name: tasks for annotation in annotations for name, tasks in annotation.groups.items()}
        manager = TaskManager(include_path=args.include_path)
        problems = write_clean(sets, groups, args.output_path, manager, overwrite=args.overwrite)
    except ValueError as error:
        _refuse(error)
    for one in sets:
        print(f"{one.name}: {len(one.kept)} of {one.n_questions} questions kept, {one.n_untested} untested")
    _tell_problems(annotations)
    for problem in problems:
        print(f"note: {problem}", file=sys.stderr)
    names = dict.fromkeys(clean_name(outermost(one.task, groups) or one.task) for one in sets)
    print(f"run them with: lm_eval --include_path {args.output_path} --tasks {','.join(names)}")


def report(args: argparse.Namespace) -> None:
    """write one page that shows runs and audits: columns, plots, the flagged questions"""
    from lm_eval_leakage.report.page import render

    try:
        page = render(_annotations(args))
    except ValueError as error:
        _refuse(error)
    _write_page(page, args.output)


def leaderboard(args: argparse.Namespace) -> None:
    """many models on many benchmarks, with intervals and ranks that admit ties"""
    from lm_eval_leakage.report.leaderboard_page import render
    from lm_eval_leakage.results import leaderboard as standings

    try:
        annotations = _annotations(args)
        board = standings.leaderboard(annotations)
    except ValueError as error:
        _refuse(error)
    if args.format == "html":
        _write_page(render(board), args.output or Path("leaderboard.html"))
        return
    text = (standings.as_csv if args.format == "csv" else standings.as_markdown)(board)
    if args.output is None:
        print(text)
    else:
        write_whole(args.output, text + "\n")
    _tell_problems(annotations)


def _annotations(args: argparse.Namespace) -> Sequence[Annotation]:
    from lm_eval_leakage.results.annotate import Choices, annotate
    from lm_eval_leakage.results.suspicions import Calibrating
    from lm_eval_leakage.statistics.known_scores import load

    calibrating = [Calibrating(load(file), args.calibrated_by, args.fpr) for file in args.calibration]
    aliases = dict(_alias(text) for text in args.alias)
    return annotate(args.runs, args.audit, Choices(args.detector, calibrating, args.reference, aliases))


def _alias(text: str) -> tuple[str, str]:
    other, is_given, model = text.partition("=")
    if not (other and is_given and model):
        raise ValueError(f"--alias is {text!r}; write it as OTHER=MODEL, two names of one model")
    return other, model


def _tell_problems(annotations: Sequence[Annotation]) -> None:
    many = len(annotations) > 1
    problems = [
        f"{annotation.model}: {problem}" if many else str(problem)
        for annotation in annotations
        for problem in annotation.problems
    ]
    for problem in problems[:PROBLEMS_SHOWN]:
        print(f"note: {problem}", file=sys.stderr)
    if len(problems) > PROBLEMS_SHOWN:
        more = len(problems) - PROBLEMS_SHOWN
        print(f"note: and {more} more (annotate writes all of them into results_*_leakage.json)", file=sys.stderr)


def _refuse(error: Exception) -> NoReturn:
    print(error, file=sys.stderr)
    sys.exit(2)


def _write_page(page: str, file: Path) -> None:
    write_whole(file, page)
    print(f"written: {file} ({len(page.encode()) / 1e6:.1f} MB)")


COMMANDS: tuple[Command, ...] = (identify, prevalence, annotate, clean, report, leaderboard)
