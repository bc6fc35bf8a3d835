"""What is usual, and fails: scalars of other libraries, models in memory whose name is given, the tasks that lm_eval
installs, and questions that are longer than the window."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from lm_eval_leakage import check
from lm_eval_leakage.harness.auditable import judge
from tests.checking.conftest import written
from tests.faults.tally import Tally, attack
from tests.faults.weighed import DOCS, NAME, TRAINED, Place, Weighed
from tests.installed_tasks import coverage_of, given_rows, of_each_shape, rows_of
from tests.prompt_layouts import random_layout

NUMBERS = ("verdict", "reason", "pvalue", "ratio", "n", "n_tested", "flagged", "accuracy", "inflation")
Convert = Callable[[float, bool], tuple[Any, Any]]
SCALARS: Mapping[str, Convert] = {
    "numpy": lambda value, greedy: (np.float64(value), np.bool_(greedy)),
    "numpy without axes": lambda value, greedy: (np.array(value), np.array(greedy)),
    "torch": lambda value, greedy: (torch.tensor(value, dtype=torch.float64), torch.tensor(greedy)),
    "a list": lambda value, greedy: [np.float64(value), int(greedy)],  # type: ignore[dict-item, return-value]
}
NO_SCALARS: Mapping[str, Convert] = {
    "an array": lambda value, greedy: (np.array([value]), greedy),
    "a tensor": lambda value, greedy: (torch.tensor([value]), greedy),
    "NaN": lambda value, greedy: (np.float32("nan"), greedy),
    "a truth value": lambda value, greedy: (np.False_, greedy),
    "texts": lambda value, greedy: (value, str(greedy)),
}


def _converted(convert: Convert, share: float, salt: float) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """A way to give answers of another kind to a share of the requests, which depends on the request alone."""

    def spoil(answers: Sequence[Any], requests: Sequence[Any]) -> Any:
        is_other = [random.Random(f"{salt}{request.args}").random() < share for request in requests]
        return [convert(*row) if other else row for row, other in zip(answers, is_other, strict=True)]

    return spoil


def _numbers(verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the numbers of the verdicts, without the name of the model and its files."""
    return [{name: verdict[name] for name in NUMBERS} for verdict in verdicts]


def _check_loaded(place: Place) -> None:
    lm = Weighed(str(place.model))
    outcome = check(lm, "pretrained=mine-7b", str(place.quiz), output_path=place.out, fail_on="evidence")
    print(*outcome.problems, sep="\n")


@attack("scalars of numpy and torch, models in memory that arguments name", 40, 1)
def scalars(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Scalars give the verdict of Python's numbers; a question with another answer is left out with the reason."""
    place = Place(folder)
    for number in range(tries):
        place.as_new()
        place.weights(rng.choice([TRAINED, b"once upon a time"]))
        place.check()
        right = place.verdicts()
        place.without_output()
        is_scalar, is_loaded = rng.random() < 0.6, rng.random() < 0.5
        kind = rng.choice([*(SCALARS if is_scalar else NO_SCALARS)])
        convert = SCALARS[kind] if is_scalar else NO_SCALARS[kind]
        Weighed.spoil = staticmethod(_converted(convert, rng.choice([0.01, 1.0]), rng.random()))
        try:
            ended = place.run(["check"], lambda: _check_loaded(place)) if is_loaded else place.check()
        finally:
            Weighed.spoil = None
        tally.tries += 1
        verdicts = place.verdicts()
        is_right = _numbers(verdicts) == _numbers(right)
        text = f"{ended.output}{verdicts}"
        is_said = "must be finite and at most 0" in text or "must be a log-likelihood and a boolean" in text
        tally.record(
            f"{number}: {kind}, loaded: {is_loaded}: {verdicts}", wrong=not (is_right or (is_said and not is_scalar))
        )


# ---------------------------------------------------------------------- the tasks that lm_eval installs

OTHER_VALUES = (None, "", 7, -1, 0.5, True, [], {}, ["only"], [None, None], {"text": "a"}, "\ud800", "A" * 5000)


def _damaged(rows: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """The same rows with another value in a field of all of them, or without it; sometimes as they are."""
    if not rows[0] or rng.random() < 0.3:
        return rows
    field, value = rng.choice([*rows[0]]), rng.choice([*OTHER_VALUES, "left out"])
    if value == "left out":
        return [{name: value for name, value in row.items() if name != field} for row in rows]
    return [row | {field: value} for row in rows]


@attack("multiple-choice tasks of lm_eval, with rows as their settings name them and damaged ones", 700, 1)
def installed(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """One task of each shape in turn: `ls` and `check --dry_run` end with a plan or with one sentence on the task."""
    logging.disable(logging.CRITICAL)
    tasks = of_each_shape()
    for number in range(tries):
        task = tasks[number % len(tasks)]
        rows = coverage_of(task)[0] if number < len(tasks) else _damaged(rng.choice([*rows_of(task)]), rng)
        tally.tries += 1
        with given_rows(task, rows):
            try:
                reason = judge(task.name, SimpleNamespace(cfg=task.settings, yaml_path=task.file)).reason
                where = {"include_path": task.file.parent, "output_path": folder / str(number)}
                outcome = check(NAME, {"pretrained": str(folder)}, task.name, dry_run=True, **where)
                reported = "" if outcome.plan is None else "a plan"
            except ValueError as error:
                reported = str(error) if str(error).startswith(f"{task.name} cannot be ") else ""
                reason = ""
            except Exception as error:
                reported = reason = ""
                tally.notes.append(f"{number}: {task.name}: {error!r}")
        is_sentence = bool(reported) and len(f"{reason}{reported}".splitlines()) == 1
        tally.record(f"{number}: {task.name}: {reason} {reported} with {rows[0]}", wrong=not is_sentence)
    logging.disable(logging.NOTSET)


@attack("prompts in random layouts", 3000, 100)
def layouts(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Options that the row holds as values are read exactly, or the question is refused with a reason."""
    for number in range(tries):
        layout = random_layout(rng)
        tally.tries += 1
        fault = layout.fault()
        tally.record(f"{number}: {fault} in {layout.prompt!r} with {layout.row}", wrong=bool(fault))


# ---------------------------------------------------------------------- windows


@attack("questions longer than the model's window", 40, 1)
def windows(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """The verdict is that of the same benchmark without the long questions, with their number; where none fits, the
    remedy is a larger window."""
    place = Place(folder)
    for number in range(tries):
        place.as_new()
        place.weights(rng.choice([TRAINED, b"once upon a time"]))
        window = rng.choice([100, 200])
        long = {*rng.sample(range(len(DOCS)), rng.choice([1, 5, 15, len(DOCS)]))}
        docs = [
            doc | {"question": f"word{row} " * window + doc["question"]} if row in long else doc
            for row, doc in enumerate(DOCS)
        ]
        Weighed.max_length = window
        try:
            written(folder, [doc for row, doc in enumerate(docs) if row not in long] or docs[:1])
            place.check()
            right = place.verdicts()
            place.without_output()
            written(folder, docs)
            place.check()
        finally:
            del Weighed.max_length
        tally.tries += 1
        (record,) = place.verdicts()
        if len(long) == len(DOCS):
            is_right = record["accuracy"] is None and "max_length" in record["summary"]
        else:
            names = ("verdict", "pvalue", "n_tested", "flagged", "accuracy", "accuracy_stderr")
            is_right = [record[name] for name in names] == [right[0][name] for name in names]
        is_counted = record["n_too_long"] == record["n_left_out"] == len(long) and record["n"] == len(DOCS)
        tally.record(f"{number}: window {window}, {len(long)} long: {record}", wrong=not (is_right and is_counted))
