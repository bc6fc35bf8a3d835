"""Carries out units of one model in this process: the model is loaded with the first one and kept for the next."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import open_log
from lm_eval_leakage.harness.models.question_requests import n_request_characters
from lm_eval_leakage.harness.models.request_tokens import tokens_of
from lm_eval_leakage.harness.models.time_left import Pace, TimeLeft
from lm_eval_leakage.harness.named_model import KeptModel, one_loaded_model
from lm_eval_leakage.harness.saved_run import Heard, run_saved
from lm_eval_leakage.harness.seams.registries import add_models
from lm_eval_leakage.harness.task_shelf import LoadedTask, TaskShelf
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.jobs.claims import Claim
from lm_eval_leakage.jobs.folder import STEP, UNIT_FILE, Attempt, CampaignFolder, now, read_json
from lm_eval_leakage.jobs.loaded_tasks import LoadedTasks
from lm_eval_leakage.jobs.manifest import IDENTITY_OF_UNIT, is_same_model, refuse_another, versions
from lm_eval_leakage.jobs.steps import ReadyUnit, Step
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.logs.run import IDENTITY
from lm_eval_leakage.results.formatting import count, duration
from lm_eval_leakage.texts import in_one_sentence

STREAMS = (1, 2)  # stdout and stderr, as descriptors
LOADS = 2  # of a model that cannot be loaded; then its units fail at once
TOKENISED = 32  # requests of a unit, from which the tokens of all are estimated
NOT_LOADED = "the model cannot be loaded"
TAKEN_OVER = "its worker was silent for so long that it was taken for lost, and publishes nothing"

logger = logging.getLogger(__name__)


@contextmanager
def written_to(log: Path) -> Iterator[None]:
    """Write both streams of the process to the end of `log` within the block.

    That includes what C libraries write, and messages from INFO on.
    """
    root = logging.getLogger()
    before, level, handlers = [os.dup(place) for place in STREAMS], root.level, root.handlers
    with open_log(log) as stream:
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
    """Prints what a worker does, where the user watches.

    quiet: whether progress bars are left out
    """

    say: Callable[[str], None]
    quiet: bool

    def narrated(self, ready: ReadyUnit, left: Sequence[ReadyUnit]) -> Heard:
        """Print which unit begins and, when its first requests are answered, how long it and the rest will take.

        left: the units of this command, in their order
        """
        place = [other.unit for other in left].index(ready.unit)
        step = ready.step
        self.say(f"\n[{place + 1}/{len(left)}] {step.task}: {step.what}, {ready.who.name}")
        is_of_orders = ready.unit.kind == FIRST_AUDIT  # other runs have too few requests to estimate from
        n_later = sum(later.step.n_tokens for later in left[place + 1 :]) if is_of_orders else 0
        time_left = TimeLeft(ready.work.n_characters, partial(self._tell, step, n_later))
        return lambda method, request: time_left.done(n_request_characters(request))

    def _tell(self, step: Step, n_later: int, pace: Pace) -> None:
        """Print how long the run and those after it will take.

        n_later: tokens of the later runs, whose time is estimated from this one; 0 if it is not
        """
        whole = ""
        if n_later and step.n_tokens:
            later = n_later * pace.seconds / (pace.share * step.n_tokens)
            whole = f", {duration(pace.left + later)} for the whole check"
        done = count(round(pace.share * step.n_requests))
        left = f"about {duration(pace.left)} left for this run{whole}"
        self.say(f"{done} of {count(step.n_requests)} requests took {duration(pace.seconds)}; {left}")


class UnitRunner(ExitStack):
    """Runs units of one model, as their files say. When it ends, the memory of the model is free.

    loaded: the model itself, if it is loaded already
    tasks: that are loaded in this process
    screen: None writes what happens meanwhile into the logs of the units; left: the units that are to be run
    """

    def __init__(
        self,
        folder: CampaignFolder,
        model: str,
        name: str,
        *,
        loaded: Any = None,
        tasks: LoadedTasks | None = None,
        screen: OnScreen | None = None,
        left: Sequence[ReadyUnit] = (),
    ) -> None:
        super().__init__()
        self._folder, self._model_key, self._worker, self._held = folder, model, name, loaded
        self._tasks, self._screen, self._left = tasks, screen, left
        self._kept: KeptModel | None = None
        self._not_loaded: list[str] = []

    def run(self, unit: Unit, claim: Claim) -> None:
        """Run a unit and record the attempt, which reports a failure. Raises only KeyboardInterrupt and, where the
        user looks on, OSError and what a model raises that cannot be loaded, since no other unit would fare better."""
        began, counter = time.monotonic(), _RequestCounter()
        with self._watched(unit):
            logger.info("%s: begun by %s at %s", unit.id, self._worker, now())
            error, result = self._tried(unit, counter)
            if claim.has_ended:  # whoever ended it has recorded that
                logger.warning("%s: %s", unit.id, TAKEN_OVER)
                return
            n_tokens = counter.n_tokens(self._kept.lm if self._kept else None)
            seconds = time.monotonic() - began
            attempt = Attempt(unit, error is None, seconds, counter.n, n_tokens, error, False, self._worker, now())
            if result is not None:
                ready, work = result
                self._folder.complete(unit, work, _facts_of(attempt, ready.step, work))
            self._folder.record(attempt)
            logger.info("%s: %s after %.1f seconds", unit.id, error or "done", seconds)

    def _watched(self, unit: Unit) -> AbstractContextManager[object]:
        if self._screen is None:
            return written_to(self._folder.log_of(unit))
        # progress bars go to stderr; log messages keep the stream that they were given
        return redirect_stderr(io.StringIO()) if self._screen.quiet else nullcontext()

    # ------------------------------------------------------------------ one attempt

    def _tried(self, unit: Unit, counter: _RequestCounter) -> tuple[str | None, tuple[ReadyUnit, Path] | None]:
        """Return what went wrong, in one sentence, or what was run and its folder; neither if an earlier attempt was
        complete."""
        if len(self._not_loaded) >= LOADS:
            return self._not_loaded[-1], None
        try:
            ready = self._folder.ready_unit(unit)
            if self._was_complete(ready):
                return None, None
            work = self._evaluated(ready, counter)
        except (Exception, SystemExit) as error:  # whatever a task, a backend or a driver of a GPU may raise
            if self._screen is not None and (
                isinstance(error, OSError) or not (self._kept and self._kept.lm is not None)
            ):
                raise
            reason = in_one_sentence(error)
            with open_log(self._folder.log_of(unit)) as log:
                traceback.print_exc(file=log)
        else:
            self._not_loaded.clear()
            return None, (ready, work)
        if self._kept is not None and self._kept.lm is None:
            reason = f"{NOT_LOADED}: {reason}"
            self._not_loaded.append(reason)
        self._kept = None
        self.close()  # what an error has left of the model may be broken, or hold the memory that was missing
        return reason, None

    def _evaluated(self, ready: ReadyUnit, counter: _RequestCounter) -> Path:
        """Return the folder of what a model has answered."""
        loaded, work = self._task_of(ready), self._folder.begin(ready.unit, ready.digest)
        who = replace(ready.who, loaded=self._held)
        if self._kept is None:
            refuse_another(self._folder, self._model_key, who.identity)
            self._kept = self.enter_context(one_loaded_model(self._held))
        if self._screen is not None:
            counter.narration = self._screen.narrated(ready, self._left)
        run_saved(who, loaded, ready.work.samples, work, self._kept, counter, ready.work.seed)
        return work

    def _task_of(self, ready: ReadyUnit) -> LoadedTask:
        """Return the task of a unit; raises ValueError if its rows are not those that were chosen from."""
        if self._tasks is None:  # seconds: imports the user's modules and builds the index of tasks
            add_models()
            for module in ready.imports:
                import_module(module)
            self._tasks = LoadedTasks(TaskShelf(ready.include_paths))
        work = ready.work
        loaded = self._tasks.take(work.task, work.metadata, work.num_fewshot)
        for task, digest in work.digests.items():
            if task not in loaded.leaves or loaded.digest(task) != digest:
                raise ValueError(
                    f"{task} has other rows or prompts here than when its questions were drawn; start the same "
                    "command again where its files are the same"
                )
        return loaded

    def _was_complete(self, ready: ReadyUnit) -> bool:
        """Return whether an earlier attempt at the same rows was killed after its last file was written: then nothing
        is asked again."""
        for work in self._folder.complete_works(ready.unit, ready.digest):
            identity = read_json(work / UNIT_FILE).get(IDENTITY_OF_UNIT) or {}
            if is_same_model(identity, replace(ready.who, loaded=self._held).identity):
                return self._folder.publish(ready.unit, work)
        return False


class _RequestCounter:
    """Counts the requests that the model answers."""

    def __init__(self) -> None:
        self.n, self.n_characters = 0, 0
        self.narration: Heard | None = None
        self._some: list[tuple[str, Sequence[Any]]] = []

    def __call__(self, method: str, request: Sequence[Any]) -> None:
        self.n += 1
        self.n_characters += n_request_characters(request)
        if len(self._some) < TOKENISED:
            self._some.append((method, request))
        if self.narration is not None:
            self.narration(method, request)

    def n_tokens(self, lm: Any) -> int:
        """Return the tokens in the texts of all requests, estimated from those of some.

        Without a tokenizer, four bytes are a token.
        """
        read = sum(n_request_characters(request) for _, request in self._some)
        if not read:
            return 0
        try:
            tokens = sum(len(tokens_of(lm, method, [request])[0]) for method, request in self._some)
        except Exception:  # a tokenizer's own code may raise anything; the estimate is for the user's eyes
            tokens = read // 4
        return round(self.n_characters * tokens / read)


def _facts_of(attempt: Attempt, step: Step, work: Path) -> dict[str, Any]:
    """Return what a complete unit records of itself: its attempt, what it was to do, its model, its worker's versions.

    work: the unit's folder
    """
    results: dict[str, Any] = next((json.loads(file.read_bytes()) for file in work.rglob("results_*.json")), {})
    return {
        "attempt": attempt.as_record,
        STEP: step.as_record,
        IDENTITY_OF_UNIT: results.get(IDENTITY) or {},
        "versions": versions(),
    }
