"""No layout of a prompt is cut wrongly, and none has its options asked a second time."""

from __future__ import annotations

import random

from lm_eval_leakage.questions.reader import read_question
from lm_eval_leakage.records import UntestableQuestion
from tests.prompt_layouts import Layout, random_layout


def test_random_layouts_are_read_exactly_or_refused() -> None:
    rng = random.Random(0)
    layouts = [random_layout(rng) for _ in range(1500)]
    faults = {layout.prompt: fault for layout in layouts if (fault := layout.fault())}
    assert not faults


def test_most_layouts_are_read() -> None:
    rng = random.Random(1)
    n_refused = sum(map(_is_refused, (random_layout(rng) for _ in range(500))))
    assert n_refused < 50


def _is_refused(layout: Layout) -> bool:
    try:
        read_question(layout.row, layout.prompt, layout.choices, 0)
    except UntestableQuestion:
        return True
    return False
