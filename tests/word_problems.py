"""Rows without options, written as a user writes them: a task of lm_eval that generates its answers."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage.questions.slots import gender_of

NAMES = sorted(gender_of())
THINGS = ("pears", "bricks", "stamps", "shells", "ribbons", "nails", "lanterns", "marbles", "tiles", "candles")
PLACES = ("at the market", "behind the barn", "on the bridge", "near the mill", "in the attic", "by the canal")


def town(number: int) -> str:
    """Return a word that stands in one row alone."""
    return "".join("abcdefghij"[int(digit)] for digit in f"{number:03}") + "ville"


def road(number: int) -> str:
    """Return words by which a row is no near copy of another one."""
    return " ".join(town(10 * number + stop).replace("ville", "ham") for stop in range(10))


def word_problems(n: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows whose names were drawn at random."""
    rng = random.Random(seed)
    rows = []
    for number in range(n):
        name, count = rng.choice(NAMES), rng.randint(2, 90)
        thing, place = rng.choice(THINGS), rng.choice(PLACES)
        text = f"{name} found {count} {thing} {place} in {town(number)} on a trip and sold {count // 2} of them."
        text += f" The road led by {road(number)}."
        rows.append({"question": f"{text} How many are left for {name}?", "answer": str(count - count // 2)})
    return rows


def write_generating_task(folder: Path, name: str, rows: Sequence[dict[str, Any]], train: Sequence[Any] = ()) -> None:
    """Write the YAML and the rows of a task that generates its answers."""
    data = ""
    for split, rows_of_split in (("test", rows), ("train", train)):
        if rows_of_split:
            file = folder / f"{name}_{split}.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows_of_split), encoding="utf-8")
            data += f"    {split}: {file}\n"
    (folder / f"{name}.yaml").write_text(
        f"task: {name}\noutput_type: generate_until\ndataset_path: json\ntest_split: test\n"
        f"{'training_split: train' if train else '#'}\ndataset_kwargs:\n  data_files:\n{data}"
        'doc_to_text: "Question: {{question}}\\nAnswer:"\ndoc_to_target: answer\n'
        'generation_kwargs:\n  until: ["\\n"]\nmetric_list:\n  - metric: exact_match\n'
    )
