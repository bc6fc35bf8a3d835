"""Cost of an audit without the model: everything that lm_eval and this package do for 2,000 x 24 requests.

    python benchmarks/overhead.py

The model is a stand-in that answers at once, so tokenising is not included. Measured in a separate process: loading
the task, building the requests, filters, rows, and writing the results and the samples log.
"""

from __future__ import annotations

import json
import logging
import resource
import tempfile
import time
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.tasks import task  # noqa: F401  (so that imports are not counted)

N_QUESTIONS = 2_000


class InstantLM(LM):
    """Answers every request with its length."""

    def loglikelihood(self, requests):
        return [(-float(len(request.args[1])), False) for request in requests]

    def loglikelihood_rolling(self, requests):
        raise AssertionError("not asked for here")

    def generate_until(self, requests):
        raise AssertionError("not asked for here")


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def questions(folder: Path) -> Path:
    """Questions as long as those of MMLU: a stem of 250 characters, options of 35."""
    file = folder / "questions.jsonl"
    docs = [
        {
            "question": f"{i} " + "stem " * 50,
            "choices": [f"{letter}{i} " + "option " * 5 for letter in "wxyz"],
            "answer": 0,
        }
        for i in range(N_QUESTIONS)
    ]
    file.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    return file


def main() -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch:
        file = questions(Path(scratch))
        before = memory_mib()
        start = time.perf_counter()
        manager = TaskManager(
            include_path=task_configs_path(), include_defaults=False, metadata={"data_files": str(file)}
        )
        tracker = EvaluationTracker(output_path=f"{scratch}/out")
        results = simple_evaluate(InstantLM(), tasks=["mmlu_leakage_perm"], task_manager=manager, bootstrap_iters=0)
        evaluated = time.perf_counter() - start
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        tracker.save_results_samples(task_name="mmlu_leakage_perm", samples=samples["mmlu_leakage_perm"])
        whole = time.perf_counter() - start
        written = sum(path.stat().st_size for path in Path(scratch, "out").rglob("*") if path.is_file()) / 2**20
    print(f"{N_QUESTIONS:,} questions x 24 orders: {whole:.1f} s ({evaluated:.1f} s before writing)")
    print(f"memory: {memory_mib() - before:.0f} MiB above {before:.0f} MiB of imports; log: {written:.0f} MiB")


if __name__ == "__main__":
    main()
