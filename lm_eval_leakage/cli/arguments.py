"""Command-line arguments of the commands that read runs and audits."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path


def _calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, metavar="RUNS", help="output folder of the benchmark's audits (--log_samples)")
    add(
        "--unseen",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="output folder of the same audits of questions that the model cannot have seen: private or newly written "
        "ones (--metadata data_files=FILE), or fresh",
    )
    add("--output_path", type=Path, required=True, metavar="FILE", help="calibration file to write")
    add(
        "--seen",
        type=Path,
        metavar="FOLDER",
        help="output folder of the same audits of questions that the model has certainly been trained on, if you know "
        "some: they give the power (without them, prevalence is a lower bound)",
    )
    add(
        "--reference",
        type=Path,
        metavar="FOLDER",
        help="output folder of another model's audits of both, by which the perplexity of both is compared",
    )
    add(
        "--combined",
        metavar="FILE",
        help="a calibration file of `simulate`, whose combined score is used too (its weights alone, not its scores)",
    )


def _identify_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUNS", help="output folders of audits (--log_samples), one per model")
    add(
        "--calibration",
        action="append",
        required=True,
        metavar="FILE",
        help="a model's calibration file, written by `calibrate`; repeat for each model, in the order of RUNS",
    )
    _calibrated_by_argument(parser)
    add("--fdr", type=float, default=0.1, help="target false discovery rate (default: %(default)s)")
    add("--output_path", type=Path, metavar="FILE", help="file to write, with one JSON line per question")


def _prevalence_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, metavar="RUNS", help="output folder of a model's audits (--log_samples)")
    add(
        "--calibration",
        metavar="FILE",
        help="the model's calibration file, written by `calibrate` (default: judge by the null hypotheses)",
    )
    _calibrated_by_argument(parser)
    _fpr_argument(parser)


def _calibrated_by_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--calibrated_by",
        metavar="ID",
        help="detector of the calibration whose scores are used, such as max_order or token_evidence/min_k (default: "
        "all of them combined, if it has a combined score, else its first)",
    )


def _fpr_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fpr",
        type=float,
        default=0.05,
        help="false-positive rate of calibrated flags on unseen questions (default: %(default)s)",
    )


def _reading_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUNS", help="output folders (--output_path) of lm_eval --log_samples")
    add(
        "--audit",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="output folder of audits, if they are not in RUNS; may be repeated",
    )
    add(
        "--alias",
        action="append",
        default=[],
        metavar="OTHER=MODEL",
        help="treat the model name OTHER as MODEL, where runs of one model name it differently",
    )
    add(
        "--detector",
        metavar="ID",
        help="id of the detector whose flags count, such as max_order:orders=12 (default: max_order, else the first)",
    )
    add(
        "--calibration",
        action="append",
        default=[],
        metavar="FILE",
        help="a calibration file, written by `calibrate`; repeat for each model",
    )
    _calibrated_by_argument(parser)
    _fpr_argument(parser)
    add(
        "--reference",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="runs of other models, whose answers tell how difficult a question is (for the gap within strata)",
    )


def _annotate_arguments(parser: argparse.ArgumentParser) -> None:
    from lm_eval_leakage.results.formatting import STYLES

    add = parser.add_argument
    _reading_arguments(parser)
    add("--format", choices=STYLES, default="table", help="format of the printed table (default: %(default)s)")
    add("--subjects", action="store_true", help="also print a row per subject")
    add(
        "--fail-on",
        action="append",
        default=[],
        metavar="CONDITION",
        help="exit with status 1 if the row of a task or group meets it, such as evidence (a verdict of at least "
        "this) or 'confusion_delta<-0.1'; may be repeated",
    )
    add(
        "--allow-untold",
        action="store_true",
        help="do not exit with status 2 because a condition cannot be judged for a benchmark, as where its verdict "
        "cannot be told",
    )
    add(
        "--output_path", type=Path, metavar="FOLDER", help="folder for the annotated files (default: next to the runs)"
    )
    add("--dry_run", action="store_true", help="print only, write no files")


def _clean_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _reading_arguments(parser)
    add("--output_path", type=Path, required=True, metavar="FOLDER", help="folder for the clean tasks")
    rules = parser.add_mutually_exclusive_group()
    rules.add_argument("--weak", action="store_true", help="leave out every flagged question (default)")
    rules.add_argument(
        "--strong", action="store_true", help="leave out only questions that are flagged and answered correctly"
    )
    add("--calibrated", action="store_true", help="use calibrated flags (needs --calibration)")
    add(
        "--target_rate",
        type=float,
        metavar="RATE",
        help="keep the largest set of which at most this share is expected to have been seen by any model, instead of "
        "going by flags (needs a --calibration with known-seen scores of every model)",
    )
    add("--keep_untested", action="store_true", help="keep questions that no audit tested")
    add("--include_path", metavar="DIR", help="folder of your own tasks, if it has moved since the runs")
    add("--overwrite", action="store_true", help="replace tasks that already exist in the folder")


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    _reading_arguments(parser)
    parser.add_argument(
        "--output_path",
        type=Path,
        default=Path("leakage.html"),
        metavar="FILE",
        help="HTML file to write (default: %(default)s)",
    )


def _leaderboard_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _reading_arguments(parser)
    add("--format", choices=("html", "markdown", "csv"), default="html", help="output format (default: %(default)s)")
    add(
        "--output_path",
        type=Path,
        metavar="FILE",
        help="file to write (default: leaderboard.html; markdown and csv are printed)",
    )


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "calibrate": _calibrate_arguments,
    "identify": _identify_arguments,
    "prevalence": _prevalence_arguments,
    "annotate": _annotate_arguments,
    "clean": _clean_arguments,
    "report": _report_arguments,
    "leaderboard": _leaderboard_arguments,
}
