"""`lm-eval-leakage check`: one model, or many on many benchmarks; how far that is."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from lm_eval_leakage.cli.arguments import FIELDS, add_options
from lm_eval_leakage.cli.ending import CONDITION_MET, note, refuse, say, warn
from lm_eval_leakage.files import QUESTION_FILES
from lm_eval_leakage.harness.seams.patching import REFUSED
from lm_eval_leakage.results.exports import EXPORTS
from lm_eval_leakage.results.formatting import about, counted, duration
from lm_eval_leakage.texts import visible, visible_lines

if TYPE_CHECKING:
    from lm_eval_leakage.jobs.folder import Attempt
    from lm_eval_leakage.jobs.outcome import CheckOutcome
    from lm_eval_leakage.jobs.plan import Plan
    from lm_eval_leakage.jobs.progress import Progress

NAMED = 5  # problems, and sentences to copy, that are told
FAILURES_NAMED = 20
FORMATS = "; ".join(f"{name}: {one.meaning}" for name, one in EXPORTS.items())
BAR_FORMAT = "{n_fmt}/{total_fmt} units |{bar}| {elapsed}{postfix}"
TOLD_AT_THE_END = "lm_eval_leakage.harness.table"  # logs the verdict on every single audit


def check(args: argparse.Namespace) -> None:
    """check models for leakage of benchmarks: audits what is missing, ends with verdicts and a page"""
    from lm_eval_leakage.jobs.plan import SETTING_NAMES, check_plan

    if args.status is not None:
        _status(args.status)
        return
    plan = check_plan({name: value for name, value in vars(args).items() if name in SETTING_NAMES}, args.plan)
    only_warnings()
    _carry_out(plan)


KINDS = {"FOLDER": Path}  # of values; a plan says what the others are
FIRST = {
    "[--status FOLDER]": "only say how far the work of an engine in a folder is",
    "[--model -M NAME]": "backend, as for lm_eval: hf-prefix-tree, hf, vllm-prefix-tree, ...",
    "[--model_args -a ARGS]": "as for lm_eval: pretrained=MODEL,dtype=bfloat16",
}
ASKED = {
    "[--runs FOLDER]...": "runs and audits of this model that exist already; may be repeated",
    "[--reference FOLDER|ARGS]": "another model's audits, or the model_args of another model, for benchmarks with "
    "written orders",
    "[--unseen FILE]": "questions of the same kind that the model cannot have seen",
    "[--positive_control train|none|FILE]": "rows that the model may have learned, audited in the same way: by "
    "default the task's train split, where it has one",
    "[--orders 'random: SOURCE']": "what the builder of the one task says about its published orders, and where; "
    "makes the verdict exact unless the questions contradict it",
    "[--questions N]": "questions drawn at random from each task: a number, all, or enough (default)",
    "[--budget REQUESTS]": "at most so many requests of each task: only option orders are asked, those that find most",
    "[--detect SHARE]": "share of the questions, seen three times, that the audit should find (default: 25%%); it "
    "says how many questions are enough, and a verdict on fewer is inconclusive",
    "[--max_tokens_asked N]": "refuse, before any request, what is estimated to ask more tokens than this (of what is "
    "not done yet)",
    "[--seed SEED]": "of the draw (default: 0)",
    "[--output_path -o DIR]": "folder for everything that is written (default: leakage)",
    "[--fail-on VERDICT]": "exit with status 1 if a verdict is at least this one, such as evidence",
    "[--allow-untold]": "--fail-on accepts verdicts that cannot be told",
    f"[--export {{{','.join(EXPORTS)}}}]...": f"also write the verdicts as {FORMATS}; may be repeated",
}
HOW_IT_RUNS = {
    "[--batch_size -b N]": "as for lm_eval",
    "[--device DEVICE]": "as for lm_eval",
    "[--include_path DIR]": "a folder with additional tasks",
    "[--system_instruction TEXT]": "as for lm_eval",
    "[--num_fewshot -f N]": "examples of the tasks themselves, as for lm_eval; audits have none",
    "[--metadata ARGS]": "of the audits, as for lm_eval: layouts=every",
    "[--dry_run]": "only show the plan; no model is loaded",
    "[--quiet]": "print only the verdicts",
    "[--engine NAME]": "what starts workers: inline, local, ray or slurm (default for a plan with models: ray if it "
    "is installed and there is an --address or more than one accelerator, else local; for one model: this process)",
    "[--address ADDRESS]": "of a Ray cluster, such as auto or HOST:6379; local, with --engine slurm, runs its jobs on "
    "this machine",
    "[--gpus N]": "of one model: that each worker needs (default: 0, which reserves none)",
}


def check_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    names = "a YAML file with the same names, and with models for several; default: leakage.yaml"
    add("plan", nargs="?", metavar="PLAN", help=names)
    add_options(parser, FIRST, kinds=KINDS)
    several = "tasks or groups of lm_eval, separated by commas or spaces; or files of plain questions "
    add("--tasks", "-t", nargs="+", metavar="TASK", help=f"{several}({', '.join(QUESTION_FILES)})")
    add_options(parser, FIELDS | ASKED, kinds=KINDS)
    add("--apply_chat_template", nargs="?", const=True, metavar="NAME", help="as for lm_eval")
    as_the_plan_says = dict.fromkeys(("allow_untold", "dry_run", "quiet"))
    add_options(parser, HOW_IT_RUNS, KINDS, as_the_plan_says)


def only_warnings() -> None:
    """The harness's messages would hide the plan; LMEVAL_LOG_LEVEL=INFO shows them."""
    import datasets
    from lm_eval.utils import setup_logging

    datasets.logging.set_verbosity_error()
    if "LMEVAL_LOG_LEVEL" not in os.environ:
        setup_logging(logging.ERROR)
    logging.getLogger(TOLD_AT_THE_END).setLevel(logging.ERROR)


def _carry_out(plan: Plan) -> None:
    from lm_eval_leakage.jobs.driver import run_plan  # seconds

    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if not plan.is_here:
            for line in text.split("\n"):
                note(line)
        elif not plan.quiet:
            say(text)

    try:
        with _bar(plan.quiet or plan.is_here) as watch:
            outcome = run_plan(plan, say=tell, watch=watch)
    except KeyboardInterrupt:
        warn(f"interrupted: what is done is in {plan.output_path}; the same command goes on")
        raise
    if plan.dry_run:
        if outcome.plan is None or plan.quiet:
            say(outcome.plan_text if outcome.plan is None else outcome.plan.as_text)
        return
    _tell(plan, outcome, [problem for problem in outcome.problems if problem not in said])


@contextmanager
def _bar(quiet: bool) -> Iterator[Any]:
    """One line that is written again, with a line above it for each failure."""
    bar: Any = None

    def watch(progress: Progress, attempt: Attempt | None) -> None:
        nonlocal bar
        if quiet:
            return
        if bar is None:
            bar = tqdm(total=progress.n_units, initial=progress.n_done_before, bar_format=BAR_FORMAT)
        if attempt is not None:
            if not attempt.ok:
                bar.write(visible(f"{attempt.unit.id}: {attempt.error}"), file=bar.fp)
            bar.set_postfix_str(_rates(progress), refresh=False)
            bar.n = progress.n_done
            bar.refresh()

    try:
        yield watch
    finally:
        if bar is not None:
            bar.close()


def _rates(progress: Progress) -> str:
    left, failed = progress.seconds_left, len(progress.failed)
    parts = [f"{about(round(progress.tokens_per_second))} tokens/s"]
    parts += [] if left is None else [f"{duration(left)} left"]
    return ", ".join([*parts, *([f"{failed} failed"] if failed else [])])


def _tell(plan: Plan, outcome: CheckOutcome, problems: Sequence[str]) -> None:
    if not plan.is_here:
        say(f"{outcome.n_done} of {outcome.n_units} units are done")
    say(("" if plan.quiet or not plan.is_here else "\n") + outcome.as_text())
    if not plan.quiet:
        _tell_sentences(outcome)
    for problem in problems[:NAMED]:
        note(f"note: {problem}")
    if (more := len(problems) - NAMED) > 0:
        note(f"note: and {more} more, which the page lists")
    if plan.is_here:
        say(f"\npage: {outcome.page}")
    else:
        for page in outcome.pages:
            note(f"written: {page}")
    for place in (plan.output_path / name for name in plan.export):
        n = sum(file.is_relative_to(place) for file in outcome.exports)
        note(f"exported: {counted(n, 'file')} in {place}")
    for told in outcome.unfinished[:FAILURES_NAMED]:
        warn(f"failed: {told}")
    if (more := len(outcome.lost) - FAILURES_NAMED) > 0:
        warn(f"and {more} more failed; `lm-eval-leakage check --status {plan.output_path}` lists them")
    for sentence in outcome.failed:
        warn(f"fails: {sentence}")
    if outcome.failed:
        sys.exit(CONDITION_MET)
    if outcome.unjudged:
        refuse(outcome.unjudged)
    if outcome.n_done < outcome.n_units:
        sys.exit(REFUSED)


def _tell_sentences(outcome: CheckOutcome) -> None:
    for one in outcome.verdicts[:NAMED]:
        say(f"\nto copy: {visible(one.citation)}")
    if (more := len(outcome.verdicts) - NAMED) > 0:
        note(f"{more} more sentences to copy are in verdicts.json and on the page")


def _status(path: Path) -> None:
    from lm_eval_leakage.jobs.folder import CampaignFolder
    from lm_eval_leakage.jobs.progress import status_as_text

    say(visible_lines(status_as_text(CampaignFolder(path))))
