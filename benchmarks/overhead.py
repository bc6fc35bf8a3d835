"""What an audit costs beside the model: CPU seconds and memory of each phase of a real `lm_eval` run.

    python benchmarks/overhead.py [TASK] [--tokenizer MODEL [--max_tokens N]] [--limit N] [--metadata KEY=VALUE ...]
        [--output_path DIR]

TASK: an audit, by default mmlu_leakage_perm. The model answers at once, from a checksum of the text. With --tokenizer
it goes the way of `hf-prefix-tree` with that model's tokenizer: everything but the forward pass is done, including
trees and pieces. Everything is saved, as with `--log_samples --output_path`; the answers too, as in
every run that saves. Each phase's seconds exclude those of phases within it. Loading the model and
the stand-in for it are in no sum. No phase is as short as storing one answer: reading the clock would take as long.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOKENISING = "tokenising"
OUTSIDE = "command line, printing"
LOADING = "loading the model"
PHASES = (  # module, object, phase
    ("lm_eval.tasks.manager", "TaskManager.__init__", "finding the task"),
    ("lm_eval.tasks.manager", "TaskManager.load", "finding the task"),
    ("lm_eval_leakage.harness.tasks.task", "LeakageTask.download", "loading the data"),
    ("lm_eval_leakage.harness.tasks.task", "LeakageTask.build_all_requests", "building requests"),
    ("lm_eval_leakage.harness.models.asking", "ask", "asking and matching answers"),
    ("lm_eval_leakage.harness.models.asking", "announced", "estimates"),
    ("lm_eval_leakage.logs.answer_store", "AnswerStore.find", "answers on disk"),
    ("lm_eval_leakage.logs.answer_store", "AnswerStore.flush", "answers on disk"),
    ("lm_eval_leakage.harness.models.tokenising", "FittedTexts.texts", TOKENISING),
    ("lm_eval_leakage.scoring.scorers", "prefix_tree", "trees"),
    ("lm_eval_leakage.scoring.scorers", "TreeScorer._advance", "pieces"),
    ("lm_eval_leakage.harness.tasks.task", "LeakageTask.apply_filters", "statistics"),
    ("lm_eval.evaluator", "evaluate", "verdicts of each question"),
    ("lm_eval.evaluator", "_process_results", "rows of the table"),
    ("lm_eval.evaluator_utils", "EvalAcc._to_eval_results", "results and samples log"),
    ("lm_eval.loggers.evaluation_tracker", "EvaluationTracker.save_results_aggregated", "results and samples log"),
    ("lm_eval.loggers.evaluation_tracker", "EvaluationTracker.save_results_samples", "results and samples log"),
)
MODEL = "the stand-in for the model"
SECONDS_BETWEEN_LOOKS = 0.02


class _Stack(threading.local):
    """The phases that a thread is in, and the CPU time at which it entered the last one."""

    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.phases = [OUTSIDE if is_main else TOKENISING]
        self.since = time.thread_time()


class Clock:
    """CPU seconds of all threads by phase, each without the phases within it, and the largest memory, MiB, while the
    main thread is in a phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.peaks: dict[str, float] = defaultdict(float)
        self._stack = _Stack()
        threading.Thread(target=self._look, args=(self._stack.phases,), daemon=True).start()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._begin(name)
        try:
            yield
        finally:
            self._end()

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls are a phase."""
        begin, end = self._begin, self._end

        def watched(*args: Any, **kwargs: Any) -> Any:
            begin(name)
            try:
                return function(*args, **kwargs)
            finally:
                end()

        return watched

    def _begin(self, name: str) -> None:
        self._switch()
        self._stack.phases.append(name)

    def _end(self) -> None:
        self._switch()
        self._stack.phases.pop()

    def _switch(self) -> None:
        now = time.thread_time()
        self.seconds[self._stack.phases[-1]] += now - self._stack.since
        self._stack.since = now

    def _look(self, phases: list[str]) -> None:
        page = resource.getpagesize() / 2**20
        while True:
            phase, now = phases[-1], int(Path("/proc/self/statm").read_text().split()[1]) * page
            self.peaks[phase] = max(self.peaks[phase], now)
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def rows(self) -> list[tuple[str, float, float]]:
        self._switch()
        order = [OUTSIDE, LOADING, *dict.fromkeys(name for _, _, name in PHASES), MODEL]
        return [(name, self.seconds[name], self.peaks[name]) for name in order if self.seconds[name]]


def watch(clock: Clock) -> None:
    import importlib

    for module, path, phase in PHASES:
        owner = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, clock.watched(phase, getattr(owner, name)))


# ---------------------------------------------------------------------- models


def score(*texts: str) -> float:
    return -(zlib.crc32("".join(texts).encode("utf-8", "replace")) % 100_003) / 1_000


def instant_model() -> type:
    from lm_eval.api.model import LM

    class Instant(LM):
        """Answers every request with its score, and reports each answer to its hook, as all backends do."""

        def __init__(self, **_: object) -> None:
            super().__init__()

        def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
            return [self.answer(request.args) for request in requests]

        def answer(self, pair: tuple[str, str]) -> tuple[float, bool]:
            answer = score(*pair), False
            self.cache_hook.add_partial("loglikelihood", pair, answer)
            return answer

        def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
            raise AssertionError("not asked for here")

        generate_until = loglikelihood_rolling

    return Instant


def tree_model(clock: Clock) -> type:
    """`hf-prefix-tree` whose forward pass is skipped."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM
    from lm_eval_leakage.scoring import tree_model as scored

    def at_once(self: Any, piece: Any, device: torch.device) -> Any:
        tree = piece.tree
        targets = tree.targets_below(piece.first, piece.stop)
        with clock.phase(MODEL):
            mixed = (tree.target_tokens[targets].astype(np.int64) * 31 + tree.target_depths[targets] * 17) % 97
        return targets, -mixed.astype(np.float32) / 10, np.zeros(len(targets), np.bool_)

    class InstantTree(PrefixTreeLM):
        def __init__(self, tokenizer: str, max_tokens: int, **_: object) -> None:
            with clock.phase(LOADING):
                self._load(tokenizer, max_tokens)

        def _load(self, tokenizer: str, max_tokens: int) -> None:
            tokenizer_of_model = AutoTokenizer.from_pretrained(tokenizer)
            config = LlamaConfig(
                vocab_size=len(tokenizer_of_model),
                hidden_size=16,
                intermediate_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=8192,
            )
            PrefixTreeLM.__init__(
                self, LlamaForCausalLM(config), tokenizer=tokenizer_of_model, max_length=8192, max_tokens=max_tokens
            )
            self.choice.verified = sys.maxsize  # its answers are not those of the model
            scored.TreeModel.score = at_once

    return InstantTree


# ---------------------------------------------------------------------- the run


def run(arguments: argparse.Namespace, folder: Path, clock: Clock) -> None:
    from lm_eval.api.registry import model_registry

    from lm_eval_leakage.cli import main

    with clock.phase(LOADING):
        made = tree_model(clock) if arguments.tokenizer else instant_model()
    model_registry.register("instant", target=made)
    options = ["--model_args", f"tokenizer={arguments.tokenizer or 'none'},max_tokens={arguments.max_tokens}"]
    options += ["--limit", arguments.limit] if arguments.limit else []
    options += ["--metadata", *arguments.metadata] if arguments.metadata else []
    where = ["--output_path", str(folder), "--log_samples"]
    sys.argv = ["lm-eval-leakage", "run", "--model", "instant", "--tasks", arguments.task, *where, *options]
    watch(clock)
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", default="mmlu_leakage_perm")
    parser.add_argument("--tokenizer")
    parser.add_argument("--max_tokens", type=int, default=16384, help="of a forward pass; 16384 is usual on GPUs")
    parser.add_argument("--limit")
    parser.add_argument("--metadata", nargs="+")
    parser.add_argument("--output_path", type=Path)
    return parser.parse_args()


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would not be counted
    import lm_eval_leakage.harness.tasks.task  # noqa: F401  (so that all imports are in the first row)

    arguments, clock = parsed(), Clock()
    imported = resource.getrusage(resource.RUSAGE_SELF)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.output_path or Path(scratch)
        run(arguments, folder, clock)
        written = sum(file.stat().st_size for file in folder.rglob("samples_*")) / 2**20
    print("\n| phase | CPU seconds | peak MiB |\n|---|---|---|")
    print(f"| imports | {imported.ru_utime + imported.ru_stime:.1f} | {imported.ru_maxrss / 1024:,.0f} |")
    rows = clock.rows()
    for name, seconds, peak in rows:
        print(f"| {name} | {seconds:.1f} | {peak:,.0f} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    beside = sum(seconds for name, seconds, _ in rows if name not in (LOADING, MODEL))
    print(f"| all beside the model, without imports | {beside:.1f} | {peak:,.0f} |")
    print(f"\nsamples log: {written:,.0f} MiB")


if __name__ == "__main__":
    main()
