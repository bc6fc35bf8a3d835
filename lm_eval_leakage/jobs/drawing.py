"""Draws of a benchmark's rows: the same for all models, runs and audits; a larger draw includes a smaller one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from lm_eval_leakage.harness.task_shelf import PlacedRow
from lm_eval_leakage.harness.tasks.task import drawn
from lm_eval_leakage.questions.families import each_once

N_QUESTIONS = 300  # where no number is enough
FEWEST_DRAWN = 200  # where fewer would be enough for a verdict: an accuracy needs more
STAGED_FROM = 2 * FEWEST_DRAWN  # questions; so many are drawn in two stages
FIRST_PART = 0.28  # of them in the first stage, at least `FEWEST_DRAWN`: enough for about two in three clean models
ChosenIndices = Mapping[str, Sequence[int]]  # indices of questions by task, sorted, as lm_eval's `samples` takes them


def drawn_once(rows: Sequence[PlacedRow], n: int | None, seed: int) -> list[PlacedRow]:
    """Return `n` questions at random, none a copy of another.

    All rows are returned, with copies, for None or if there are no more questions.
    """
    once = each_once(rows, lambda row: row.key)
    return list(rows) if n is None or n >= len(once) else drawn(once, n, seed)


def samples_of(rows: Iterable[PlacedRow]) -> ChosenIndices:
    samples: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        samples[row.task].add(row.index)
    return {task: sorted(indices) for task, indices in samples.items()}
