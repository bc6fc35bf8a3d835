"""Does sealing change scores or rankings? Accuracy on the author's version of a benchmark and on sealed ones.

    python benchmarks/sealing_cost.py --models small=pretrained=DIR other=pretrained=DIR > table.md

Of each benchmark, the same random questions are asked as their author ordered them, and as `--versions` keys draw
them; options that depend on their order stay, as `lm-eval-leakage seal` keeps them. Options are lettered, and the
answer is the letter. The error of a difference is that of a mean over questions, paired.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from models import load_model, loglikelihoods

from lm_eval_leakage.detectors.shared_likelihood import published_text
from lm_eval_leakage.harness.tasks.given_questions import questions_of
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.tabulating import markdown_of
from lm_eval_leakage.seal.drawn import Original, new_key, order_dependence, published_questions

LETTERS = "ABCDE"
Right = npt.NDArray[np.float64]


def drawn(task: str, n: int) -> list[Question]:
    pool = {
        question.stem: question
        for question in questions_of(task)
        if question.answer is not None and len(question.options) <= len(LETTERS)
    }
    usable = [
        question
        for question in pool.values()
        if len({option.strip() for option in question.options}) == len(question.options)
    ]
    plain = [replace(question, frame=None, prompt=None) for question in usable]
    return random.Random(f"cost {task}").sample(plain, min(n, len(plain)))


def sealed_versions(questions: Sequence[Question], count: int) -> Iterator[list[Question]]:
    """Each in the author's order of questions, so that answers can be compared question by question."""
    originals = [original(question) for question in questions]
    for _ in range(count):
        public = {
            published_question.wordings[0]: published_question
            for published_question in published_questions(originals, new_key())
        }
        yield [
            replace(question, options=public[question.stem].options, answer=public[question.stem].answer)
            for question in questions
        ]


def original(question: Question) -> Original:
    assert question.answer is not None
    order = "drawn" if order_dependence((question.stem,), question.options) is None else "kept"
    return Original(question.stem, (), question.options, (question.answer,), "", order)  # type: ignore[arg-type]


def right_answers(lm: Any, questions: Sequence[Question]) -> Right:
    texts = [
        (f"{published_text(question)}\nAnswer:", f" {letter}")
        for question in questions
        for letter in letters(question)
    ]
    values = iter(loglikelihoods(lm, texts))
    chosen = [int(np.argmax([next(values) for _ in letters(question)])) for question in questions]
    return np.array([place == question.answer for place, question in zip(chosen, questions, strict=True)], dtype=float)


def letters(question: Question) -> str:
    return LETTERS[: len(question.options)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, metavar="NAME=MODEL_ARGS")
    parser.add_argument("--tasks", nargs="+", default=["mmlu", "arc_challenge", "openbookqa"])
    parser.add_argument("--n", type=int, default=300, help="questions of each benchmark")
    parser.add_argument("--versions", type=int, default=5, help="keys")
    args = parser.parse_args()
    questions = {task: drawn(task, args.n) for task in args.tasks}
    sealed = {task: list(sealed_versions(questions[task], args.versions)) for task in args.tasks}
    lines = [["benchmark", "model", "questions", "author's order", "sealed: mean", "difference", "sealed: versions"]]
    for name, model_args in (text.split("=", 1) for text in args.models):
        lm = load_model("hf-prefix-tree", model_args)
        for task in args.tasks:
            before = right_answers(lm, questions[task])
            after = np.array([right_answers(lm, version) for version in sealed[task]])
            lines.append([task, name, str(len(before)), *_cells(before, after)])
    print(markdown_of(lines))


def _cells(before: Right, after: Right) -> list[str]:
    change = after.mean(axis=0) - before
    error = float(change.std(ddof=1)) / math.sqrt(len(change))
    ends = f"{after.mean(axis=1).min():.3f} to {after.mean(axis=1).max():.3f}"
    return [f"{before.mean():.3f}", f"{after.mean():.3f}", f"{change.mean():+.3f} ± {error:.3f}", ends]


if __name__ == "__main__":
    main()
