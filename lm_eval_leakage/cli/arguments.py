"""Arguments of the commands that read runs and audits."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path


def _identify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run",
        nargs=2,
        action="append",
        required=True,
        metavar=("FOLDER", "CALIBRATION"),
        help="output folder of a model's audits (with --log_samples) and its calibration; once for each model",
    )
    parser.add_argument(
        "--detector",
        default="combined",
        metavar="ID",
        help="one of the calibration's, such as max_order or token_evidence/min_k (default: all of them, combined)",
    )
    parser.add_argument("--level", type=float, default=0.1, help="accepted share of mistakes (default: %(default)s)")
    parser.add_argument("--output_path", type=Path, help="file for one JSON line a question")


def _prevalence_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="FOLDER", help="output folder of a model's audits (--log_samples)")
    parser.add_argument("--calibration", metavar="FILE", help="its calibration; without, by null hypotheses")
    parser.add_argument(
        "--detector",
        default="combined",
        metavar="ID",
        help="one of the calibration's, such as max_order or token_evidence/min_k (default: all of them, combined)",
    )
    parser.add_argument("--fpr", type=float, default=0.05, help="accepted share of unseen (default: %(default)s)")


def _reading_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUNS", help="folders that were lm_eval's --output_path (--log_samples)"
    )
    parser.add_argument(
        "--audit", type=Path, action="append", default=[], metavar="FOLDER", help="of audits that are not among RUNS"
    )
    parser.add_argument(
        "--alias", action="append", default=[], metavar="OTHER=MODEL", help="two names of one model, as runs name it"
    )
    parser.add_argument(
        "--detector",
        metavar="ID",
        help="whose flags count, such as max_order:orders=12 (default: max_order, or the first that was run)",
    )
    parser.add_argument(
        "--calibration", action="append", default=[], metavar="FILE", help="of `simulate`; once for each model"
    )
    parser.add_argument(
        "--calibrated_by",
        default="combined",
        metavar="ID",
        help="one of the calibration's detectors (default: %(default)s)",
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
    from lm_eval_leakage.results.markup import STYLES

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
    parser.add_argument("--calibrated", action="store_true", help="go by the flags of the calibrations")
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


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "identify": _identify_arguments,
    "prevalence": _prevalence_arguments,
    "annotate": _annotate_arguments,
    "clean": _clean_arguments,
    "report": _report_arguments,
    "leaderboard": _leaderboard_arguments,
}
