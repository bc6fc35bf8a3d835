"""Cost of keeping answers: CPU seconds for 336,900 requests (all of MMLU) with a model that answers at once.

    python benchmarks/resume.py [N_REQUESTS]

Compared in one process: no store, our store (written, then read), and lm_eval's --use_cache (written, then read). The
difference from "no store" is the overhead.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lm_eval.api.model import LM, CacheHook, CachingLM
from timing import cpu_seconds

from lm_eval_leakage.harness.models.asking import ask
from lm_eval_leakage.harness.models.question_requests import LeakageInstance, QuestionRequests
from lm_eval_leakage.harness.seams.evaluation import Evaluation

FULL_MMLU = 336_900
QUESTION = "Which of the following best describes the way in which the thing that is asked about comes about? " * 3


class AtOnce(LM):
    """Answers without computing anything, and reports every answer to its hook, as backends do."""

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        for request in requests:
            self.cache_hook.add_partial("loglikelihood", request.args, (-12.345678, False))
        return [(-12.345678, False)] * len(requests)

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        raise NotImplementedError

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        raise NotImplementedError


class Asked:
    """The parts of a task that `ask` uses."""

    resume = True
    probe = SimpleNamespace(needs="loglikelihood")

    def __init__(self, evaluation: Evaluation | None) -> None:
        self.evaluation = evaluation


def instances(n_requests: int, evaluation: Evaluation | None) -> list[LeakageInstance]:
    task, instances_of_task = Asked(evaluation), []
    for number in range(0, n_requests, 24):
        texts = [(f"{QUESTION}{number}", f"\nA. one\nB. two\nC. three\nD. {place}") for place in range(24)]
        instances_of_task += QuestionRequests(task, {}, ("task", number, 1), texts).instances
    return instances_of_task[:n_requests]


def main() -> None:
    logging.disable(logging.WARNING)
    n_requests = int(sys.argv[1]) if len(sys.argv) > 1 else FULL_MMLU
    with tempfile.TemporaryDirectory() as folder:
        place, lm = Path(folder), AtOnce()
        kept = Evaluation(lm, {}, "at-once", "pretrained=a", place / "out")
        cached = CachingLM(lm, str(place / "cache.db"))
        rows = {
            "no store": (lm, None),
            "our store, written": (lm, kept),
            "our store, read": (lm, kept),
            "--use_cache, written": (cached, None),
            "--use_cache, read": (cached, None),
        }
        seconds = {}
        for name, (model, evaluation) in rows.items():
            requests = instances(n_requests, evaluation)
            model_hook = cached.get_cache_hook() if model is cached else CacheHook(None)
            lm.set_cache_hook(model_hook)
            start = cpu_seconds()
            ask(model, requests)
            seconds[name] = cpu_seconds() - start
        size = sum(file.stat().st_size for file in (place / "out").rglob("*.sqlite")) / 1e6
    base = seconds["no store"]
    print(f"{n_requests} requests; our store takes {size:.0f} MB\n")
    print("| | CPU seconds | more than without a store |\n|---|---|---|")
    for name, seconds_of_way in seconds.items():
        print(f"| {name} | {seconds_of_way:.1f} | {seconds_of_way - base:.1f} |")


if __name__ == "__main__":
    main()
