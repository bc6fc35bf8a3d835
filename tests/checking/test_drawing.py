"""Draws of questions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.harness.task_shelf import PlacedRow, found_among
from lm_eval_leakage.harness.tasks.task import drawn
from lm_eval_leakage.jobs.drawing import samples_of
from lm_eval_leakage.jobs.present_runs import PresentRun


def rows(n: int, task: str = "t") -> list[PlacedRow]:
    return [PlacedRow(task, index, f"hash {index}", f"text {index}") for index in range(n)]


@given(st.integers(1, 200), st.integers(0, 250), st.integers(0, 250), st.integers(0, 5))
def test_a_larger_draw_includes_a_smaller_one_in_the_published_order(n: int, few: int, more: int, seed: int) -> None:
    few, more = sorted((few, more))
    small, large = drawn(rows(n), few, seed), drawn(rows(n), more, seed)
    assert set(small) <= set(large)
    assert len(large) == min(more, n)
    assert drawn(rows(n), None, seed) == rows(n)
    assert [row.index for row in large] == sorted(row.index for row in large)


def test_every_question_is_drawn_equally_often() -> None:
    counts = [0] * 10
    for seed in range(2000):
        for row in drawn(rows(10), 3, seed):
            counts[row.index] += 1
    assert all(abs(count - 600) < 5 * (2000 * 0.3 * 0.7) ** 0.5 for count in counts)


def test_a_question_is_found_by_its_row_else_by_its_text() -> None:
    same_row = PlacedRow("a", 4, "hash 1", "other text")
    same_text = PlacedRow("b", 5, "other hash", "text 2")
    docs = rows(4)
    assert found_among([same_row, same_text], docs) == [(docs[1], same_row), (docs[2], same_text)]
    # rows of an unknown schema have an empty text
    assert found_among([PlacedRow("a", 0, "x", "")], [PlacedRow("b", 0, "y", "")]) == []


def test_indices_are_sorted_and_counted_once() -> None:
    assert samples_of([*rows(3)[::-1], rows(3)[0], *rows(1, "u")]) == {"t": [0, 1, 2], "u": [0]}


def test_an_audit_is_the_same_if_its_detectors_are_among_those_of_the_task() -> None:
    """A member of a group of which no question was drawn has no line in the log."""
    members = {name: SimpleNamespace(detectors={"outlier": f"outlier:delta={name}"}) for name in ("-0.1", "-0.3")}
    loaded: Any = SimpleNamespace(leaves=members, digest=lambda task: "rows")
    row = PlacedRow("-0.1", 0, "hash", "content")

    def run(*detectors: str) -> PresentRun:
        default_detectors = {"leakage_perm": frozenset({"hash"})}
        return PresentRun(default_detectors, {"-0.1": "rows"}, (), {"leakage_perm": frozenset(detectors)})

    assert run("outlier:delta=-0.1").is_of("leakage_perm", [row], loaded)
    assert not run("outlier").is_of("leakage_perm", [row], loaded)
    assert not run("outlier:delta=-0.1", "outlier").is_of("leakage_perm", [row], loaded)
