"""A campaign's progress in the terminal: units, tokens per second, time left.

`lm-eval-leakage campaign`: many models on many benchmarks; its progress; its verification.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from lm_eval_leakage.cli.check import only_warnings
from lm_eval_leakage.cli.ending import CONDITION_MET, note, say, warn
from lm_eval_leakage.harness.seams.patching import REFUSED
from lm_eval_leakage.jobs.driver import Progress, Watch
from lm_eval_leakage.jobs.folder import Attempt
from lm_eval_leakage.results.formatting import about, duration
from lm_eval_leakage.texts import visible

if TYPE_CHECKING:
    from lm_eval_leakage.jobs.driver import CampaignOutcome
    from lm_eval_leakage.jobs.folder import Attempt
    from lm_eval_leakage.jobs.plan import CampaignPlan


BAR_FORMAT = "{n_fmt}/{total_fmt} units |{bar}| {elapsed}{postfix}"


class CampaignBar(Watch):
    """One line that is written again, with a line above it for each failure."""

    def __init__(self) -> None:
        self._bar: Any = None

    def begins(self, progress: Progress) -> None:
        self._bar = tqdm(total=progress.n_units, initial=progress.n_done_before, bar_format=BAR_FORMAT)

    def ended(self, attempt: Attempt, progress: Progress) -> None:
        if not attempt.ok:
            self._bar.write(visible(f"{attempt.unit.id}: {attempt.error}"), file=self._bar.fp)
        self._bar.set_postfix_str(_rates(progress), refresh=False)
        self._bar.n = progress.n_done
        self._bar.refresh()

    def ends(self) -> None:
        self._bar.close()


def _rates(progress: Progress) -> str:
    left = progress.seconds_left()
    parts = [
        f"{about(round(progress.tokens_per_second))} tokens/s",
        *([] if left is None else [f"{duration(left)} left"]),
    ]
    failed = len(progress.failed)
    return ", ".join([*parts, *([f"{failed} failed"] if failed else [])])


OF_STATUS, OF_VERIFICATION = "status", "verify"
FAILURES_NAMED = 20


def campaign(args: argparse.Namespace) -> None:
    """run and audit many models on many benchmarks by a plan; `status FOLDER` and `verify FOLDER` look at one"""
    first, *others = args.what
    if first in (OF_STATUS, OF_VERIFICATION) and len(others) == 1:
        (_status if first == OF_STATUS else _verify)(Path(others[0]))
    elif others or first in (OF_STATUS, OF_VERIFICATION):
        raise ValueError(
            f"{' '.join(args.what)!r} is not a plan; write `campaign plan.yaml`, `campaign status FOLDER` or "
            "`campaign verify FOLDER`"
        )
    else:
        _carry_out(args)


def campaign_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "what",
        nargs="+",
        metavar="PLAN",
        help="a YAML file with models, tasks, audits and limits; or `status FOLDER`: how far the campaign in a folder "
        "is; or `verify FOLDER`: whether its files are unchanged and its tables are what the logs give",
    )
    add(
        "--engine",
        metavar="NAME",
        help="what starts workers: local, ray or slurm (default: ray if it is installed and there is an --address or "
        "more than one accelerator, else local)",
    )
    add(
        "--address",
        metavar="ADDRESS",
        help="of a Ray cluster, such as auto or HOST:6379; local, with --engine slurm, runs its jobs on this machine",
    )
    add("--output_path", "-o", type=Path, metavar="DIR", help="instead of the plan's output_path (default: campaign)")
    add("--dry_run", action="store_true", help="only show units, tokens and GPU hours; no model is loaded")
    add(
        "--tflops",
        type=float,
        default=100.0,
        metavar="X",
        help="10^12 operations per second that a GPU achieves, for the GPU hours of --dry_run (default: %(default)s)",
    )


def _carry_out(args: argparse.Namespace) -> None:
    from lm_eval_leakage.jobs.estimates import check_early
    from lm_eval_leakage.jobs.plan import read_plan

    plan = read_plan(args.what[0], args.output_path)
    only_warnings()
    check_early(plan)
    from lm_eval_leakage.jobs.driver import run_campaign  # seconds

    if args.dry_run:
        _dry_run(plan, args.tflops)
        return
    try:
        outcome = run_campaign(plan, engine=args.engine, address=args.address, say=note, watch=_bar(args))
    except KeyboardInterrupt:
        warn(f"interrupted: what is done is in {plan.output_path}; the same command goes on")
        raise
    _tell(outcome)


def _dry_run(plan: CampaignPlan, tflops: float) -> None:
    from lm_eval_leakage.jobs.estimates import as_text, checked, estimates

    note("reading the tasks ...")
    prepared = checked(plan)
    say(as_text(prepared, estimates(prepared, note), tflops))


def _bar(args: argparse.Namespace) -> Any:
    from lm_eval_leakage.jobs.driver import Watch

    return Watch() if args.quiet else CampaignBar()


def _tell(outcome: CampaignOutcome) -> None:
    for file in outcome.tables:
        note(f"written: {file}")
    say(f"{outcome.n_done} of {outcome.n_units} units are done")
    for attempt in outcome.failed[:FAILURES_NAMED]:
        warn(_failure(outcome, attempt))
    if (more := len(outcome.failed) - FAILURES_NAMED) > 0:
        warn(f"and {more} more failed; `lm-eval-leakage campaign status {outcome.folder.path}` lists them")
    if outcome.n_done < outcome.n_units:
        sys.exit(REFUSED)


def _failure(outcome: CampaignOutcome, attempt: Attempt) -> str:
    return f"failed: {attempt.unit.id}: {attempt.error} (log: {outcome.folder.log_of(attempt.unit)})"


def _status(path: Path) -> None:
    from lm_eval_leakage.jobs.driver import status_as_text
    from lm_eval_leakage.jobs.folder import CampaignFolder

    say(visible_lines(status_as_text(CampaignFolder(path))))


def visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def _verify(path: Path) -> None:
    from lm_eval_leakage.jobs.folder import CampaignFolder
    from lm_eval_leakage.jobs.verify import verify

    found = verify(CampaignFolder(path))
    say(f"{found.n_units} units with {found.n_files} files were compared, and the tables computed again from the logs")
    for sentence in found.found:
        warn(f"differs: {sentence}")
    if found.found:
        sys.exit(CONDITION_MET)
    say("nothing differs")
