"""A model that `--model` knows by name, and a benchmark of its own, so that a whole check runs in this process."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from lm_eval.api.model import LM
from lm_eval.api.registry import model_registry
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.seams.registries import add_models
from tests.cli.conftest import typed  # noqa: F401 (a fixture)
from tests.fakes import by_hash

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll", "ledge")
Score = Callable[[str, str], float]
Typed = Callable[..., tuple[int, str, str]]  # a command; its exit code, stdout and stderr


def questions(n: int, n_options: int = 4, seed: int = 0) -> list[dict[str, Any]]:
    """Questions with options in a random order, with the fields that plain questions have."""
    rng = random.Random(seed)
    docs = []
    for number in range(n):
        options = [f"{' '.join(rng.sample(WORDS, rng.randint(1, 4)))} {place}" for place in range(n_options)]
        rng.shuffle(options)
        docs.append({"question": f"Which of {seed}-{number}?", "choices": options, "answer": rng.randrange(n_options)})
    return docs


def written(folder: Path, docs: Sequence[dict[str, Any]], name: str = "quiz.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    return file


class NamedFake(LM):
    """A fake model that is built by name. `asked` counts the requests of all models of this kind.

    score_of_other: of the model that is called `other`, which is a reference; by default as that of all
    """

    score: Score = staticmethod(by_hash)
    score_of_other: Score | None = None
    requests: list[tuple[str, str]] = []  # noqa: RUF012 (reset for each test)
    built: list[dict[str, Any]] = []  # noqa: RUF012

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        type(self).built.append(arguments)
        self.is_other = arguments.get("pretrained") == "other"

    def tok_encode(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def loglikelihood(self, requests, **_):
        answers = []
        for request in requests:
            answer = self.answer(*request.args), False
            type(self).requests.append(request.args)
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
            answers.append(answer)
        return answers

    def answer(self, context: str, continuation: str) -> float:
        other = type(self).score_of_other
        return other(context, continuation) if self.is_other and other else type(self).score(context, continuation)

    def loglikelihood_rolling(self, requests, **_):
        raise NotImplementedError

    def generate_until(self, requests, **_):
        raise NotImplementedError


class ChatFake(NamedFake):
    """A chat model behind an API: no log-likelihoods."""

    def loglikelihood(self, requests, **_):
        raise NotImplementedError


def without_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what the harness records of packages and of git: it starts processes, which takes seconds for each
    run."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)
    monkeypatch.setattr("lm_eval.evaluator.get_git_commit_hash", lambda: None)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> type[NamedFake]:
    """Registers `--model fake` and `--model chat-fake`; returns the former's class."""
    add_models()
    fake = type("Fake", (NamedFake,), {"requests": [], "built": []})
    chat = type("Chat", (ChatFake,), {"requests": [], "built": []})
    without_environment(monkeypatch)
    monkeypatch.setitem(model_registry._objs, "fake", fake)
    monkeypatch.setitem(model_registry._objs, "chat-fake", chat)
    return fake


class GivenTasksOnly(TaskManager):
    """A task manager without lm_eval's 14,000 tasks, whose data are not on this machine."""

    def __init__(self, verbosity=None, include_path=None, include_defaults=True, metadata=None) -> None:
        super().__init__(verbosity, include_path, False, metadata)


@pytest.fixture
def only_given_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_eval_leakage.harness.task_shelf.TaskManager", GivenTasksOnly)


def draw(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


class OptionOrders:
    """A model that prefers orders of options: some by nature, in any form and layout, and the published ones of the
    questions that it has seen.

    seen: questions with a memory of their published order
    memory: how much more it likes that order, in standard deviations of its natural preferences, in the published
        form and in the control forms, which are remembered, too
    tidy: how much more it likes options ordered by length, whether it has seen them or not
    """

    def __init__(
        self, seen: Sequence[dict[str, Any]] = (), memory: tuple[float, float] = (0.0, 0.0), tidy: float = 0.0
    ) -> None:
        self.published = {frozenset(doc["choices"]): tuple(doc["choices"]) for doc in seen}
        self.memory, self.tidy = memory, tidy

    def __call__(self, context: str, continuation: str) -> float:
        in_words = continuation.startswith(" first ")
        options = tuple(option.lower() for option in options_in(continuation))
        if not options:
            return by_hash(context, continuation)  # a letter, or something else than an order
        natural = normal("|".join(options)) + self.tidy * (list(options) == sorted(options, key=len))
        preference = 0.5 * normal(context + continuation)
        is_control = in_words or continuation.isupper()
        is_known = self.published.get(frozenset(options)) == options
        return natural + preference + self.memory[is_control] * is_known - 50.0


def options_in(block: str) -> list[str]:
    """Return the options of a block in any layout, or of a line in words; none of anything else. The options have no
    commas."""
    if block.startswith(" first "):
        return block.removeprefix(" first ").split(", then ")
    if block.startswith('"'):
        return block[1:].split('", "')
    if block.startswith(","):
        return block[1:].split(",")
    return re.split(r" \([A-Z]\) ", block)[1:] or re.findall(r"(?m)^[A-Z]\. (.*)$", block)


def normal(text: str) -> float:
    """A standard normal number that depends on the text alone."""
    return NormalDist().inv_cdf(max(1e-9, draw(text)))


# ---------------------------------------------------------------------- whole checks


def checked(folder: Path, file: Path | None = None, out: str = "out", **given: Any) -> Any:
    """The outcome of a check of `fake` in this process, which looks for a benchmark that was seen as a whole: few
    questions find that, and the words then name no command, which would name the folder.

    file: of questions, `quiz.jsonl` unless given
    """
    from lm_eval_leakage.jobs.check import check

    arguments = {"model": "fake", "model_args": "pretrained=m", "tasks": str(file or folder / "quiz.jsonl")}
    arguments |= {"detect": "100%"}
    return check(**(arguments | {"output_path": folder / out} | given))


def statuses(outcome: Any) -> dict[str, str]:
    """Return the statuses of the steps of its plan."""
    return {step.what: step.status for step in outcome.plan.steps}
