"""How often exchanged names find rows that a copy of a model has seen: a table of
docs/methods/details/leakage_fillers.md.

    python benchmarks/exchanged_names_power.py MODEL FILE OTHERS [--rows 200] [--draws 4] [--times 1]

MODEL: a checkpoint folder or a hub name. FILE: a benchmark without options. OTHERS: a file of other texts of the kind,
among which the copy reads the benchmark. Each draw takes `--rows` rows with a name, as `check --questions N` does,
trains a copy of the model on half of them and on as many other texts, `--times` over, in one of two layouts, and asks
all rows as the audit does. The p-values are those of the verdict, with the control form and without it, and of the
half that the copy has not seen. One draw of 200 rows takes four minutes for SmolLM2-135M on two cores.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.exchanged_names import answers_of, probe_of
from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM
from lm_eval_leakage.harness.tasks.question_files import read_file
from lm_eval_leakage.lab.training import Recipe, train
from lm_eval_leakage.questions.statements import statement_reader, with_slot
from lm_eval_leakage.records import FillerAnswers, Question
from lm_eval_leakage.results.filler_verdict import filler_verdict
from lm_eval_leakage.results.formatting import DASH
from lm_eval_leakage.stats.order_scores import find_device

TRAINED = {"statement": "{stem}", "prompt and answer": "Question: {stem}\nAnswer: {answer}"}


def texts_of(rows: Sequence[tuple[Question, str]], layout: str) -> list[str]:
    return [TRAINED[layout].format(stem=question.stem, answer=answer) for question, answer in rows]


def read_rows(file: Path) -> list[tuple[Question, str]]:
    """Return the rows of a file with their answers as text."""
    docs = [*read_file(file)]
    read = statement_reader(docs)
    return [(question, str(doc.get("answer", ""))) for doc in docs if isinstance(question := read(doc), Question)]


def pvalue(answers: Sequence[FillerAnswers]) -> str:
    """Return what the verdict says: its p-value and the preference, ± its error."""
    verdict = filler_verdict(answers)
    if verdict.pvalue is None or verdict.tested is None:
        return DASH
    return f"p = {verdict.pvalue:.4f} ({verdict.tested.mean:+.2f} ± {verdict.tested.mean_error:.2f}, n = {verdict.n})"


def without_control(answers: Sequence[FillerAnswers]) -> list[FillerAnswers]:
    return [replace(answer, control=()) for answer in answers]


def one_copy(args: argparse.Namespace, draw: int, layout: str) -> str:
    """Return the row of the table of one copy, which is trained for it."""
    rows, others, rng = read_rows(args.file), read_rows(args.others), random.Random(draw)
    with_names = {question.id for question in with_slot([question for question, _ in rows])}
    chosen = rng.sample([row for row in rows if row[0].id in with_names], args.rows)
    seen = chosen[: args.rows // 2]
    texts = texts_of([*seen, *rng.sample(others, len(seen))], layout)
    rng.shuffle(texts)
    with TemporaryDirectory() as folder:
        copy = train(args.model, Path(folder), texts, Recipe(), [args.times], seed=draw)[args.times]
        lm = PrefixTreeLM(pretrained=str(copy), dtype="bfloat16", device=find_device("auto").type)
    questions = [question for question, _ in chosen]
    probe = probe_of(lm, questions)
    answers, half = answers_of(lm, probe), answers_of(lm, probe_of(lm, questions[args.rows // 2 :]))
    cells = [pvalue(form(part)) for part in (answers, half) for form in (list, without_control)]
    return f"| {draw} | {layout} | {probe.start!r} | {cells[0]} | {cells[1]} | {cells[2]}; {cells[3]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("others", type=Path)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--times", type=int, default=1)
    args = parser.parse_args()
    print("| draw | trained on | start | with the control form | without it | the other half, with and without |")
    print("| --- | --- | --- | --- | --- | --- |")
    with get_context("spawn").Pool(1, maxtasksperchild=1) as processes:  # training keeps the memory that it has freed
        for draw in range(args.draws):
            for layout in TRAINED:
                print(processes.apply(one_copy, (args, draw, layout)), flush=True)


if __name__ == "__main__":
    main()
