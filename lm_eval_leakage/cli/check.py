"""`lm-eval-leakage check`: one verdict per model and task."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from lm_eval_leakage.cli.ending import CONDITION_MET, note, refuse, say, warn

PROBLEMS_TOLD = 5
TOLD_AT_THE_END = "lm_eval_leakage.harness.finished_results"  # logs the verdict on every single audit


def check(args: argparse.Namespace) -> None:
    """check a model for leakage of benchmarks: audits what is missing, ends with one verdict per task and a page"""
    from lm_eval_leakage.jobs.check_settings import SETTING_NAMES, check_settings
    from lm_eval_leakage.jobs.whole_check import run_check

    given = {name: value for name, value in vars(args).items() if name in SETTING_NAMES}
    settings = check_settings(given, args.config)
    only_warnings()
    outcome = run_check(settings, _silent if settings.quiet else say)
    if settings.dry_run:
        if settings.quiet:
            say(outcome.plan.as_text)
        return
    say(("" if settings.quiet else "\n") + outcome.as_text())
    for problem in outcome.problems[:PROBLEMS_TOLD]:
        note(f"note: {problem}")
    if (more := len(outcome.problems) - PROBLEMS_TOLD) > 0:
        note(f"note: and {more} more, which the page lists")
    say(f"\npage: {outcome.page}")
    for sentence in outcome.failed:
        warn(f"fails: {sentence}")
    if outcome.failed:
        sys.exit(CONDITION_MET)
    if outcome.unjudged:
        refuse(outcome.unjudged)


def check_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", "-M", metavar="NAME", help="backend, as for lm_eval: hf-prefix-tree, hf, vllm-prefix-tree, ...")
    add("--model_args", "-a", metavar="ARGS", help="as for lm_eval: pretrained=MODEL,dtype=bfloat16")
    add(
        "--tasks",
        "-t",
        nargs="+",
        metavar="TASK",
        help="tasks or groups of lm_eval, separated by commas or spaces; or files of plain questions (.jsonl, .json, "
        ".parquet)",
    )
    add("--config", "-C", type=Path, metavar="FILE", help="a YAML file with the same names; default: leakage.yaml")
    add(
        "--runs",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="runs and audits of this model that exist already; may be repeated",
    )
    add(
        "--reference",
        metavar="FOLDER|ARGS",
        help="another model's audits, or the model_args of another model, for benchmarks with written orders",
    )
    add("--unseen", metavar="FILE", help="questions of the same kind that the model cannot have seen")
    add(
        "--orders",
        metavar="'random: SOURCE'",
        help="what the builder of the one task says about its published orders, and where; makes the verdict exact "
        "unless the questions contradict it",
    )
    add("--questions", metavar="N", help="questions drawn at random from each task, or all (default: 300)")
    add("--seed", metavar="SEED", help="of the draw (default: 0)")
    add("--output_path", "-o", metavar="DIR", help="folder for runs, page and verdicts (default: leakage)")
    add("--fail-on", metavar="VERDICT", help="exit with status 1 if a verdict is at least this one, such as evidence")
    add("--allow-untold", action="store_true", default=None, help="--fail-on accepts verdicts that cannot be told")
    add("--batch_size", "-b", metavar="N", help="as for lm_eval")
    add("--device", metavar="DEVICE", help="as for lm_eval")
    add("--include_path", metavar="DIR", help="a folder with additional tasks")
    add("--apply_chat_template", nargs="?", const=True, metavar="NAME", help="as for lm_eval")
    add("--dry_run", action="store_true", default=None, help="only show the plan; no model is loaded")
    add("--quiet", action="store_true", default=None, help="print only the verdicts")


def only_warnings() -> None:
    """The harness's messages would hide the plan; LMEVAL_LOG_LEVEL=INFO shows them."""
    import datasets
    from lm_eval.utils import setup_logging

    datasets.logging.set_verbosity_error()
    if "LMEVAL_LOG_LEVEL" not in os.environ:
        setup_logging(logging.ERROR)
    logging.getLogger(TOLD_AT_THE_END).setLevel(logging.ERROR)


def _silent(text: str) -> None:
    """Prints nothing."""
