"""Commands that read runs and audits, and run no model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from lm_eval_leakage import __version__
from lm_eval_leakage.results.annotation import Annotation

Command = Callable[[argparse.Namespace], None]


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
        args.output_path.write_text("\n".join([*lines, ""]), encoding="utf-8")
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
    from lm_eval_leakage.results.clean import clean_sets

    try:
        annotations = _annotations(args)
        sets = clean_sets(annotations, "strong" if args.strong else "weak", args.keep_untested)
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
    print(f"run them with: lm_eval --include_path {args.output_path} --tasks {sets[0].name}")


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
        args.output.write_text(text + "\n", encoding="utf-8")
    _tell_problems(annotations)


def _annotations(args: argparse.Namespace) -> Sequence[Annotation]:
    from lm_eval_leakage.results.annotate import Choices, annotate
    from lm_eval_leakage.results.suspicions import Calibrating
    from lm_eval_leakage.statistics.known_scores import load

    calibrating = [Calibrating(load(file), args.calibrated_by, args.fpr) for file in args.calibration]
    return annotate(args.runs, args.audit, Choices(args.detector, calibrating, args.reference))


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
        print(
            f"note: and {len(problems) - PROBLEMS_SHOWN} more, all of them in results_*_leakage.json", file=sys.stderr
        )


def _refuse(error: Exception) -> NoReturn:
    print(error, file=sys.stderr)
    sys.exit(2)


def _write_page(page: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page, encoding="utf-8")
    print(f"written: {file} ({len(page.encode()) / 1e6:.1f} MB)")


# ---------------------------------------------------------------------- arguments


def _identify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run",
        nargs=2,
        action="append",
        required=True,
        metavar=("FOLDER", "CALIBRATION"),
        help="output folder of a model's audits (with --log_samples) and its calibration; once for each model",
    )
    parser.add_argument("--detector", default="combined", help="of the calibration (default: all of them, combined)")
    parser.add_argument("--level", type=float, default=0.1, help="accepted share of mistakes (default: %(default)s)")
    parser.add_argument("--output_path", type=Path, help="file for one JSON line a question")


def _prevalence_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="FOLDER", help="output folder of a model's audits (--log_samples)")
    parser.add_argument("--calibration", metavar="FILE", help="its calibration; without, by null hypotheses")
    parser.add_argument("--detector", default="combined", help="of the calibration (default: all of them, combined)")
    parser.add_argument("--fpr", type=float, default=0.05, help="accepted share of unseen (default: %(default)s)")


def _reading_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUNS", help="folders that were lm_eval's --output_path (--log_samples)"
    )
    parser.add_argument(
        "--audit", type=Path, action="append", default=[], metavar="FOLDER", help="of audits that are not among RUNS"
    )
    parser.add_argument("--detector", help="whose flags count (default: max_order, or the first that was run)")
    parser.add_argument(
        "--calibration", action="append", default=[], metavar="FILE", help="of `simulate`; once for each model"
    )
    parser.add_argument(
        "--calibrated_by", default="combined", help="detector of the calibration (default: %(default)s)"
    )
    parser.add_argument("--fpr", type=float, default=0.05, help="share of unseen flagged (default: %(default)s)")
    parser.add_argument(
        "--reference",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="runs of other models, whose answers say how hard a question is, for the gap within strata",
    )


def _annotate_arguments(parser: argparse.ArgumentParser) -> None:
    from lm_eval_leakage.results.tables import STYLES

    _reading_arguments(parser)
    parser.add_argument("--format", choices=STYLES, default="table", help="of what is printed (default: %(default)s)")
    parser.add_argument("--subjects", action="store_true", help="print a row of each subject too")
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help="such as 'pvalue<0.01': exit with 1 when the row of a whole task or group meets it",
    )
    parser.add_argument("--output_path", type=Path, help="folder for the annotated files (default: beside the runs)")
    parser.add_argument("--dry_run", action="store_true", help="write no file")


def _clean_arguments(parser: argparse.ArgumentParser) -> None:
    _reading_arguments(parser)
    parser.add_argument("--output_path", type=Path, required=True, help="folder for the tasks")
    rules = parser.add_mutually_exclusive_group()
    rules.add_argument("--weak", action="store_true", help="leave out every flagged question (the default)")
    rules.add_argument("--strong", action="store_true", help="leave out those flagged and answered rightly")
    parser.add_argument("--keep_untested", action="store_true", help="keep questions that no audit tested")
    parser.add_argument("--include_path", metavar="DIR", help="folder of your own tasks, where the runs have some")
    parser.add_argument("--overwrite", action="store_true", help="replace tasks that the folder has")


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    _reading_arguments(parser)
    parser.add_argument("--output", type=Path, default=Path("leakage.html"), help="the page (default: %(default)s)")


def _leaderboard_arguments(parser: argparse.ArgumentParser) -> None:
    _reading_arguments(parser)
    parser.add_argument("--format", choices=("html", "markdown", "csv"), default="html")
    parser.add_argument("--output", type=Path, help="file (default: leaderboard.html; the others are printed)")


PROBLEMS_SHOWN = 20
COMMANDS: tuple[Command, ...] = (identify, prevalence, annotate, clean, report, leaderboard)
ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "identify": _identify_arguments,
    "prevalence": _prevalence_arguments,
    "annotate": _annotate_arguments,
    "clean": _clean_arguments,
    "report": _report_arguments,
    "leaderboard": _leaderboard_arguments,
}
