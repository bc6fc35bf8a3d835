"""Audits that are killed, starved of disk, run twice at once, or given models that misbehave."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import lm_eval.api.registry
import lm_eval.evaluator
from lm_eval._cli import HarnessCLI
from lm_eval.loggers import EvaluationTracker, evaluation_tracker
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.task_names import check_task_names
from lm_eval_leakage.logs import answer_store
from lm_eval_leakage.logs.answer_store import AnswerStore
from tests.fakes import FakeLM, by_hash
from tests.faults.children import KILLED, Ended, child, kill_at
from tests.faults.tally import Tally

TASK = "fresh_leakage_perm"
N_QUESTIONS = 30
PACE = 0.003  # seconds per answer, so that kills fall on all stages of a run
KEPT_WITHIN = 0.1  # seconds instead of two, so that a short run keeps as often as a long one
GRACE = 1.0  # seconds by which a busy machine may be late with what it keeps


class Paced(FakeLM):
    """A model that takes its time, reports every answer as backends do, and notes when it gave it."""

    pace = PACE
    notes = Path(os.devnull)
    spoil: Callable[[Sequence[Any], Sequence[Any]], Any] | None = None

    def __init__(self, pretrained: str = "a", **_: object) -> None:
        super().__init__(by_hash)
        self._notes = os.open(self.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def loglikelihood(self, requests: Sequence[Any]) -> Any:
        answers = []
        for request in requests:
            time.sleep(self.pace)
            answers += super().loglikelihood([request])
            os.write(self._notes, (json.dumps([time.time(), request.args]) + "\n").encode())
            if self.spoil is None:
                self.cache_hook.add_partial("loglikelihood", request.args, answers[-1])
        return answers if self.spoil is None else type(self).spoil(answers, requests)


def prepare() -> None:
    """The harness without its index of 14,000 tasks, which takes 11 seconds, and with the paced model."""
    original = TaskManager.__init__

    def with_ours(
        self: Any, verbosity: Any = None, include_path: Any = None, include_defaults: bool = True, metadata: Any = None
    ) -> None:
        included = include_path if isinstance(include_path, list) else [include_path] if include_path else []
        original(self, verbosity, list(dict.fromkeys([task_configs_path(), *included])), False, metadata)

    TaskManager.__init__ = with_ours
    check_task_names([TASK])  # children are forked from here and need not read the texts of 14,000 tasks again
    answer_store.SECONDS_AT_ONCE = KEPT_WITHIN
    lm_eval.api.registry.model_registry.register("paced", target=Paced)  # or our checks refuse the name
    lm_eval.evaluator.add_env_info = lambda storage: None  # asks a dozen programs about the machine


def command(output: Path, notes: Path) -> Callable[[], None]:
    """`lm_eval run` on TASK; the model notes what it answered."""
    arguments = ["lm_eval", "run", "--model", "paced", "--tasks", TASK, "--limit", str(N_QUESTIONS), "--log_samples"]
    arguments += ["--model_args", "pretrained=a", "--output_path", str(output)]

    def run() -> None:
        sys.argv, Paced.notes = arguments, notes
        cli = HarnessCLI()
        cli.execute(cli.parse_args())

    return run


def samples(output: Path) -> list[dict[str, Any]]:
    """Of the newest run, without what no two runs share."""
    logs = sorted(output.rglob(f"samples_{TASK}_*.jsonl"))
    return [json.loads(line) for line in logs[-1].read_text(encoding="utf-8").splitlines()] if logs else []


class Audit:
    """One folder's audit, and what an undisturbed one says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.output, self.notes = folder / "out", folder / "notes"

    def run(self, **how: Any) -> Ended:
        notes = Path(os.devnull) if "size_limit" in how else self.notes  # they would be cut too
        return child(command(self.output, notes), self.folder / "log", **how)

    def asked(self) -> list[tuple[float, str]]:
        if not self.notes.exists():
            return []
        lines = self.notes.read_text(encoding="utf-8").splitlines()
        return [(moment, json.dumps(arguments)) for moment, arguments in map(json.loads, lines)]

    def finish(self, tally: Tally, right: Sequence[Mapping[str, Any]], note: str, until: float | None = None) -> None:
        """Runs to the end and counts what is amiss. until: when the killed run ended."""
        before = self.asked()
        ended = self.run()
        if ended.code != 0:
            tally.found(f"{note}: the command does not go on ({ended.output[-300:]})", lost=1)
            return
        again = {text for _, text in self.asked()[len(before) :]}
        safe = {text for moment, text in before if until is None or moment < until - KEPT_WITHIN - GRACE}
        tally.found(f"{note}: answers were asked again", lost=len(safe & again))
        compare(tally, samples(self.output), right, note)


def compare(tally: Tally, found: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]], note: str) -> None:
    counts = Counter((line["doc_hash"], line["filter"]) for line in found)
    tally.found(f"{note}: questions stand twice", doubled=sum(count - 1 for count in counts.values()))
    tally.found(f"{note}: samples differ", wrong=int(list(found) != list(right)))


def undisturbed(folder: Path) -> tuple[list[dict[str, Any]], float]:
    """What is right, and the seconds that it takes."""
    audit = Audit(folder)
    ended = audit.run()
    assert ended.code == 0, ended.output[-2000:]
    return samples(audit.output), ended.seconds


def random_kills(folder: Path, tries: int, rng: random.Random, right: Any) -> Tally:
    """Each folder's audit is killed up to three times, at any moment."""
    tally = Tally("kill of an audit at random")
    expected, seconds = right
    for number in count():
        if tally.tries >= tries:
            break
        audit = Audit(folder / f"random_{number}")
        until = None
        for _ in range(rng.randint(1, 3)):
            ended = audit.run(kill_after=rng.uniform(0, 1.1 * seconds))
            if ended.code != KILLED:
                break
            tally.tries += 1
            until = ended.at
        audit.finish(tally, expected, f"random kill {tally.tries}", until)
    return tally


AIMS: Sequence[tuple[str, Any, str, tuple[int, ...]]] = (
    ("as answers are written", AnswerStore, "flush", (1, 2, 3, 5)),
    ("when results are saved", EvaluationTracker, "save_results_aggregated", (1,)),
    ("when samples are saved", EvaluationTracker, "save_results_samples", (1,)),
    ("in the middle of saving samples", evaluation_tracker, "sanitize_list", (50,)),
    ("when the store is made", AnswerStore, "_opened", (1,)),
    ("when the store is closed", AnswerStore, "close", (1,)),
    ("as an answer comes", AnswerStore, "add", (1, 100, 500)),
)


def aimed_kills(folder: Path, right: Any, tries: int) -> Tally:
    """Before and after certain calls of each place of AIMS."""
    tally = Tally("kill of an audit, aimed")
    expected, _ = right
    aims = [(*aim[:3], call, after) for aim in AIMS for call in aim[3] for after in (False, True)]
    for name, owner, method, call, after in aims[:tries]:
        audit = Audit(folder / f"aimed_{method}_{call}_{after}")
        with kill_at(owner, method, call, after=after):
            ended = audit.run()
        tally.tries += int(ended.code == KILLED)
        audit.finish(tally, expected, f"kill {name}, call {call}", ended.at)
    return tally


def full_disk(folder: Path, right: Any, limits: Sequence[int]) -> Tally:
    """A run whose files cannot grow beyond a limit says so and exits with an error; with room it goes on."""
    tally = Tally("full disk under an audit")
    expected, _ = right
    for limit in limits:
        audit = Audit(folder / f"disk_{limit}")
        ended = audit.run(size_limit=limit)
        tally.tries += 1
        whole = ended.code == 0 and samples(audit.output) == expected
        tally.found(f"limit {limit}: exit {ended.code}, not whole", wrong=int(ended.code == 0 and not whole))
        audit.finish(tally, expected, f"after a full disk of {limit}")
    return tally


def two_at_once(folder: Path, tries: int, right: Any) -> Tally:
    tally = Tally("two audits in one folder at once")
    expected, _ = right
    for number in range(tries):
        audit = Audit(folder / f"two_{number}")
        pid = os.fork()
        if pid == 0:
            other = child(command(audit.output, audit.notes), audit.folder / "other")
            os._exit(int(other.code != 0))
        ended = audit.run()
        _, status = os.waitpid(pid, 0)
        tally.tries += 1
        ends = f"exit {ended.code} and {status}: {ended.output[-400:]}"
        tally.found(f"two at once {number}: {ends}", lost=int(ended.code != 0 or status != 0))
        for log in audit.output.rglob(f"samples_{TASK}_*.jsonl"):
            lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
            compare(tally, lines, expected, f"two at once {number}")
    return tally


# ---------------------------------------------------------------------- models that misbehave


def _spoilt(rng: random.Random) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """A way to give something else than the answers, drawn once, that depends on the request alone."""
    share, kind = rng.choice([0.0005, 0.01, 0.2]), rng.randrange(9)
    salt = rng.random()

    def is_bad(request: Any) -> bool:
        return random.Random(f"{salt}{request.args}").random() < share

    def spoil(answers: Sequence[Any], requests: Sequence[Any]) -> Any:
        bad = [is_bad(request) for request in requests]
        if kind == 0:
            return [answer for answer, drop in zip(answers, bad, strict=True) if not drop]
        if kind == 1 and any(bad):
            return [*answers, answers[0]]
        if kind == 2 and any(bad):
            return None
        if kind == 3 and any(bad):
            raise ArithmeticError("cannot")
        other = [None, "text", (), (float("nan"), False), (float("-inf"), True), ("-1", 0), [1, 2, 3]][kind % 7]
        return [other if drop else answer for answer, drop in zip(answers, bad, strict=True)]

    return spoil


def _same(pvalue: float | None, other: float | None) -> bool:
    """Up to rounding, which depends on how many questions are judged together."""
    return pvalue == other if pvalue is None or other is None else math.isclose(pvalue, other, rel_tol=1e-12)


def misbehaving_models(folder: Path, tries: int, rng: random.Random, right: Any) -> Tally:
    """What is not skipped with a reason is what a sound model gives."""
    tally = Tally("model that misbehaves")
    expected, _ = right
    for number in range(tries):
        audit = Audit(folder / f"model_{number}")
        Paced.spoil, Paced.pace = staticmethod(_spoilt(rng)), 0.0
        try:
            ended = audit.run()
        finally:
            Paced.spoil, Paced.pace = None, PACE
        tally.tries += 1
        found = samples(audit.output)
        if ended.code != 0:
            tally.found(f"model {number}: exit {ended.code} without a reason", wrong=int("cannot" not in ended.output))
            continue
        tally.found(f"model {number}: questions are missing", wrong=int(len(found) != len(expected)))
        for mine, sound in zip(found, expected, strict=False):
            known = mine["reason"] is not None or _same(mine["pvalue"], sound["pvalue"])
            tally.found(f"model {number}: a question is wrong in silence", wrong=int(not known))
    return tally
