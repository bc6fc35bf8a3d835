"""The check of one model in this process: plan, run what is missing, first of the model, then of the reference."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_leakage.files import sole_use
from lm_eval_leakage.harness.models.announced import Pace, TimeLeft
from lm_eval_leakage.harness.models.question_requests import n_characters
from lm_eval_leakage.harness.preflight import warn_if_one_at_a_time
from lm_eval_leakage.harness.saved_run import Heard, one_loaded_model, run_saved
from lm_eval_leakage.harness.seams.patching import unforeseen
from lm_eval_leakage.jobs.estimates import check_early
from lm_eval_leakage.jobs.folder import MANIFEST
from lm_eval_leakage.jobs.plan import N_QUESTIONS, Plan, check_plan
from lm_eval_leakage.jobs.planning import ORDERS_RUN, CheckJob, PlannedStep
from lm_eval_leakage.results.formatting import count, duration

if TYPE_CHECKING:
    from lm_eval_leakage.jobs.outcome import CheckOutcome


TellUser = Callable[[str], None]


def carry_out(
    jobs: Sequence[CheckJob], say: TellUser, *, quiet: bool = False
) -> tuple[list[Path], dict[PlannedStep, str]]:
    """Runs and saves each job; returns the results files, and why others failed, by their steps. A run that was killed
    is asked again from its saved answers; complete ones are no longer among the jobs.

    Raises what a model raises that cannot be loaded, and any OSError: no other job would fare better.
    """
    files, failed = list[Path](), dict[PlannedStep, str]()
    with _without_bars() if quiet else nullcontext(), ExitStack() as stack:
        kept, loaded = None, None
        for place, job in enumerate(jobs):
            say(f"\n[{place + 1}/{len(jobs)}] {job.step.task}: {job.step.what}, {job.who.name}")
            if kept is None or job.who != loaded:
                stack.close()
                kept, loaded = stack.enter_context(one_loaded_model()), job.who
            later = sum(after.step.n_tokens for after in jobs[place + 1 :])
            time_left = TimeLeft(job.n_characters, _teller(job, later, say))
            try:
                file = run_saved(job.who, job.loaded, job.samples, job.output, kept, _counting(time_left), job.seed)
            except OSError:
                raise
            except Exception as error:  # whatever a task or a backend may raise
                if not kept.models:
                    raise
                failed[job.step] = unforeseen(error)
                kept = None  # what the error has left of the model may be broken
            else:
                files += [file] if file else []
    return files, failed


def _counting(time_left: TimeLeft) -> Heard:
    return lambda method, request: time_left.done(n_characters(request))


def _teller(job: CheckJob, n_later: int, say: TellUser) -> Callable[[Pace], None]:
    """n_later: tokens of the later runs. Their time is estimated from option orders alone, since other runs have too
    few requests to tell."""

    def tell(pace: Pace) -> None:
        step, whole = job.step, ""
        if step.what == ORDERS_RUN and n_later and step.n_tokens:
            later = n_later * pace.seconds / (pace.share * step.n_tokens)
            whole = f", {duration(pace.left + later)} for the whole check"
        done = count(round(pace.share * step.n_requests))
        left = f"about {duration(pace.left)} left for this run{whole}"
        say(f"{done} of {count(step.n_requests)} requests took {duration(pace.seconds)}; {left}")

    return tell


@contextmanager
def _without_bars() -> Iterator[None]:
    """Progress bars go to stderr; log messages keep the stream that they were given."""
    with redirect_stderr(io.StringIO()):
        yield


def run_check(settings: Plan, say: Callable[[str], None]) -> CheckOutcome:
    """Says what it does; ends with the outcome, which is also written.

    Raises ValueError or OSError, before a model is loaded where that is possible, for what the user has to change.
    """
    check_early(settings)
    warn_if_one_at_a_time(settings.models[0].model, settings.models[0].model_args)
    with sole_use(settings.output_path):
        return _run_check(settings, say)


def _run_check(settings: Plan, say: Callable[[str], None]) -> CheckOutcome:
    from lm_eval_leakage.jobs.outcome import CheckOutcome, conclude, read_looks
    from lm_eval_leakage.jobs.planning import plan_check

    if (settings.output_path / MANIFEST).exists():
        raise ValueError(f"{settings.output_path} has what workers of an engine did; give another output_path")
    read_looks(settings.output_path)  # before hours of asking
    planned = plan_check(settings, say)
    say(planned.plan.as_text)
    if settings.dry_run:
        return CheckOutcome((), (), planned.plan)
    for told in planned.unlike:
        say(f"note: {told}")
    new, failed = carry_out(planned.jobs, say, quiet=settings.quiet)
    files = {
        room: [*there, *(file for file in new if file.is_relative_to(settings.output_path / room))]
        for room, there in planned.files.items()
    }
    unfinished = tuple(f"{step.task}: {step.what}: {why}" for step, why in failed.items())
    without_orders = {step.task: f"its audit failed: {failed[step]}" for step in failed if step.what == ORDERS_RUN}
    ended = replace(planned, unjudged={**planned.unjudged, **without_orders})
    return replace(conclude(settings, ended, files), unfinished=unfinished)


def check(
    model: str = "hf",
    model_args: str | Mapping[str, Any] | None = None,
    tasks: str | Sequence[str] | None = None,
    *,
    config: str | Path | None = None,
    runs: str | Path | Sequence[str | Path] = (),
    reference: str | Path | Mapping[str, Any] | None = None,
    unseen: str | Path | None = None,
    orders: str | None = None,
    questions: int | str = N_QUESTIONS,
    seed: int = 0,
    output_path: str | Path = "leakage",
    fail_on: str | None = None,
    allow_untold: bool = False,
    batch_size: int | str | None = None,
    device: str | None = None,
    include_path: str | Path | None = None,
    apply_chat_template: bool | str = False,
    dry_run: bool = False,
    say: Callable[[str], None] | None = None,
) -> CheckOutcome:
    """Checks a model for leakage of benchmarks: runs what is missing and returns one verdict per task.

    Parameters are those of the command `lm-eval-leakage check`: model, model_args, tasks as for `lm_eval run`, where
    a task may also be a file of plain questions. Runs, page and verdicts are written into `output_path`; calling it
    again continues where it was killed.

    say: called with what the command would print meanwhile, such as `print`; by default nothing is printed

    Raises ValueError, in one sentence, for what the caller has to change.
    """
    told = dict(locals())
    given = {name: value for name, value in told.items() if name not in ("config", "say")}
    plan = check_plan(given, config)
    if not plan.is_here:
        raise ValueError("check() is for one model in this process; give other plans to jobs.driver.run_campaign")
    return run_check(plan.changed(quiet=say is None), say or _silent)


def _silent(text: str) -> None:
    """Prints nothing."""
