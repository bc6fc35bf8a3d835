"""A model that `--model weighed` names, and a place with it and a benchmark, for whole checks and campaigns in forks.

Its answers depend on all that makes a model another one under the same name: files, arguments, and how it is asked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
import yaml
from lm_eval.api.registry import model_registry
from lm_eval.loggers import evaluation_tracker

from lm_eval_leakage import check, cli
from lm_eval_leakage.jobs import driver
from lm_eval_leakage.jobs.inline_engine import InlineEngine
from lm_eval_leakage.logs import answer_store
from tests.campaign.campaigns import SHAPE
from tests.checking.conftest import NamedFake, OptionOrders, normal, questions, written
from tests.faults.children import Ended, child

NAME = "weighed"
TEXT = "{{question}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:"
Docs = Sequence[dict[str, Any]]
DOCS = questions(40)
TRAINED = b"memory 4.0 "  # of the published orders, in standard deviations of the model's own preferences
WEIGHTS, TEMPLATE = "model.safetensors", "chat_template.jinja"
ANSWERS_KEPT = 16  # at once, instead of 16,384
OF_ACCURACY, OF_ORDERS = 4 * len(DOCS), 36 * len(DOCS)  # requests; choice confusion has some 400 more


class Weighed(NamedFake):
    """Answers by a digest of its files, its arguments and the text; with weights that say so it knows the published
    orders of DOCS. It notes each request where `notes` says.

    at: what happens before an answer, by its number; pace: seconds per answer
    spoil: makes something else of the answers to requests, of which the model then reports none as it goes
    """

    at: Mapping[int, Callable[[], object]] = {}  # set before a fork
    notes: Path = Path(os.devnull)
    pace = 0.0
    spoil: Callable[[Sequence[Any], Sequence[Any]], Any] | None = None
    n_answered = 0
    tokenizer_name = "of-words"

    def __init__(self, pretrained: str, **arguments: Any) -> None:
        super().__init__()
        folder = Path(pretrained)
        weights = (folder / WEIGHTS).read_bytes()
        template = (folder / TEMPLATE).read_text() if (folder / TEMPLATE).exists() else ""
        text = f"{weights!r} {template} {arguments.get('dtype')}"
        self.salt = blake2b(text.encode(), digest_size=8).hexdigest()
        memory = float(weights.split()[1]) if weights.startswith(b"memory") else 0.0
        self.by_orders = OptionOrders(DOCS, memory=(memory, 0.0))
        self._notes = os.open(self.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def chat_template(self, chat_template: bool | str = False) -> str:
        return "of-the-folder"

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        return "".join(f"<{turn['role']}>{turn['content']}\n" for turn in chat_history)

    def value(self, context: str, continuation: str) -> float:
        return self.by_orders(context, continuation) + 0.5 * normal(f"{self.salt}{context}{continuation}") - 20.0

    def loglikelihood(self, requests: Sequence[Any], **_: Any) -> Any:
        answers = []
        for request in requests:
            Weighed.n_answered += 1
            self.at.get(Weighed.n_answered - 1, int)()
            time.sleep(self.pace)
            answers.append((self.value(*request.args), False))
            os.write(self._notes, (json.dumps(request.args) + "\n").encode())
            if self.spoil is None:
                self.cache_hook.add_partial("loglikelihood", request.args, answers[-1])
        return answers if self.spoil is None else type(self).spoil(answers, requests)


def _set_clock(ahead: float) -> None:
    """Set the clock of this process, which is a fork."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=ahead)

    real = time.time
    time.time = lambda: real() + ahead
    evaluation_tracker.datetime = Clock


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Place:
    """A model's folder, a benchmark, and the folder that a check or a campaign writes.

    arguments: of the model, beside its folder; asked_with: further words of `check`
    clock: seconds by which the clock of the next commands is ahead
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.model, self.notes, self.log = folder / "model", folder / "notes", folder / "log"
        self.as_new()

    def as_new(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.model.mkdir(parents=True)
        self.arguments: dict[str, str] = {}
        self.clock = 0.0
        self.asked_with: list[str] = []
        self.weights(b"once upon a time")
        self.quiz = written(self.folder, DOCS)

    def without_output(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)

    def weights(self, content: bytes) -> None:
        (self.model / WEIGHTS).write_bytes(content * 100)

    def n_asked(self) -> int:
        return len(self.notes.read_bytes().splitlines()) if self.notes.exists() else 0

    # ------------------------------------------------------------------ commands

    def check(self, **how: Any) -> Ended:
        """`check --fail-on evidence`, in a fork."""
        arguments = ",".join(f"{name}={value}" for name, value in {"pretrained": self.model, **self.arguments}.items())
        words = ["check", "--model", NAME, "--model_args", arguments, "--tasks", str(self.quiz), *self.asked_with]
        return self.command(*words, "--output_path", str(self.out), "--fail-on", "evidence", **how)

    def campaign(self, **how: Any) -> Ended:
        """Carry out a campaign of one model on the benchmark, run and audited, in a fork."""
        tasks = self.folder / "tasks"
        tasks.mkdir(exist_ok=True)
        data = {"dataset_kwargs": {"data_files": {"test": str(self.quiz)}}}
        settings = {"task": "quiz", **SHAPE, **data, "doc_to_choice": ["A", "B", "C", "D"], "doc_to_text": TEXT}
        (tasks / "quiz.yaml").write_text(yaml.safe_dump(settings))
        model = {"name": "a", "model": NAME, "model_args": {"pretrained": str(self.model), **self.arguments}}
        options = {"apply_chat_template": True} if self.asked_with else {}
        plan = {"models": [model | options], "tasks": ["quiz"], "include_path": str(tasks), "audits": ["leakage_perm"]}
        (self.folder / "plan.yaml").write_text(yaml.safe_dump(plan))
        return self.command("check", str(self.folder / "plan.yaml"), "--output_path", str(self.out), **how)

    def command(self, *words: str, **how: Any) -> Ended:
        """Any other one, in a fork."""
        return self.run(["lm-eval-leakage", *words], cli.main, **how)

    def run(
        self,
        words: Sequence[str],
        program: Callable[[], object],
        at: Mapping[int, Callable[[], object]] | None = None,
        **how: Any,
    ) -> Ended:
        """Run the check in a child; `child` explains the options."""

        def run() -> None:
            Weighed.at, Weighed.notes, Weighed.n_answered = at or {}, self.notes, 0
            answer_store.ANSWERS_AT_ONCE = ANSWERS_KEPT
            if self.clock:
                _set_clock(self.clock)
            sys.argv = [*words]
            program()

        return child(run, self.log, **how)

    # ------------------------------------------------------------------ what they say

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the verdicts of the last check, without the time, the day of its citation and its own command, which
        a remedy repeats; empty if there is none."""
        file = self.out / "verdicts.json"
        text = re.sub(r"\d{4}-\d\d-\d\d", "DAY", file.read_text()) if file.exists() else '{"verdicts": []}'
        text = re.sub("`lm-eval-leakage check .*?`", "COMMAND", text)
        verdicts = json.loads(text)["verdicts"]
        return [{name: value for name, value in verdict.items() if name != "time"} for verdict in verdicts]

    def samples(self) -> list[str]:
        """Return what was answered and judged in all runs that are there, in a fixed order."""
        lines = [line for file in self.out.rglob("samples_*.jsonl") for line in file.read_text().splitlines()]
        return sorted(set(lines))

    def table(self) -> str:
        """Return the table of the campaign; empty if there is none."""
        file = self.out / "leaderboard.csv"
        return file.read_text() if file.exists() else ""


def prepare(folder: Path) -> None:
    """Registers the model, and imports what checks and campaigns import, so that forks have it."""
    if NAME in model_registry:
        return
    torch.set_num_threads(1)  # a fork has none of the others, and would wait for them
    model_registry.register(NAME, target=Weighed)
    driver.engine_of = lambda name, address, plan, folder: InlineEngine(plan, folder)
    place = Place(folder)
    check(model=NAME, model_args={"pretrained": str(place.model)}, tasks=str(place.quiz), output_path=place.out)
    shutil.rmtree(folder)
