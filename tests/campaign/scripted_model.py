"""A backend without weights for campaigns in tests, registered by `imports: [tests.campaign.scripted_model]`.

Its answers are hashes of the texts, and it fails, dies or dawdles where its arguments say so. Importing this also
leaves out lm_eval's 14,000 tasks, whose index takes 11 seconds in every worker.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any

import lm_eval.evaluator
from lm_eval.api.registry import model_registry

from lm_eval_leakage.harness.seams.registries import add_models
from tests.checking.conftest import NamedFake

NAME = "scripted"
LOADED = "loaded"  # a file in the `counts` folder: a line for each time that a model is loaded
ASKED = "asked"  # the same for each request


class ScriptedModel(NamedFake):
    """A model whose arguments say what happens.

    seed: of the answers
    weights: a file with the seed, instead
    counts: a folder where loads and requests are counted
    pause: seconds for each request
    fault: a path; the file of that name with the ending .txt holds `job` or `nobody` and a text. At the first request
        with that text, the file is removed, that process killed, and a minute waited. The argument itself names no
        file, whose content would belong to the model's identity
    broken: whether it cannot be loaded
    fails_at, dies_at: a part of a text at which it raises or is killed
    times: how often at most it dies, counted by a file in `counts`
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        arguments_of_lm = arguments
        self.seed, self.folder, self.pause = (
            str(arguments_of_lm.get("seed", 0)),
            arguments_of_lm.get("counts"),
            arguments_of_lm.get("pause", 0),
        )
        self.fault = Path(f"{arguments_of_lm['fault']}.txt") if arguments_of_lm.get("fault") else None
        self.fails_at, self.dies_at = (arguments_of_lm.get(key) for key in ("fails_at", "dies_at"))
        if arguments_of_lm.get("weights"):
            self.seed = Path(arguments_of_lm["weights"]).read_text()
        self.times = int(arguments_of_lm.get("times", 10**6))
        if arguments_of_lm.get("broken"):
            raise MemoryError("no room for the weights")
        self._count(LOADED, str(os.getpid()))

    def answer(self, context: str, continuation: str) -> float:
        text = context + continuation
        self._misbehave(text)
        time.sleep(self.pause)
        digest = blake2b(f"{self.seed} {text}".encode(), digest_size=6).digest()
        self._count(ASKED, digest.hex())
        return -50.0 * int.from_bytes(digest, "big") / 2**48

    def _misbehave(self, text: str) -> None:
        if self.fault is not None and self.fault.is_file():
            victim, _, at = self.fault.read_text().partition(" ")
            if at in text:
                self.fault.unlink()
                if victim == "job":
                    os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(60)
        if self.fails_at and self.fails_at in text:
            raise RuntimeError(f"cannot answer {self.fails_at}")
        if self.dies_at and self.dies_at in text and self._deaths() < self.times:
            self._count("deaths", "x")
            os.kill(os.getpid(), signal.SIGKILL)

    def _deaths(self) -> int:
        file = Path(self.folder or ".") / "deaths"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def _count(self, what: str, line: str) -> None:
        if self.folder:
            with (Path(self.folder) / what).open("a") as stream:
                stream.write(f"{line}\n")


def lines(folder: Path, what: str) -> list[str]:
    file = folder / what
    return file.read_text().splitlines() if file.exists() else []


add_models()
if NAME not in model_registry:
    model_registry.register(NAME, target=ScriptedModel)
if Path(sys.argv[0]).name in ("worker.py", "default_worker.py"):  # a second each, since they start processes
    lm_eval.evaluator.add_env_info = lambda results: None
    lm_eval.evaluator.get_git_commit_hash = lambda: None
