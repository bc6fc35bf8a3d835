"""`hf` against `hf-prefix-tree`, or `vllm` against `vllm-prefix-tree`, on the same requests of real questions.

    python benchmarks/scoring.py MODEL [--vllm PYTHON] [--device cuda] [--workloads mmlu_orders,..]

MODEL: a checkpoint folder or a hub name. Tokenising is included, loading is not. Without `--vllm`, every measurement
runs in a separate process; repeats alternate between the backends, so that other load affects all alike. `hf` runs at
the best of several batch sizes, determined beforehand on a part of the requests. With it, vLLM's two are measured
instead (engines.py). PYTHON: the interpreter of an environment with vllm and lm_eval.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
from pathlib import Path

import engines
from timing import cpu_seconds, differences, forget_peak, in_process, is_worker, peak, timed

BATCH_SIZES = (4, 8, 16, 32)
BATCH_SIZES_CUDA = (16, 32, 64, 128, 256)
TRIED, COMPARED, RUN = 64, 240, 24  # requests: for the batch size; against float32, in runs that share what they share
# workloads: task names, number of examples, questions drawn at random (0: all) out of how many
WORKLOADS = {
    "mmlu_orders": (["mmlu_leakage_perm"], 0, 24, 14042),
    "mathqa_orders": (["mathqa_leakage_perm"], 0, 6, 2985),
    "hellaswag": (["hellaswag"], 0, 60, 10042),
    "arc_challenge": (["arc_challenge"], 0, 80, 1172),
    "mmlu_5_shot": (["mmlu_computer_security", "mmlu_global_facts"], 5, 0, 0),
}
ASKED_OF_ENGINES = {"mmlu_5_shot": 200}  # the first requests; all would take vllm four minutes per call


# ---------------------------------------------------------------------- what is asked


def requests_of(tasks: list[str], n_examples: int, n_drawn: int, n_questions: int) -> list[tuple[str, str]]:
    """The (context, continuation) pairs that the harness would ask for."""
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    from lm_eval_leakage import task_configs_path

    class Recorder(LM):
        requests: list[tuple[str, str]] = []  # noqa: RUF012

        def loglikelihood(self, requests):
            self.requests += [request.args for request in requests]
            return [(0.0, False) for _ in requests]

        def loglikelihood_rolling(self, requests):
            raise AssertionError("no workload asks for this")

        generate_until = loglikelihood_rolling

    recorder = Recorder()
    drawn = sorted(random.Random(0).sample(range(n_questions), n_drawn))
    samples = dict.fromkeys(tasks, drawn) if n_drawn else None
    # without the control forms, whose texts share less, so that figures remain comparable
    manager = TaskManager(include_path=task_configs_path(), metadata={"control_form": False})
    simple_evaluate(
        recorder, tasks=tasks, num_fewshot=n_examples or None, samples=samples, task_manager=manager, bootstrap_iters=0
    )
    return recorder.requests


# ---------------------------------------------------------------------- one process


def score(spec: dict) -> dict:
    """Load a backend, score the requests once; times without loading."""
    from lm_eval.api.instance import Instance

    lm = _backend(spec)
    instances = [Instance("loglikelihood", {}, tuple(pair), i) for i, pair in enumerate(spec["requests"])]
    figures = {"batch_size": spec.get("batch_size")}
    if spec.get("batch_sizes"):
        figures["tried"] = {}
        for batch_size in spec["batch_sizes"]:
            lm.batch_size_per_gpu = batch_size
            try:
                figures["tried"][batch_size] = timed(lambda: lm.loglikelihood(instances, disable_tqdm=True))[0]
            except RuntimeError as error:
                print(f"batch size {batch_size}: {error}"[:200], file=sys.stderr)
        return figures
    forget_peak()
    before = cpu_seconds()
    figures["seconds"], answers = timed(lambda: lm.loglikelihood(instances, disable_tqdm=True))
    figures["cpu_seconds"] = cpu_seconds() - before
    figures["answers"] = [answer[0] for answer in answers]
    figures["greedy"] = [bool(answer[1]) for answer in answers]
    figures["peak_mib"] = peak()
    if spec["backend"] == "hf-prefix-tree":
        figures |= _tree_figures(lm, instances)
    return figures


def _backend(spec: dict):
    arguments = {"pretrained": spec["model"], "dtype": spec["dtype"]}
    if spec["backend"] == "hf":
        from lm_eval.models.huggingface import HFLM

        return HFLM(**arguments, device=spec["device"], batch_size=spec.get("batch_size", 1))
    from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM

    return PrefixTreeLM(**arguments, device=spec["device"])


def _tree_figures(lm, instances) -> dict:
    """Token counts, the cost of building the tree, and what the model does on plain rows of 128 tokens."""
    import torch

    from lm_eval_leakage.harness.models.tokenising import FittedTexts, encoded_pairs
    from lm_eval_leakage.scoring.prefix_tree import Texts, prefix_tree

    pairs = [request.args for request in instances]
    tokenising, tokens = timed(lambda: list(encoded_pairs(lm, pairs)))
    building, tree = timed(lambda: prefix_tree(FittedTexts(lm.max_length).texts(pairs, Texts.of_pairs(tokens))))
    n_rows = max(1, lm.budget.max_tokens // 128)
    rows = torch.randint(10, 1000, (n_rows, 128), device=lm.device)
    dense = min(timed(lambda: _plain(lm, rows))[0] for _ in range(4)) / rows.numel()
    return {
        "tree_tokens": len(tree.node_tokens),
        "row_tokens": int((tree.lengths - 1).sum()),
        "scored_tokens": len(tree.target_tokens),
        "tokenising": tokenising,
        "building": building,
        "max_tokens": lm.budget.max_tokens,
        "dense_tokens_per_second": 1 / dense,
        "scorer": "tree attention" if lm.choice.scorer else "stock hf",
    }


def _plain(lm, rows) -> None:
    import torch

    with torch.inference_mode():
        lm.model(rows).logits.shape  # noqa: B018
    if rows.is_cuda:
        torch.cuda.synchronize()


# ---------------------------------------------------------------------- all of them


def measure(name: str, args: argparse.Namespace) -> dict:
    tasks, n_examples, n_drawn, n_questions = WORKLOADS[name]
    requests = requests_of(tasks, n_examples, min(n_drawn * args.factor, n_questions), n_questions)
    if args.vllm:
        return measure_engines(name, requests[: args.factor * ASKED_OF_ENGINES.get(name, len(requests))], args)
    common = {"model": args.model, "device": args.device}
    half = common | {"dtype": "bfloat16"}
    compared = runs_drawn(len(requests))
    exact = common | {"dtype": "float32", "requests": [requests[i] for i in compared], "batch_size": 4}
    first = random.Random(1).randrange(max(1, len(requests) - TRIED))
    sizes = BATCH_SIZES if args.device == "cpu" else BATCH_SIZES_CUDA
    tried = scored("hf", **half, requests=requests[first : first + TRIED * args.factor], batch_sizes=sizes)["tried"]
    batch_size = int(min(tried, key=tried.get))
    runs: dict[str, list[dict]] = {"hf": [], "hf-prefix-tree": []}
    for _ in range(args.repeats):
        for backend, done in runs.items():
            done.append(scored(backend, **half, requests=requests, batch_size=batch_size))
            seconds, cpu = done[-1]["seconds"], done[-1]["cpu_seconds"]
            print(f"  {name}: {backend} {seconds:.1f} s, {cpu:.1f} s of CPUs", file=sys.stderr, flush=True)
    longest = sorted(requests, key=lambda pair: -len(pair[0] + pair[1]))[:32]
    at_16 = scored("hf", **half, requests=longest, batch_size=16)
    truth, ours = (scored(backend, **exact) for backend in ("hf", "hf-prefix-tree"))
    return {
        "n_requests": len(requests),
        "batch_size": batch_size,
        "tried": tried,
        "seconds": {backend: statistics.median(run["seconds"] for run in done) for backend, done in runs.items()},
        "peak_mib": {backend: max(run["peak_mib"] for run in done) for backend, done in runs.items()},
        "hf_at_16_mib": at_16["peak_mib"],
        "tree": {key: value for key, value in runs["hf-prefix-tree"][-1].items() if key not in ("answers", "greedy")},
        "float32": differences(truth["answers"], ours["answers"]),
        "float32_greedy_equal": truth["greedy"] == ours["greedy"],
        "bfloat16": {
            backend: differences(truth["answers"], [done[0]["answers"][i] for i in compared])
            for backend, done in runs.items()
        },
    }


def measure_engines(name: str, requests: list[tuple[str, str]], args: argparse.Namespace) -> dict:
    exact = [requests[i] for i in runs_drawn(len(requests))]
    measured = engines.compared(args.vllm, args.model, args.device, requests, exact, args.repeats)
    times = ", ".join(f"{ratio:.2f}" for ratio in engines.ratios(measured))
    load = ", ".join(f"{call['load']:.1f}" for pair in measured["pairs"] for call in pair.values())
    print(f"  {name}: times as fast in each pair {times}; load average after each call {load}", file=sys.stderr)
    return measured


def scored(backend: str, **spec: object) -> dict:
    return in_process(sys.executable, __file__, {"backend": backend, **spec})


def runs_drawn(n_requests: int) -> list[int]:
    """Indices of runs of requests that are compared in float32."""
    starts = range(0, n_requests - RUN + 1, RUN)
    drawn = sorted(random.Random(2).sample(starts, min(COMPARED // RUN, len(starts))))
    return [first + i for first in drawn for i in range(RUN)]


SPEED = ["requests", "backend", "s", "rows' tokens/s", "times `hf`", "token ratio", "peak MiB", "off float32, nats"]
COST = ["requests", "tree tokens/s", "share of dense", "building", "tokenising", "`hf` at 16, MiB", "float32"]


def table(measured: dict[str, dict]) -> str:
    """Speed and accuracy of each backend; what the tree costs, and whether float32 agrees (largest difference)."""
    from lm_eval_leakage.results.tabulating import markdown_of

    speed, cost = [SPEED], [COST]
    for name, figures in measured.items():
        tree, ours = figures["tree"], figures["seconds"]["hf-prefix-tree"]
        for backend, seconds in figures["seconds"].items():
            off = figures["bfloat16"][backend]
            speed.append(
                [
                    f"{name}, {figures['n_requests']}",
                    f"`hf`, batch {figures['batch_size']}" if backend == "hf" else f"`{backend}`",
                    f"{seconds:.1f}",
                    f"{tree['row_tokens'] / seconds:,.0f}",
                    f"{figures['seconds']['hf'] / seconds:.2f}",
                    f"{tree['row_tokens'] / tree['tree_tokens']:.2f}" if backend == "hf-prefix-tree" else "",
                    f"{figures['peak_mib'][backend]:,.0f}",
                    f"{off['rms']:.3f} rms, {off['largest']:.2f} at most",
                ]
            )
        per_second = tree["tree_tokens"] / ours
        greedy = "equal" if figures["float32_greedy_equal"] else "DIFFERS"
        cost.append(
            [
                name,
                f"{per_second:,.0f}",
                f"{per_second / tree['dense_tokens_per_second']:.2f}",
                f"{tree['building'] / ours:.1%}",
                f"{tree['tokenising'] / ours:.1%}",
                f"{figures['hf_at_16_mib']:,.0f}",
                f"{figures['float32']['largest']:.1e}, greedy {greedy}",
            ]
        )
    return f"{markdown_of(speed)}\n\n{markdown_of(cost)}"


def main() -> None:
    logging.disable(logging.INFO)
    if is_worker(score):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--vllm", metavar="PYTHON", help="measure vLLM's two, by this interpreter, instead of hf's")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--factor", type=int, default=1, help="so many times the questions, for faster machines")
    parser.add_argument("--json", type=Path, help="keep the figures here")
    args = parser.parse_args()
    measured = {}
    for name in args.workloads.split(","):
        measured[name] = measure(name, args)
        if args.json:
            args.json.write_text(json.dumps(measured, indent=1))
        print(engines.engine_table(measured) if args.vllm else table(measured), flush=True)


if __name__ == "__main__":
    main()
