"""Audits by `lm_eval run` that are killed, starved of disk, run twice at once, or given models that misbehave."""

from __future__ import annotations

import json
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lm_eval.evaluator
from lm_eval._cli import HarnessCLI
from lm_eval.loggers import EvaluationTracker, evaluation_tracker
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.logs.answer_store import AnswerStore
from tests.faults.children import KILLED, Ended, kill_at
from tests.faults.tally import Tally, attack
from tests.faults.weighed import ANSWERS_KEPT, NAME, Place, Weighed, killed

TASK = "fresh_leakage_perm"
LIMITS = (0, 4_000, 40_000, 60_000, 200_000, 400_000, 1_000_000)  # bytes of a file
Lines = Sequence[Mapping[str, Any]]


def prepare() -> None:
    """The harness without its index of 14,000 tasks, which takes 11 seconds."""
    original = TaskManager.__init__

    def with_ours(
        self: Any, verbosity: Any = None, include_path: Any = None, include_defaults: bool = True, metadata: Any = None
    ) -> None:
        included = include_path if isinstance(include_path, list) else [include_path] if include_path else []
        original(self, verbosity, list(dict.fromkeys([task_configs_path(), *included])), False, metadata)

    TaskManager.__init__ = with_ours
    lm_eval.evaluator.add_env_info = lambda storage: None  # asks a dozen programs about the machine


class Audit:
    """The audit of one task in a folder whose output is removed for each try, and what an undisturbed one says."""

    def __init__(self, folder: Path, tally: Tally) -> None:
        self.place, self.tally = Place(folder), tally
        ended = self.run()
        assert ended.code == 0, ended.output[-2000:]
        self.right, self.n_requests = self.samples(), self.place.n_asked()

    def run(self, **how: Any) -> Ended:
        words = ["run", "--model", NAME, "--model_args", f"pretrained={self.place.model}", "--tasks", TASK]
        words += ["--limit", "30", "--log_samples", "--output_path", str(self.place.out)]

        def run() -> None:
            cli = HarnessCLI()
            cli.execute(cli.parse_args())

        return self.place.run(["lm_eval", *words], run, **how)

    def samples(self) -> Lines:
        """Return the samples of the newest run."""
        logs = sorted(self.place.out.rglob(f"samples_{TASK}_*.jsonl"))
        return [json.loads(line) for line in logs[-1].read_text(encoding="utf-8").splitlines()] if logs else []

    def again(self) -> None:
        self.place.without_output()
        self.place.notes.unlink(missing_ok=True)

    def finish(self, note: str, n_kills: int = 0) -> None:
        """Runs to the end and counts what is amiss: each kill may lose the answers that were not yet kept."""
        ended = self.run()
        if ended.code != 0:
            self.tally.record(f"{note}: the command does not go on ({ended.output[-300:]})", lost=1)
            return
        notes = self.place.notes.read_text().splitlines()
        n_again = len(notes) - len(set(notes)) - n_kills * ANSWERS_KEPT
        self.tally.record(f"{note}: answers were asked again", lost=max(0, n_again))
        self.compare(self.samples(), note)

    def compare(self, lines: Lines, note: str) -> None:
        counts = Counter((line["doc_hash"], line["filter"]) for line in lines)
        self.tally.record(f"{note}: questions stand twice", doubled=sum(n - 1 for n in counts.values()))
        self.tally.record(f"{note}: samples differ", wrong=list(lines) != list(self.right))


@attack("kill of an audit at random", 30, 1)
def random_kills(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Each audit is killed up to three times, at any request."""
    audit = Audit(folder, tally)
    while tally.tries < tries:
        audit.again()
        n_kills = 0
        for _ in range(rng.randint(1, 3)):
            n_kills += audit.run(at={rng.randrange(audit.n_requests): killed}).code == KILLED
        tally.tries += n_kills
        audit.finish(f"random kill {tally.tries}", n_kills)


AIMS: Sequence[tuple[str, Any, str, tuple[int, ...]]] = (
    ("as answers are written", AnswerStore, "flush", (1, 2, 3, 5)),
    ("when results are saved", EvaluationTracker, "save_results_aggregated", (1,)),
    ("when samples are saved", EvaluationTracker, "save_results_samples", (1,)),
    ("in the middle of saving samples", evaluation_tracker, "sanitize_list", (50,)),
    ("when the store is made", AnswerStore, "_create", (1,)),
    ("when the store is closed", AnswerStore, "close", (1,)),
    ("as an answer comes", AnswerStore, "add", (1, 100, 500)),
)


@attack("kill of an audit, aimed", 100, 1)
def aimed_kills(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    """An audit is killed before and after certain calls of each place of AIMS."""
    audit = Audit(folder, tally)
    aims = [(*aim[:3], call, after) for aim in AIMS for call in aim[3] for after in (False, True)]
    for name, owner, method, call, after in aims[:tries]:
        audit.again()
        with kill_at(owner, method, call, after=after):
            ended = audit.run()
        tally.tries += int(ended.code == KILLED)
        audit.finish(f"kill {name}, call {call}", 1)


@attack("full disk under an audit", 7, 1)
def audit_full_disk(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    """A run whose files cannot grow beyond a limit says so and exits with an error; with room it goes on."""
    audit = Audit(folder, tally)
    for limit in LIMITS[:tries]:
        audit.again()
        ended = audit.run(size_limit=limit)
        tally.tries += 1
        audit.place.notes.unlink(missing_ok=True)  # it was cut, too
        is_whole = ended.code == 0 and audit.samples() == audit.right
        tally.record(f"limit {limit}: exit {ended.code}, not whole", wrong=ended.code == 0 and not is_whole)
        audit.finish(f"after a full disk of {limit}")


@attack("two audits in one folder at once", 5, 1)
def two_audits_at_once(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    audit = Audit(folder, tally)
    for number in range(tries):
        audit.again()
        pid = os.fork()
        if pid == 0:
            audit.place.log = folder / "other"
            os._exit(int(audit.run().code != 0))
        ended = audit.run()
        _, status = os.waitpid(pid, 0)
        tally.tries += 1
        ends = f"exit {ended.code} and {status}: {ended.output[-400:]}"
        tally.record(f"two at once {number}: {ends}", lost=ended.code != 0 or status != 0)
        for log in audit.place.out.rglob(f"samples_{TASK}_*.jsonl"):
            lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
            audit.compare(lines, f"two at once {number}")


# ---------------------------------------------------------------------- models that misbehave


def _spoilt(rng: random.Random) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """A way to give something else than the answers, drawn once, that depends on the request alone."""
    share, kind = rng.choice([0.0005, 0.01, 0.2]), rng.randrange(9)
    salt = rng.random()

    def spoil(answers: Sequence[Any], requests: Sequence[Any]) -> Any:
        bad = [random.Random(f"{salt}{request.args}").random() < share for request in requests]
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


@attack("model that misbehaves", 60, 1)
def misbehaving_models(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Answers of a misbehaving model that are not skipped with a reason are those of a sound model."""
    audit = Audit(folder, tally)
    for number in range(tries):
        audit.again()
        Weighed.spoil = staticmethod(_spoilt(rng))
        try:
            ended = audit.run()
        finally:
            Weighed.spoil = None
        tally.tries += 1
        samples = audit.samples()
        if ended.code != 0:
            note = f"model {number}: exit {ended.code} without a reason: {ended.output[-300:]}"
            tally.record(note, wrong="cannot" not in ended.output)
            continue
        tally.record(f"model {number}: questions are missing", wrong=len(samples) != len(audit.right))
        for mine, sound in zip(samples, audit.right, strict=False):
            is_right = mine["reason"] is not None or _same(mine["pvalue"], sound["pvalue"])
            tally.record(f"model {number}: a question is wrong in silence", wrong=not is_right)
