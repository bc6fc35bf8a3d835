"""Carries out units of one model in this process: the model is loaded with the first one and kept for the next."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from lm_eval_leakage.files import atomic_remove, atomic_write, log_to_add_to, remove_parts
from lm_eval_leakage.harness.models.question_requests import n_characters
from lm_eval_leakage.harness.models.request_tokens import tokens_of
from lm_eval_leakage.harness.saved_run import one_loaded_model, run_saved
from lm_eval_leakage.harness.seams.backends import KeptModels
from lm_eval_leakage.harness.seams.registries import add_models
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.jobs.engines import Begun, Tell, now, too_long
from lm_eval_leakage.jobs.folder import UNIT_FILE, Attempt, CampaignFolder, UnitQueue, read_json
from lm_eval_leakage.jobs.manifest import (
    IDENTITY_OF_UNIT,
    Rows,
    UnitQuestions,
    differs,
    facts_of,
    refuse_another,
)
from lm_eval_leakage.jobs.plan import Plan, Unit
from lm_eval_leakage.jobs.planning import named_model
from lm_eval_leakage.logs.answer_store import FOLDER as ANSWERS
from lm_eval_leakage.texts import as_json, in_one_sentence

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


class TimeIsUp(BaseException):
    """An attempt took longer than the plan allows. No Exception, so that no task or backend catches it."""


@contextmanager
def time_limit(minutes: float | None) -> Iterator[None]:
    """Raises TimeIsUp in the block when the time is up. Works in the main thread only, and between instructions of
    Python: engines also have a limit, after which they end the worker."""
    if minutes is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp(too_long(minutes))

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class UnitWorker(ExitStack):
    """A context manager; when it ends, the memory of the model is free."""

    def __init__(self, plan: Plan, model_name: str, folder: CampaignFolder, worker_name: str) -> None:
        super().__init__()
        self._plan, self._planned, self._folder, self._worker = plan, plan.model(model_name), folder, worker_name
        self._who = named_model(self._planned)
        self._kept: KeptModels | None = None
        self._questions: UnitQuestions | None = None
        self._rows: Rows = {}
        self._not_loaded: list[str] = []

    def run(self, unit: Unit) -> Attempt:
        """Runs a unit, unless it is done, and records the attempt. A failure is told by the attempt: only
        KeyboardInterrupt is raised."""
        begun, heard = time.monotonic(), _Heard()
        with written_to(self._folder.log_of(unit)), self._folder.sole_use(unit):
            logger.info("%s: begun by %s at %s", unit.id, self._worker, now())
            error = None
            if not (self._folder.done(unit) or self._was_complete(unit)):
                error = self._tried(unit, heard)
            n_tokens = heard.n_tokens(next(iter(self._kept.models.values()), None) if self._kept else None)
            seconds = time.monotonic() - begun
            attempt = Attempt(unit, error is None, seconds, heard.n, n_tokens, error, False, self._worker, now())
            if attempt.ok and not self._folder.done(unit):
                self._publish(attempt)
            self._folder.record(attempt)
            logger.info("%s: %s after %.1f seconds", unit.id, error or "done", seconds)
        return attempt

    # ------------------------------------------------------------------ one attempt

    def _tried(self, unit: Unit, heard: _Heard) -> str | None:
        """What went wrong, in one sentence; None if nothing did."""
        if len(self._not_loaded) >= LOADS:
            return self._not_loaded[-1]
        try:
            with time_limit(self._plan.minutes):
                self._evaluate(unit, heard)
        except TimeIsUp as error:
            told = str(error)
        except (Exception, SystemExit) as error:  # whatever a task, a backend or a driver of a GPU may raise
            told = in_one_sentence(error)
            logger.error("%s", told, exc_info=True)
        else:
            self._not_loaded.clear()
            return None
        if self._kept is not None and not self._kept.models:
            told = f"{NOT_LOADED}: {told}"
            self._not_loaded.append(told)
        self._kept = None
        self.close()  # what an error has left of the model may be broken, or hold the memory that was missing
        return told

    def _evaluate(self, unit: Unit, heard: _Heard) -> None:
        if self._questions is None:  # seconds: imports the user's modules and builds the index of tasks
            add_models()
            for module in self._plan.imports:
                import_module(module)
            self._questions = UnitQuestions(self._plan, self._planned, TaskShelf(self._plan.include_paths))
        loaded, samples = self._questions.of(unit)
        self._rows = self._questions.data_of(loaded)
        work = self._folder.work_of(unit)
        # of an attempt that was killed while it saved them; its kept answers remain
        for file in [*work.glob(UNIT_FILE), *work.rglob("results_*.json"), *work.rglob("samples_*.jsonl")]:
            file.unlink()
        if self._kept is None:
            refuse_another(self._folder, unit.model, self._who.identity)
            self._kept = self.enter_context(one_loaded_model())
        seed = None if self._plan.questions is None else self._plan.seed
        run_saved(self._who, loaded, samples, work, self._kept, heard, seed)

    # ------------------------------------------------------------------ complete units

    def _was_complete(self, unit: Unit) -> bool:
        """Whether an earlier attempt was killed after its last file was written; then nothing is asked again."""
        told = read_json(self._folder.work_of(unit) / UNIT_FILE)
        is_same = not differs(told.get(IDENTITY_OF_UNIT) or {}, self._who.identity)
        return is_same and self._published(unit)

    def _publish(self, attempt: Attempt) -> None:
        """The unit's file is written last: from then on the unit is complete, and its kept answers are not needed."""
        work = self._folder.work_of(attempt.unit)
        atomic_write(work / UNIT_FILE, as_json(facts_of(attempt, work, self._rows), indent=1) + "\n")
        self._published(attempt.unit)

    def _published(self, unit: Unit) -> bool:
        """A kill may have left a part of the answers that were being removed, which is no file of the unit."""
        work = self._folder.work_of(unit)
        atomic_remove(work / ANSWERS)
        remove_parts(work)
        return self._folder.publish(unit)


class _Heard:
    """Counts the requests that the model answers."""

    def __init__(self) -> None:
        self.n, self.n_characters = 0, 0
        self._some: list[tuple[str, Sequence[Any]]] = []

    def __call__(self, method: str, request: Sequence[Any]) -> None:
        self.n += 1
        self.n_characters += n_characters(request)
        if len(self._some) < TOKENISED:
            self._some.append((method, request))

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

    def __init__(self, plan: Plan, folder: CampaignFolder, address: str | None = None) -> None:
        if (plan.workers or 1) > 1:
            raise ValueError(
                f"workers is {plan.workers}, but --engine inline is this one process; leave it out, or "
                "choose another engine"
            )
        self._plan, self._folder = plan, folder

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        queue = UnitQueue(units, self._plan)
        for model in queue.models_with_work():
            name = f"here-{model}"
            with UnitWorker(self._plan, model, self._folder, name) as worker:
                while (unit := queue.take(model)) is not None:
                    begun(unit, name)
                    attempt = worker.run(unit)
                    queue.returned(attempt)
                    tell(attempt)
