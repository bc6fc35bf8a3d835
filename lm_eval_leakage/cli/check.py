"""The command `lm-eval-leakage check`: checks one model, or many on many benchmarks, and prints how far that is."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from lm_eval_leakage.cli.arguments import FIELDS, add_options
from lm_eval_leakage.cli.ending import CONDITION_MET, refuse
from lm_eval_leakage.cli.output import note, say, warn
from lm_eval_leakage.harness.seams.refusals import REFUSED
from lm_eval_leakage.results.exports import EXPORTS
from lm_eval_leakage.results.formatting import about, counted, duration
from lm_eval_leakage.texts import visible, visible_lines

if TYPE_CHECKING:
    from lm_eval_leakage.jobs.folder import Attempt
    from lm_eval_leakage.jobs.outcome import CheckOutcome
    from lm_eval_leakage.jobs.plan import Plan
    from lm_eval_leakage.jobs.progress import Progress

NAMED = 5  # problems, and sentences to copy, that are printed
FAILURES_NAMED = 20
FORMATS = "; ".join(f"{name}: {export.meaning}" for name, export in EXPORTS.items())
BAR_FORMAT = "{n_fmt}/{total_fmt} units |{bar}| {elapsed}{postfix}"
KINDS = {"FOLDER": Path}  # of values; a plan says what the others are
HELP_COLUMN = 30
USAGE = "lm-eval-leakage check --model_args pretrained=MODEL --tasks TASK [OPTION ...]"
PLAN_FILE = "a YAML file with these names and several models"
MODEL = {
    "[--model -M NAME]": "lm_eval's backend (default: hf)",
    "[--model_args -a ARGS]": "as for lm_eval: pretrained=MODEL",
}
TASKS = "tasks or groups of lm_eval; files of questions"
USUAL = {  # each on one line of 80 characters
    "[--questions N]": "of each task: a number, all, or enough (default)",
    "[--runs FOLDER]...": "existing runs of this model; may be repeated",
    "[--reference FOLDER|ARGS]": "another model's audits, or its model_args",
    "[--unseen FILE]": "questions that the model cannot have seen",
    "[--positive_control WHICH]": "rows it may have learned: train, none, or a file",
    "[--output_path -o DIR]": "folder to write into (default: leakage)",
    "[--dry_run]": "only print the plan; no model is loaded",
    "[--fail-on VERDICT]": "exit with status 1 for such a verdict: evidence",
}
AS_FOR_LM_EVAL = "as for lm_eval"
CHAT = "a chat template of the model"
RARE = {  # options by the title of their group; `--help` leaves them out
    "questions": FIELDS
    | {
        "[--orders 'random: SOURCE']": "what the author of the one task says about its published orders, and where; "
        "makes the verdict exact unless the questions contradict it",
        "[--detect SHARE]": "share of the questions, seen three times, that the audit should find (default: 25%%); it "
        "says how many questions are enough, and a verdict on fewer is inconclusive",
        "[--budget REQUESTS]": "at most so many requests of each task: only option orders, those that find most",
        "[--seed SEED]": "of the draw (default: 0)",
    },
    "results": {
        f"[--export {{{','.join(EXPORTS)}}}]...": f"write the verdicts as {FORMATS}; may be repeated",
        "[--allow-no-verdict]": "--fail-on accepts benchmarks without a verdict",
        "[--quiet]": "print only the verdicts",
    },
    AS_FOR_LM_EVAL: {
        "[--batch_size -b N]": "texts at once",
        "[--device DEVICE]": "such as cuda:1",
        "[--include_path DIR]": "a folder with additional tasks",
        "[--system_instruction TEXT]": "of chats",
        "[--num_fewshot -f N]": "examples of the tasks themselves; audits have none",
        "[--metadata ARGS]": "of the audits: layouts=every",
    },
    "campaigns": {
        "[--status FOLDER]": "only print the progress of the campaign in a folder",
        "[--engine NAME]": "what starts workers: inline, local, ray or slurm (default for a plan with models: ray if "
        "it is installed and there is an --address or more than one accelerator, else local; for one model: inline)",
        "[--address ADDRESS]": "of a Ray cluster, such as auto or HOST:6379; local, with --engine slurm, for jobs on "
        "this machine",
        "[--max_tokens_asked N]": "refuse, before any request, what is estimated to read and generate more tokens",
    },
}
VERDICT_LOGGER = "lm_eval_leakage.harness.tasks.finished_results"  # logs the verdict on every single audit


def run_check(args: argparse.Namespace) -> None:
    """Check models for leakage of benchmarks: run the audits that are missing, give verdicts and a page."""
    from lm_eval_leakage.jobs.early_checks import check_at_once
    from lm_eval_leakage.jobs.plan import SETTING_NAMES
    from lm_eval_leakage.jobs.plan_reading import check_plan

    if args.status is not None:
        _status(args.status)
        return
    plan = check_plan({name: value for name, value in vars(args).items() if name in SETTING_NAMES}, args.plan)
    check_at_once(plan)  # before what takes seconds to import
    only_warnings()
    _carry_out(plan)


class BriefHelp(argparse.Action):
    """The action of `--help`: prints the help without the options of `rare`, which `--help-all` prints as well."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, *, rare: Sequence[argparse.Action], usage: str, help: str
    ) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)
        self.rare, self.usage = rare, usage

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.usage = self.usage
        for action in self.rare:
            action.help = argparse.SUPPRESS
        parser.print_help()
        parser.exit()


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE  # which errors print, too
    parser.formatter_class = partial(argparse.HelpFormatter, max_help_position=HELP_COLUMN)
    parser.add_argument("plan", nargs="?", metavar="PLAN", help=PLAN_FILE)
    add_options(parser, MODEL, kinds=KINDS)
    parser.add_argument("--tasks", "-t", nargs="+", metavar="TASK", help=TASKS)
    add_options(parser, USUAL, KINDS, {"dry_run": None})
    rare = []
    for title, options in RARE.items():
        group = parser.add_argument_group(title)
        rare += add_options(group, options, kinds=KINDS)
        if title == AS_FOR_LM_EVAL:
            rare.append(group.add_argument("--apply_chat_template", nargs="?", const=True, metavar="NAME", help=CHAT))
    parser.set_defaults(**dict.fromkeys(("allow_no_verdict", "quiet")))  # as the plan says
    parser.add_argument("-h", "--help", action=BriefHelp, rare=rare, usage=USAGE, help="print this screen and exit")
    parser.add_argument("--help-all", action="help", help="print all options")


def only_warnings() -> None:
    """The harness's messages would hide the plan; LMEVAL_LOG_LEVEL=INFO shows them."""
    import datasets
    from lm_eval.utils import setup_logging

    datasets.logging.set_verbosity_error()
    datasets.disable_progress_bars()  # a bar for each split that is read would stand between the sentences
    if "LMEVAL_LOG_LEVEL" not in os.environ:
        setup_logging(logging.ERROR)
    logging.getLogger(VERDICT_LOGGER).setLevel(logging.ERROR)


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
    """Show progress on one line that is written again, with a line above it for each failure."""
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
    for sentence in outcome.unfinished[:FAILURES_NAMED]:
        warn(f"failed: {sentence}")
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
    for task in outcome.verdicts[:NAMED]:
        say(f"\nto copy: {visible(task.citation)}")
    if (more := len(outcome.verdicts) - NAMED) > 0:
        note(f"{more} more sentences to copy are in verdicts.json and on the page")


def _status(path: Path) -> None:
    from lm_eval_leakage.jobs.folder import CampaignFolder
    from lm_eval_leakage.jobs.progress import status_as_text

    say(visible_lines(status_as_text(CampaignFolder(path))))
