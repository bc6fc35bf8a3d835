"""Carries out units of one model in this process: the model is loaded with the first one and kept for the next."""

from __future__ import annotations

import io
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import log_to_add_to
from lm_eval_leakage.harness.models.question_requests import n_characters
from lm_eval_leakage.harness.models.request_tokens import Pace, TimeLeft, tokens_of
from lm_eval_leakage.harness.saved_run import Heard, KeptModel, one_loaded_model, run_saved
from lm_eval_leakage.harness.seams.registries import add_models
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.jobs.engines import Begun, Tell, now
from lm_eval_leakage.jobs.folder import UNIT_FILE, Attempt, CampaignFolder, UnitQueue, read_json
from lm_eval_leakage.jobs.manifest import IDENTITY_OF_UNIT, differs, facts_of, refuse_another
from lm_eval_leakage.jobs.plan import Plan, Unit
from lm_eval_leakage.jobs.planning import ORDERS_RUN, Planned, PlannedStep, Planner, UnitJob
from lm_eval_leakage.results.formatting import count, duration
from lm_eval_leakage.texts import in_one_sentence

STREAMS = (1, 2)  # stdout and stderr, as descriptors
LOADS = 2  # of a model that cannot be loaded; then its units fail at once
TOKENISED = 32  # requests of a unit, from which the tokens of all are estimated
NOT_LOADED = "the model cannot be loaded"

logger = logging.getLogger(__name__)


@contextmanager
def written_to(log: Path) -> Iterator[None]:
    """Within the block, both streams of the process go to the end of `log`, what C libraries write included, and so do
    messages from INFO on."""
    root = logging.getLogger()
    before, level, handlers = [os.dup(place) for place in STREAMS], root.level, root.handlers
    with log_to_add_to(log) as stream:
        _flush()
        for place in STREAMS:
            os.dup2(stream.fileno(), place)
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s [%(name)s] %(message)s"))
        root.handlers = [handler]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            _flush()
            root.handlers = handlers
            root.setLevel(level)
            for kept, place in zip(before, STREAMS, strict=True):
                os.dup2(kept, place)
                os.close(kept)


def _flush() -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()


@dataclass(frozen=True)
class OnScreen:
    """What a worker needs that is this process, whose user looks on.

    planned: what there is to do for the units; left: those that are to be done
    say: prints
    """

    planned: Planned
    left: Sequence[Unit]
    say: Callable[[str], None]
    quiet: bool

    def narrated(self, step: PlannedStep, job: UnitJob) -> Heard:
        """Says which run begins and, when its first requests are answered, how long it and the rest will take."""
        steps = [self.planned[unit] for unit in self.left]
        place = steps.index(step)
        self.say(f"\n[{place + 1}/{len(steps)}] {step.task}: {step.what}, {job.who.name}")
        later = sum(after.n_tokens for after in steps[place + 1 :])
        time_left = TimeLeft(job.size.n_characters, partial(self._tell, step, later))
        return lambda method, request: time_left.done(n_characters(request))

    def _tell(self, step: PlannedStep, n_later: int, pace: Pace) -> None:
        """n_later: tokens of the later runs. Their time is estimated from option orders alone, since other runs have
        too few requests to tell."""
        whole = ""
        if step.what == ORDERS_RUN and n_later and step.n_tokens:
            later = n_later * pace.seconds / (pace.share * step.n_tokens)
            whole = f", {duration(pace.left + later)} for the whole check"
        done = count(round(pace.share * step.n_requests))
        left = f"about {duration(pace.left)} left for this run{whole}"
        self.say(f"{done} of {count(step.n_requests)} requests took {duration(pace.seconds)}; {left}")


class UnitWorker(ExitStack):
    """A context manager; when it ends, the memory of the model is free.

    screen: None writes what happens meanwhile into the logs of the units
    """

    def __init__(
        self, plan: Plan, model: str, folder: CampaignFolder, worker_name: str, screen: OnScreen | None = None
    ) -> None:
        super().__init__()
        self._plan, self._folder, self._worker, self._screen = plan, folder, worker_name, screen
        self._who = plan.model(model).who
        self._kept: KeptModel | None = None
        self._planner: Planner | None = None
        self._not_loaded: list[str] = []

    def run(self, unit: Unit) -> Attempt:
        """Runs a unit, unless it is done, and records the attempt. A failure is told by the attempt: only
        KeyboardInterrupt is raised, and where the user looks on, OSError and what a model raises that cannot be
        loaded, since no other unit would fare better."""
        begun, heard = time.monotonic(), _Heard()
        with self._watched(unit), self._folder.sole_use(unit):
            logger.info("%s: begun by %s at %s", unit.id, self._worker, now())
            error, step = None, None
            if not (self._folder.done(unit) or self._was_complete(unit)):
                error, step = self._tried(unit, heard)
            n_tokens = heard.n_tokens(self._kept.lm if self._kept else None)
            seconds = time.monotonic() - begun
            attempt = Attempt(unit, error is None, seconds, heard.n, n_tokens, error, False, self._worker, now())
            if step is not None:
                self._folder.complete(unit, facts_of(attempt, step, self._folder.work_of(unit)))
            self._folder.record(attempt)
            logger.info("%s: %s after %.1f seconds", unit.id, error or "done", seconds)
        return attempt

    def _watched(self, unit: Unit) -> AbstractContextManager[object]:
        if self._screen is None:
            return written_to(self._folder.log_of(unit))
        # progress bars go to stderr; log messages keep the stream that they were given
        return redirect_stderr(io.StringIO()) if self._screen.quiet else nullcontext()

    # ------------------------------------------------------------------ one attempt

    def _tried(self, unit: Unit, heard: _Heard) -> tuple[str | None, PlannedStep | None]:
        """What went wrong, in one sentence, or what was done."""
        if len(self._not_loaded) >= LOADS:
            return self._not_loaded[-1], None
        try:
            step = self._evaluated(unit, heard)
        except (Exception, SystemExit) as error:  # whatever a task, a backend or a driver of a GPU may raise
            if self._screen is not None and (
                isinstance(error, OSError) or not (self._kept and self._kept.lm is not None)
            ):
                raise
            told = in_one_sentence(error)
            with log_to_add_to(self._folder.log_of(unit)) as log:
                traceback.print_exc(file=log)
        else:
            self._not_loaded.clear()
            return None, step
        if self._kept is not None and self._kept.lm is None:
            told = f"{NOT_LOADED}: {told}"
            self._not_loaded.append(told)
        self._kept = None
        self.close()  # what an error has left of the model may be broken, or hold the memory that was missing
        return told, None

    def _evaluated(self, unit: Unit, heard: _Heard) -> PlannedStep:
        step, work = self._planned(unit), self._folder.begun(unit)
        job = step.job
        if job is None:
            return step
        if self._kept is None:
            refuse_another(self._folder, unit.model, self._who.identity)
            self._kept = self.enter_context(one_loaded_model(self._who.loaded))
        if self._screen is not None:
            heard.also = self._screen.narrated(step, job)
        run_saved(job.who, job.loaded, job.samples, work, self._kept, heard, job.seed)
        return step

    def _planned(self, unit: Unit) -> PlannedStep:
        if self._screen is not None and unit in self._screen.planned:
            return self._screen.planned[unit]
        if self._planner is None:  # seconds: imports the user's modules and builds the index of tasks
            add_models()
            for module in self._plan.imports:
                import_module(module)
            self._planner = Planner(self._plan, TaskShelf(self._plan.include_paths))
        return self._planner.step(unit)

    def _was_complete(self, unit: Unit) -> bool:
        """Whether an earlier attempt was killed after its last file was written; then nothing is asked again. Not if
        the plan may have changed since then: the files may be of another draw, whose answers are kept."""
        if self._screen is not None:
            return False
        told = read_json(self._folder.work_of(unit) / UNIT_FILE)
        is_same = not differs(told.get(IDENTITY_OF_UNIT) or {}, self._who.identity)
        return is_same and self._folder.publish(unit)


class _Heard:
    """Counts the requests that the model answers."""

    def __init__(self) -> None:
        self.n, self.n_characters = 0, 0
        self.also: Heard | None = None
        self._some: list[tuple[str, Sequence[Any]]] = []

    def __call__(self, method: str, request: Sequence[Any]) -> None:
        self.n += 1
        self.n_characters += n_characters(request)
        if len(self._some) < TOKENISED:
            self._some.append((method, request))
        if self.also is not None:
            self.also(method, request)

    def n_tokens(self, lm: Any) -> int:
        """In the texts of all requests, by the tokens of some; four bytes for a token without a tokenizer."""
        read = sum(n_characters(request) for _, request in self._some)
        if not read:
            return 0
        try:
            tokens = sum(len(tokens_of(lm, method, [request])[0]) for method, request in self._some)
        except Exception:  # a tokenizer's own code may raise anything; the estimate is for the user's eyes
            tokens = read // 4
        return round(self.n_characters * tokens / read)


class InlineEngine:
    """In this process, one model after the other, each loaded once."""

    description = "in this process"

    def __init__(
        self, plan: Plan, folder: CampaignFolder, address: str | None = None, screen: OnScreen | None = None
    ) -> None:
        for name, most in (("workers", 1), ("minutes", 0)):
            if (given := getattr(plan, name) or most) > most:
                raise ValueError(
                    f"{name} is {given:g}, but --engine inline is this one process; leave it out, or choose another "
                    "engine"
                )
        self._plan, self._folder, self._screen = plan, folder, screen

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        queue = UnitQueue(units, self._plan)
        for model in queue.models_with_work():
            name = f"here-{model}"
            with UnitWorker(self._plan, model, self._folder, name, self._screen) as worker:
                while (unit := queue.take(model)) is not None:
                    begun(unit, name)
                    attempt = worker.run(unit)
                    queue.returned(attempt)
                    tell(attempt)
