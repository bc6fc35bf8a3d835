"""Is a model that never saw a benchmark accused?

    python benchmarks/clean_cases.py --folder FOLDER --model NAME=MODEL_ARGS --sets SET ... [--chat]
    python benchmarks/clean_cases.py --folder FOLDER [--mixed own:events mmlu ...] > docs/clean_cases.csv

A SET is NAME=TASK with a task of the harness or a file of questions, or own:NAME with one of `clean_sets`. The model's
answers to the compared orders of the questions without a guard, of the first `--n` of a random draw, are kept in
FOLDER, a question a line, so that a run that was killed continues where it was. The table has a row per model, set and
number of questions in `SIZES`: those that `check --questions N` would ask. `--mixed` adds, for every two neighbours of
its list, the second one with `SHARES` of its questions replaced by questions of the first.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from clean_sets import own_set
from lm_eval.api.instance import Instance
from models import load_model
from tqdm import tqdm

from lm_eval_leakage.detectors.option_orders import LAYOUT_SETS, MOST_COMPARED, OptionOrders, Order
from lm_eval_leakage.harness.tasks.given_questions import questions_of
from lm_eval_leakage.questions.families import distinct, shared_texts
from lm_eval_leakage.questions.guards import guards_of, shared_option_sets
from lm_eval_leakage.questions.rendering import AUDITED
from lm_eval_leakage.records import OrderAnswers, Question, Request
from lm_eval_leakage.results.data_verdict import data_verdict
from lm_eval_leakage.results.order_tests import order_tests
from lm_eval_leakage.results.published_orders import null_status
from lm_eval_leakage.stats.order_sum import averaged, averaged_controls

SIZES = (30, 100, 300, 600)
SHARES = (0.05, 0.1, 0.3)  # of a set that is mixed into another
MOST_ORDERS, AT_ONCE = 24, 16  # of the orders of a question, `MOST_COMPARED` are asked
CHAT = "_chat"
COLUMNS = ["model", "format", "set", "orders", "questions", "judged", "mean", "error", "p", "verdict"]
Row = Mapping[str, Any]


class ComparedOrders(OptionOrders):
    """Only those orders of which the verdict by controls is computed."""

    def chosen_orders(self, question: Question) -> list[Order]:
        orders = OptionOrders(self.max_orders, layouts=self.layouts)
        every, places = orders.chosen_orders(question), orders.compared(question)
        return [every[place] for place in places]


def drawn(spec: str, n: int, most_letters: int) -> list[tuple[Question, bool]]:
    """Questions and whether they have a guard, which depends on the whole benchmark."""
    name, _, source = spec.partition("=")
    pool = own_set(name.removeprefix("own:"), n) if name.startswith("own:") else distinct(questions_of(source))
    templates = shared_option_sets(pool)
    fitting = [question for question in random.Random(name).sample(pool, len(pool)) if _fits(question, most_letters)]
    numbered = [replace(question, id=f"{name} {place}") for place, question in enumerate(fitting[:n])]
    return [(question, bool(guards_of(question, templates))) for question in numbered]


def _fits(question: Question, most_letters: int) -> bool:
    n_options = len({option.strip() for option in question.options})
    return (
        2 <= n_options == len(question.options) <= 6
        and sum(map(len, (question.stem, *question.options))) <= most_letters
    )


def texts(probe: OptionOrders, question: Question) -> list[Request]:
    """Those of the published form, then those of the control forms; none where no verdict could rest on them."""
    control = probe.control(question)
    return [*probe.requests(question), *control] if control else []


def score(
    lm: Any, file: Path, questions: Sequence[tuple[Question, bool]], probe: ComparedOrders, *, chat: bool
) -> None:
    frame = (lambda text: lm.apply_chat_template([{"role": "user", "content": text}])) if chat else str
    done = len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as kept, tqdm(total=len(questions), initial=done, desc=str(file)) as bar:
        for first in range(done, len(questions), AT_ONCE):
            batch = questions[first : first + AT_ONCE]
            texts_of_batch = [[] if guarded else texts(probe, question) for question, guarded in batch]
            flat = [Instance("loglikelihood", {}, (frame(a), b), 0) for text in texts_of_batch for a, b in text]
            answers = iter(lm.loglikelihood(flat, disable_tqdm=True) if flat else [])
            for (question, guarded), text in zip(batch, texts_of_batch, strict=True):
                values = [next(answers)[0] for _ in text]
                row = {**asdict(question), "guarded": guarded, "scores": values, "layouts": probe.layouts}
                kept.write(json.dumps(row) + "\n")
            kept.flush()
            bar.update(len(batch))


def question_of(row: Row) -> Question:
    return Question(row["id"], row["stem"], tuple(row["options"]), row["answer"])


def layouts_of(row: Row) -> tuple[str, ...]:
    return LAYOUT_SETS[row.get("layouts", AUDITED)]


def n_compared(row: Row) -> int:
    """Return the number of compared texts: in each layout, in words once, and in capitals in each layout."""
    return len(row["scores"]) // (2 * len(layouts_of(row)) + 1)


def answers_of(row: Row, orders: str) -> OrderAnswers:
    """Guards of the question itself are recomputed, so that a changed one needs no new run."""
    values, question = row["scores"], question_of(row)
    n, layouts = n_compared(row), layouts_of(row)
    n_layouts = len(layouts)
    guarded = row["guarded"] or bool(guards_of(question))
    if not n:  # not asked
        return OrderAnswers((0.0, 0.0), orders, guarded)
    most = MOST_ORDERS if n == MOST_COMPARED else n
    right = ComparedOrders(most, layouts=row.get("layouts", AUDITED)).right_places(question)
    mean, control = averaged(values[: n * n_layouts], n_layouts), averaged_controls(values[n * n_layouts :], n_layouts)
    several = layouts if n_layouts > 1 else ()
    return OrderAnswers(mean, orders, guarded, control, (), shared_texts(question), (), right, several)


def table(folder: Path, mixed: Sequence[str]) -> Iterator[list[object]]:
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        sets = {file.stem: _rows(file) for file in sorted(place.glob("*.jsonl"))}
        for first, second in pairwise(mixed):
            if first in sets and second in sets:
                sets |= {f"{second}+{share:.0%}{first}": _mixed(sets, first, second, share) for share in SHARES}
        for name, rows in sets.items():
            orders = null_status(order_tests(map(question_of, rows))).status
            for size in SIZES:
                if size <= len(rows) or size == min(size for size in SIZES if size >= len(rows)):
                    yield [*_of_model(place.name), name, orders, *_verdict(rows[:size], orders)]


def _rows(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _mixed(sets: Mapping[str, Sequence[Row]], first: str, second: str, share: float) -> list[Row]:
    rng = random.Random(f"{first} {second} {share}")
    pairs = zip(sets[first], sets[second], strict=False)
    return [row if rng.random() < share else other for row, other in pairs]


def _of_model(folder: str) -> tuple[str, str]:
    return folder.removesuffix(CHAT), "chat" if folder.endswith(CHAT) else "plain"


def _verdict(rows: Sequence[Row], orders: str) -> list[object]:
    verdict = data_verdict(answers_of(row, orders) for row in rows)
    tested = verdict.tested
    numbers = [f"{round(value, 2) + 0.0:.2f}" for value in (tested.mean, tested.mean_error)]  # no "-0.00"
    return [len(rows), verdict.n, *numbers, f"{tested.pvalue:.2g}", verdict.word]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the answers are kept")
    parser.add_argument("--model", metavar="NAME=MODEL_ARGS", help="a model that is clean of all sets")
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--chat", action="store_true", help="ask in the model's chat format")
    parser.add_argument("--n", type=int, default=max(SIZES), help="questions of a set")
    parser.add_argument("--layouts", choices=LAYOUT_SETS, default=AUDITED, help="in which each order is asked")
    parser.add_argument("--orders", type=int, default=MOST_ORDERS, help="orders of a question, at most")
    parser.add_argument("--max_letters", type=int, default=800, help="leave out longer questions, with their options")
    parser.add_argument(
        "--mixed", nargs="+", default=[], metavar="SET", help="pairs of sets to mix: each with the next"
    )
    args = parser.parse_args()
    if args.model:
        name, _, model_args = args.model.partition("=")
        lm = load_model("hf-prefix-tree", model_args)
        for spec in args.sets:
            file = args.folder / f"{name}{CHAT if args.chat else ''}" / f"{spec.partition('=')[0]}.jsonl"
            questions = drawn(spec, args.n, args.max_letters)
            score(lm, file, questions, ComparedOrders(args.orders, layouts=args.layouts), chat=args.chat)
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows([COLUMNS, *table(args.folder, args.mixed)])


if __name__ == "__main__":
    main()
