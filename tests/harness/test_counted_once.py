"""Rows of the harness's table count each question once, whichever process or task has its copies."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from lm_eval_leakage.harness.table import Contribution, known_rows, pooled
from lm_eval_leakage.records import Evidence

RATE = known_rows()["flagged_rate"]
PVALUE = known_rows()["dataset_pvalue"]


@dataclass(frozen=True)
class Found(Evidence):
    @property
    def statistic(self) -> float:
        return 1.0


FLAGGED, OTHER = Found(True, 0.04, 0.04), Found(False, 0.5, 0.04)


def contributions(task: str, keys: str, given: Evidence = OTHER) -> list[Contribution]:
    return [Contribution(given, key, (task, place)) for place, key in enumerate(keys)]


def test_the_pvalue_is_that_of_distinct_questions() -> None:
    once = contributions("t", "abc", FLAGGED)
    assert PVALUE(once + once) == PVALUE(once) == pytest.approx(0.04**3)
    assert PVALUE(once + once).counted.n_copies == 3


def test_the_first_row_counts_in_whatever_order_processes_hand_them_in() -> None:
    found = [*contributions("t", "abcd", FLAGGED), *contributions("t", "....abcd")[4:]]
    for seed in range(5):
        random.Random(seed).shuffle(found)
        assert RATE(found) == 1.0


def test_a_group_counts_what_two_of_its_tasks_ask_once() -> None:
    members = [RATE(contributions("b", "abc")), RATE(contributions("a", "cd", FLAGGED))]
    together = pooled(members)
    assert together == 0.5
    assert (len(together.counted.verdicts), together.counted.n_copies) == (4, 1)
    assert [member.counted.n_copies for member in members] == [0, 0]


def test_questions_without_a_key_all_count() -> None:
    assert RATE([Contribution(FLAGGED, "", ("t", 0)), Contribution(OTHER, "", ("t", 1)), OTHER, OTHER]) == 0.25
