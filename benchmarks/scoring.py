"""`hf` and `vllm`, each with and without prefix trees, on the same requests of real questions, tokenising included.

    python benchmarks/scoring.py MODEL [--vllm PYTHON [--vllm-only]] [--device cuda] [--workloads mmlu_orders,..]

MODEL: a checkpoint folder or a hub name. PYTHON: the interpreter of an environment with vllm and lm_eval. Every
measurement runs in a separate process; repeats alternate between the backends, so that other load affects all alike.
`hf` runs at the best of several batch sizes, determined beforehand on a part of the requests. Both models of vLLM have
the same arguments. On CPUs set VLLM_ENABLE_V1_MULTIPROCESSING=0, so that their CPU seconds are counted.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
BATCH_SIZES = (4, 8, 16, 32)
BATCH_SIZES_CUDA = (16, 32, 64, 128, 256)
BLOCKS = {"cpu": 32, "cuda": 16}  # tokens of a block of vLLM's cache: the smallest on CPUs, the default on most GPUs
ENGINES = ("vllm", "vllm-prefix-tree")
TRIED, COMPARED, RUN = 64, 240, 24  # requests: for the batch size; against float32, in runs that share what they share
# workloads: task names, number of examples, questions drawn at random (0: all) out of how many
WORKLOADS = {
    "mmlu_orders": (["mmlu_leakage_perm"], 0, 24, 14042),
    "mathqa_orders": (["mathqa_leakage_perm"], 0, 6, 2985),
    "hellaswag": (["hellaswag"], 0, 60, 10042),
    "arc_challenge": (["arc_challenge"], 0, 80, 1172),
    "mmlu_5_shot": (["mmlu_computer_security", "mmlu_global_facts"], 5, 0, 0),
}


# ---------------------------------------------------------------------- what is asked


def requests_of(tasks: list[str], n_examples: int, n_drawn: int, n_questions: int) -> list[tuple[str, str]]:
    """The (context, continuation) pairs that the harness would ask for."""
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    from lm_eval_leakage import task_configs_path

    class Recorder(LM):
        asked: list[tuple[str, str]] = []  # noqa: RUF012

        def loglikelihood(self, requests):
            self.asked += [request.args for request in requests]
            return [(0.0, False) for _ in requests]

        def loglikelihood_rolling(self, requests):
            raise AssertionError("no workload asks for this")

        generate_until = loglikelihood_rolling

    recorder = Recorder()
    drawn = sorted(random.Random(0).sample(range(n_questions), n_drawn))
    samples = dict.fromkeys(tasks, drawn) if n_drawn else None
    # without the control form, whose texts share less, so that figures remain comparable
    manager = TaskManager(include_path=task_configs_path(), metadata={"control_form": False})
    simple_evaluate(
        recorder, tasks=tasks, num_fewshot=n_examples or None, samples=samples, task_manager=manager, bootstrap_iters=0
    )
    return recorder.asked


# ---------------------------------------------------------------------- one process


def score(spec: dict) -> dict:
    """Load a backend, score the requests once; times without loading."""
    from lm_eval.api.instance import Instance

    lm = _backend(spec)
    asked = [Instance("loglikelihood", {}, tuple(pair), i) for i, pair in enumerate(spec["requests"])]
    found = {"batch_size": spec.get("batch_size")}
    if spec.get("batch_sizes"):
        found["tried"] = {}
        for batch_size in spec["batch_sizes"]:
            lm.batch_size_per_gpu = batch_size
            try:
                found["tried"][batch_size] = _timed(lambda: lm.loglikelihood(asked, disable_tqdm=True))[0]
            except RuntimeError as error:
                print(f"batch size {batch_size}: {error}"[:200], file=sys.stderr)
        return found
    _forget_peak()
    before = _cpu_seconds()
    found["seconds"], answers = _timed(lambda: lm.loglikelihood(asked, disable_tqdm=True))
    found["cpu_seconds"] = _cpu_seconds() - before
    found["answers"] = [answer[0] for answer in answers]
    found["greedy"] = [bool(answer[1]) for answer in answers]
    found["peak_mib"] = _peak()
    if spec["backend"] == "hf-prefix-tree":
        found |= _tree_figures(lm, asked)
    if spec["backend"] == "vllm-prefix-tree":
        found |= _block_figures(lm, asked, spec["block_size"])
    return found


def _backend(spec: dict):
    arguments = {"pretrained": spec["model"], "dtype": spec["dtype"]}
    if spec["backend"] in ENGINES:
        from lm_eval.models.vllm_causallms import VLLM

        from lm_eval_leakage.harness.models.vllm_prefix_tree_lm import VLLMPrefixTreeLM

        model = VLLM if spec["backend"] == "vllm" else VLLMPrefixTreeLM
        arguments |= {"max_model_len": 2048, "block_size": spec["block_size"], "batch_size": "auto"}
        return model(**arguments, enforce_eager=spec["device"] == "cpu")
    if spec["backend"] == "hf":
        from lm_eval.models.huggingface import HFLM

        return HFLM(**arguments, device=spec["device"], batch_size=spec.get("batch_size", 1))
    from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM

    return PrefixTreeLM(**arguments, device=spec["device"])


def _tree_figures(lm, asked) -> dict:
    """Token counts, the cost of building the tree, and what the model does on plain rows of 128 tokens."""
    import torch

    from lm_eval_leakage.harness.models.portions import FittedTexts
    from lm_eval_leakage.harness.models.tokenising import encoded_pairs
    from lm_eval_leakage.scoring.prefix_tree import prefix_tree

    pairs = [request.args for request in asked]
    tokenising, tokens = _timed(lambda: list(encoded_pairs(lm, pairs)))
    building, tree = _timed(lambda: prefix_tree(FittedTexts(lm.max_length).texts(pairs, tokens)))
    n_rows = max(1, lm.budget.max_tokens // 128)
    rows = torch.randint(10, 1000, (n_rows, 128), device=lm.device)
    dense = min(_timed(lambda: _plain(lm, rows))[0] for _ in range(4)) / rows.numel()
    return {
        "tree_tokens": len(tree.node_tokens),
        "row_tokens": tree.n_row_tokens,
        "scored_tokens": len(tree.target_tokens),
        "tokenising": tokenising,
        "building": building,
        "max_tokens": lm.budget.max_tokens,
        "dense_tokens_per_second": 1 / dense,
        "scorer": lm.choice.scorer.name if lm.choice.scorer else "stock hf",
    }


def _block_figures(lm, asked, block_size: int) -> dict:
    """Numbers of tokens that an engine reads: without its cache, with it, and with blocks of the usual size."""
    from lm_eval_leakage.harness.models.tokenising import encoded_pairs
    from lm_eval_leakage.scoring.token_counts import ENGINE_BLOCK, token_counts

    if lm._scorer is None:
        sys.exit("vllm-prefix-tree fell back to stock scoring; the reason is in its log")
    pairs = [request.args for request in asked]
    texts = [text.tokens for text in lm._texts(pairs, encoded_pairs(lm, pairs))]
    counts, usual = token_counts(texts, block_size), token_counts(texts, ENGINE_BLOCK)
    return {
        "block_size": block_size,
        "n_prompt_tokens": sum(map(len, texts)),
        "n_block_tokens": counts.n_block_tokens,
        "n_usual_block_tokens": usual.n_block_tokens,
    }


def _plain(lm, rows) -> None:
    import torch

    with torch.inference_mode():
        lm.model(rows).logits.shape  # noqa: B018
    if rows.is_cuda:
        torch.cuda.synchronize()


def _timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _forget_peak() -> None:
    """From here on, the peak is that of scoring: loading a checkpoint takes more than most runs."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """Peak of the process since `_forget_peak`, or of the GPU where there is one, in MiB."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


# ---------------------------------------------------------------------- all of them


def in_process(python: str, **spec: object) -> dict:
    with tempfile.TemporaryDirectory() as scratch:
        question, answer = Path(scratch, "spec.json"), Path(scratch, "found.json")
        question.write_text(json.dumps(spec))
        command = [python, __file__, "--worker", question, answer]
        environment = os.environ | ({} if python == sys.executable else {"PYTHONPATH": str(ROOT)})
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if not answer.exists():
            sys.exit(f"{spec['backend']} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return json.loads(answer.read_text())


def measure(name: str, args: argparse.Namespace) -> dict:
    tasks, n_examples, n_drawn, n_questions = WORKLOADS[name]
    requests = requests_of(tasks, n_examples, min(n_drawn * args.factor, n_questions), n_questions)
    common = {"model": args.model, "device": args.device, "block_size": BLOCKS[args.device]}
    half = common | {"dtype": "bfloat16"}
    starts = range(0, len(requests) - RUN + 1, RUN)
    drawn = sorted(random.Random(2).sample(starts, min(COMPARED // RUN, len(starts))))
    compared = [first + i for first in drawn for i in range(RUN)]
    exact = common | {"dtype": "float32", "requests": [requests[i] for i in compared], "batch_size": 4}
    found = {"n_requests": len(requests)}
    engines = {backend: [] for backend in ENGINES if args.vllm}
    if engines:
        alternate(name, engines, args, **half, requests=requests)
        truth, ours = (in_process(args.vllm, backend=backend, **exact) for backend in ENGINES)
        found["engine"] = engine_figures(engines) | {
            "float32": _differences(truth["answers"], ours["answers"]),
            "float32_greedy_equal": truth["greedy"] == ours["greedy"],
        }
        if args.vllm_only:
            return found
    first = random.Random(1).randrange(max(1, len(requests) - TRIED))
    sizes = BATCH_SIZES if args.device == "cpu" else BATCH_SIZES_CUDA
    tried = in_process(
        sys.executable,
        backend="hf",
        **half,
        requests=requests[first : first + TRIED * args.factor],
        batch_sizes=sizes,
    )["tried"]
    batch_size = int(min(tried, key=tried.get))
    runs: dict[str, list[dict]] = {"hf": [], "hf-prefix-tree": []}
    alternate(name, runs, args, **half, requests=requests, batch_size=batch_size)
    runs |= engines
    longest = sorted(requests, key=lambda pair: -len(pair[0] + pair[1]))[:32]
    at_16 = in_process(sys.executable, backend="hf", **half, requests=longest, batch_size=16)
    truth, ours = (in_process(sys.executable, backend=backend, **exact) for backend in ("hf", "hf-prefix-tree"))
    return found | {
        "batch_size": batch_size,
        "tried": tried,
        "seconds": {backend: statistics.median(run["seconds"] for run in done) for backend, done in runs.items()},
        "peak_mib": {backend: max(run["peak_mib"] for run in done) for backend, done in runs.items()},
        "hf_at_16_mib": at_16["peak_mib"],
        "tree": {key: value for key, value in runs["hf-prefix-tree"][-1].items() if key not in ("answers", "greedy")},
        "float32": _differences(truth["answers"], ours["answers"]),
        "float32_greedy_equal": truth["greedy"] == ours["greedy"],
        "bfloat16": {
            backend: _differences(truth["answers"], [done[0]["answers"][i] for i in compared])
            for backend, done in runs.items()
        },
    }


def alternate(name: str, runs: dict[str, list[dict]], args: argparse.Namespace, **spec: object) -> None:
    """Measure every backend of `runs` as often as asked for, in turns."""
    for _ in range(args.repeats):
        for backend, done in runs.items():
            python = args.vllm if backend in ENGINES else sys.executable
            done.append(in_process(python, backend=backend, **spec))
            seconds, cpu = done[-1]["seconds"], done[-1]["cpu_seconds"]
            print(f"  {name}: {backend} {seconds:.1f} s, {cpu:.1f} s of CPUs", file=sys.stderr, flush=True)


def engine_figures(runs: dict[str, list[dict]]) -> dict:
    figures = {key: value for key, value in runs["vllm-prefix-tree"][-1].items() if key not in ("answers", "greedy")}
    for key in ("seconds", "cpu_seconds"):
        figures[key] = {backend: statistics.median(run[key] for run in done) for backend, done in runs.items()}
    return figures


def _differences(truth: list[float], found: list[float]) -> dict[str, float]:
    differences = [b - a for a, b in zip(truth, found, strict=True)]
    rms = math.sqrt(sum(difference**2 for difference in differences) / len(differences))
    return {"rms": rms, "largest": max(map(abs, differences))}


SPEED = ["requests", "backend", "s", "rows' tokens/s", "times `hf`", "token ratio", "peak MiB", "off float32, nats"]
COST = ["requests", "tree tokens/s", "share of dense", "building", "tokenising", "`hf` at 16, MiB", "float32"]


def table(measured: dict[str, dict]) -> str:
    """Speed and accuracy of each backend; what the tree costs, and whether float32 agrees (largest difference)."""
    speed, cost = [], []
    for name, one in measured.items():
        tree, ours = one["tree"], one["seconds"]["hf-prefix-tree"]
        for backend, seconds in one["seconds"].items():
            off = one["bfloat16"][backend]
            speed.append(
                [
                    f"{name}, {one['n_requests']}",
                    f"`hf`, batch {one['batch_size']}" if backend == "hf" else f"`{backend}`",
                    f"{seconds:.1f}",
                    f"{tree['row_tokens'] / seconds:,.0f}",
                    f"{one['seconds']['hf'] / seconds:.2f}",
                    f"{tree['row_tokens'] / tree['tree_tokens']:.2f}" if backend == "hf-prefix-tree" else "",
                    f"{one['peak_mib'][backend]:,.0f}",
                    f"{off['rms']:.3f} rms, {off['largest']:.2f} at most",
                ]
            )
        per_second = tree["tree_tokens"] / ours
        cost.append(
            [
                name,
                f"{per_second:,.0f}",
                f"{per_second / tree['dense_tokens_per_second']:.2f}",
                f"{tree['building'] / ours:.1%}",
                f"{tree['tokenising'] / ours:.1%}",
                f"{one['hf_at_16_mib']:,.0f}",
                f"{one['float32']['largest']:.1e}, greedy {'equal' if one['float32_greedy_equal'] else 'DIFFERS'}",
            ]
        )
    tables = ([SPEED, ["---"] * len(SPEED), *speed], [COST, ["---"] * len(COST), *cost])
    return "\n\n".join("\n".join(map(_line, lines)) for lines in tables)


ENGINE = [
    "requests",
    "`vllm`, s",
    "`vllm-prefix-tree`, s",
    "times as fast",
    "in CPU seconds",
    "token ratio at the block size",
    "share of it",
    "token ratio at 16",
    "float32",
]


def engine_table(measured: dict[str, dict]) -> str:
    """How much of the ratio of tokens becomes a ratio of times."""
    lines = [ENGINE, ["---"] * len(ENGINE)]
    for name, one in measured.items():
        engine = one["engine"]
        stock, ours = (engine["seconds"][backend] for backend in ENGINES)
        cpu_stock, cpu_ours = (engine["cpu_seconds"][backend] for backend in ENGINES)
        ratio = engine["n_prompt_tokens"] / engine["n_block_tokens"]
        lines.append(
            [
                f"{name}, {one['n_requests']}",
                f"{stock:.1f}",
                f"{ours:.1f}",
                f"{stock / ours:.2f}",
                f"{cpu_stock / cpu_ours:.2f}",
                f"{ratio:.2f} at {engine['block_size']}",
                f"{stock / ours / ratio:.2f}",
                f"{engine['n_prompt_tokens'] / engine['n_usual_block_tokens']:.2f}",
                f"{engine['float32']['largest']:.1e}, greedy "
                f"{'equal' if engine['float32_greedy_equal'] else 'DIFFERS'}",
            ]
        )
    return "\n".join(map(_line, lines))


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    logging.disable(logging.INFO)
    if sys.argv[1:2] == ["--worker"]:
        question, answer = map(Path, sys.argv[2:])
        answer.write_text(json.dumps(score(json.loads(question.read_text()))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--vllm", help="the interpreter of an environment with vllm and lm_eval")
    parser.add_argument("--vllm-only", action="store_true", help="measure the two models of vLLM, and neither of hf")
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
        if args.vllm:
            print(engine_table(measured), flush=True)
        if not args.vllm_only:
            print(table(measured), flush=True)


if __name__ == "__main__":
    main()
