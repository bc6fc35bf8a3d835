"""Runs what a plan has found to be missing, the model loaded once, then the reference."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from itertools import groupby

from lm_eval_leakage.checking.check_plan import ORDERS_RUN
from lm_eval_leakage.checking.planning import CheckJob
from lm_eval_leakage.harness.running.saved_run import first_batch, one_loaded_model, run_saved
from lm_eval_leakage.results.formatting import count

TellUser = Callable[[str], None]


def carry_out(jobs: Sequence[CheckJob], say: TellUser, *, quiet: bool = False) -> None:
    """Runs and saves each job. A run that was killed is asked again from its saved answers; complete ones are no
    longer among the jobs."""
    numbered = list(enumerate(jobs))
    for who, own in groupby(numbered, key=lambda pair: pair[1].who):
        with one_loaded_model() as kept, _without_bars() if quiet else nullcontext():
            for place, job in own:
                say(f"\n[{place + 1}/{len(jobs)}] {job.step.task}: {job.step.what}, {who.name}")
                later = sum(after.step.n_tokens for after in jobs[place + 1 :])
                pace = first_batch(job.step.n_requests, _teller(job, later, say))
                run_saved(who, job.loaded, job.samples, job.output, kept, pace)


def _teller(job: CheckJob, n_later: int, say: TellUser) -> Callable[[int, float], None]:
    """n_later: tokens of the later runs. Their time is estimated from option orders alone, since other runs have too
    few requests to tell."""

    def tell(n: int, seconds: float) -> None:
        step = job.step
        left = (step.n_requests - n) * seconds / n
        whole = ""
        if step.what == ORDERS_RUN and n_later and step.n_tokens:
            later = n_later * seconds * step.n_requests / (n * step.n_tokens)
            whole = f", {_duration(left + later)} for the whole check"
        say(
            f"{count(n)} of {count(step.n_requests)} requests took {_duration(seconds)}; at most about "
            f"{_duration(left)} left for this run{whole}"
        )

    return tell


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def _without_bars() -> Iterator[None]:
    """Progress bars go to stderr; log messages keep the stream that they were given."""
    with redirect_stderr(io.StringIO()):
        yield
