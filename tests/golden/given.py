"""What every case is given: the files in its folder, and stand-ins for models that have seen some of the questions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.own_benchmark import write_task
from lm_eval_leakage.seal.folders import read_seal
from tests.checking.conftest import OptionOrders, questions, written
from tests.fakes import Score, by_hash
from tests.sealed import has_seen, rows

Docs = list[dict[str, Any]]
ENOUGH = 420  # to call random orders random
N = 100
LETTERS = "ABCD"
MEMORY = (4.0, 1.0)
TEXTS = "texts.json"


def with_subjects(docs: Docs) -> Docs:
    return [doc | {"subject": ("birds", "trees", "stones")[number % 3]} for number, doc in enumerate(docs)]


def ordered_by_length(docs: Docs) -> Docs:
    """Every third question with options by length, as people write them, and every tenth with numbers in order."""
    ordered = []
    for number, doc in enumerate(docs):
        options = sorted(doc["choices"], key=len) if number % 3 == 0 else doc["choices"]
        if number % 10 == 0:
            options = [f"{number + place} metres" for place in range(len(options))]
        ordered.append(doc | {"choices": options})
    return ordered


QUIZ = with_subjects(questions(ENOUGH))
WRITTEN = ordered_by_length(questions(N, seed=1))
FILES = {
    "quiz.jsonl": QUIZ,
    "written.jsonl": WRITTEN,
    "two.jsonl": questions(60, n_options=2, seed=2),
    "private.jsonl": with_subjects(questions(60, seed=3)),
    "short.jsonl": QUIZ[:N],
    "few.jsonl": QUIZ[:12],
    "trees.jsonl": rows(64),
    "no_key.jsonl": [{key: doc[key] for key in ("question", "choices")} for doc in QUIZ[:40]],
}
PLAN = """\
models:
  - {name: clean, model: fake, model_args: {pretrained: clean}}
  - {name: half, model: fake, model_args: {pretrained: half}}
tasks: [short, written]
audits: [leakage_perm, choice_confusion]
questions: 40
include_path: tasks
"""
SETTINGS = """\
model: fake
model_args: pretrained=half
tasks: both
questions: 40
include_path: tasks
output_path: by_settings
dry_run: true
"""
GROUP = """\
group: both
task: [short, written]
aggregate_metric_list: [{metric: acc, aggregation: mean, weight_by_size: true}]
metadata: {version: 1}
"""


class Remembering:
    """A model that prefers the published orders of the questions that it has seen and knows their right options."""

    def __init__(self, seen: Sequence[dict[str, Any]] = (), memory: tuple[float, float] = (0.0, 0.0)) -> None:
        self.orders = OptionOrders(seen, memory, tidy=0.8)
        self.right = {doc["question"]: doc["choices"][doc["answer"]] for doc in seen}

    def __call__(self, context: str, continuation: str) -> float:
        letter, right = continuation.strip(), self.right.get(context.split("\n")[0])
        if right is not None and letter in LETTERS:
            return 0.0 if f"\n{letter}. {right}\n" in context else by_hash(context, continuation)
        return self.orders(context, continuation)


def reader() -> Score:
    """A model that has seen most of the sealed benchmark in the folder where it is loaded."""
    return has_seen(read_seal(Path("sealed/private")), range(40))


def trained(source: Path | str, folder: Path, texts: Sequence[str], *_: object, **__: object) -> dict[int, Path]:
    """Instead of training: a folder with the texts that a copy has seen once."""
    copy = folder / "epoch_1"
    copy.mkdir(parents=True, exist_ok=True)
    (copy / TEXTS).write_text(json.dumps(texts))
    return {1: copy}


MODELS: dict[str, Callable[[], Score]] = {
    "clean": Remembering,
    "seen": lambda: Remembering([*QUIZ, *WRITTEN, *FILES["two.jsonl"]], MEMORY),
    "half": lambda: Remembering([*QUIZ[::2], *WRITTEN[::2]], MEMORY),
    "reader": reader,
}


def model_named(pretrained: str) -> Score:
    """One of `MODELS`, or the copy in a folder that `trained` has made."""
    if not (texts := Path(pretrained) / TEXTS).exists():
        return MODELS[pretrained]()
    seen = "\n".join(json.loads(texts.read_text()))
    return Remembering([doc for doc in QUIZ if doc["question"] in seen], MEMORY)


def lay_out(folder: Path) -> None:
    """Makes a folder with the files that every case may name."""
    folder.mkdir(parents=True)
    for name, docs in FILES.items():
        written(folder, docs, name)
    tasks = folder / "tasks"
    for name in ("short", "written"):
        write_task(folder / f"{name}.jsonl", tasks, name)
    (tasks / "both.yaml").write_text(GROUP)
    (folder / "settings.yaml").write_text(SETTINGS)
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "changed.yaml").write_text(PLAN + "seed: 1\n")
    (folder / "broken.jsonl").write_text(json.dumps({"prompt": "Which?"}) + "\n")
