"""What workers of a campaign import in tests (`imports: [tests.campaign.frail_model]`): a deterministic model, and no
tasks but the given ones. It changes lm_eval in the process that imports it.

Arguments of the model: name; pause: seconds for each request; fault: a path; the file of that name with the
ending .txt holds `worker` or `job` and a text. At the first request with that text, the file is removed and that
process killed. The argument itself names no file, whose content would belong to the model's identity.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import lm_eval.evaluator
from lm_eval.api.registry import model_registry

from lm_eval_leakage.harness import task_shelf
from lm_eval_leakage.harness.seams.registries import add_models
from tests.checking.conftest import GivenTasksOnly, NamedFake


class FrailModel(NamedFake):
    def __init__(self, name: str, pause: float = 0.0, fault: str | None = None, **_: Any) -> None:
        super().__init__()
        self._name, self._pause, self._fault = name, pause, None if fault is None else Path(f"{fault}.txt")

    def loglikelihood(self, requests, **_):
        answers = []
        for request in requests:
            self._fail_at(request.args[0])
            time.sleep(self._pause)
            context, continuation = request.args
            answer = type(self).score(f"{self._name} {context}", continuation), False
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
            answers.append(answer)
        return answers

    def _fail_at(self, context: str) -> None:
        if self._fault is None or not self._fault.is_file():
            return
        victim, _, text = self._fault.read_text(encoding="utf-8").partition(" ")
        if text in context:
            self._fault.unlink()
            os.kill(os.getppid() if victim == "job" else os.getpid(), signal.SIGKILL)
            time.sleep(60)


add_models()
model_registry._objs["frail"] = FrailModel
task_shelf.TaskManager = GivenTasksOnly
lm_eval.evaluator.add_env_info = lambda results: None  # a second each, since they start processes
lm_eval.evaluator.get_git_commit_hash = lambda: None
