from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, fisher_exact, poisson_binom, sem

from lm_eval_leakage.logs.audit_line import Arms
from lm_eval_leakage.results.columns import ARM_COLUMNS, values_of
from lm_eval_leakage.results.measured import Entry, Measured
from lm_eval_leakage.results.result_types import AuditedQuestion
from lm_eval_leakage.results.rows import strata_of
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate, normal, share


def audited(number: int = 0, **fields: Any) -> AuditedQuestion:
    return AuditedQuestion(f"hash {number}", "words", "mmlu", "history", "Question?", ("a", "b"), 0, **fields)


def columns(
    flagged: Sequence[bool | None], scores: Sequence[float | None], strata: Sequence[str] = ()
) -> dict[str, Any]:
    answers = zip(flagged, scores, strata or [""] * len(scores), strict=True)
    return values_of(Measured([Entry(audited(i, flagged=flag), *answer) for i, (flag, *answer) in enumerate(answers)]))


def of(*questions: AuditedQuestion) -> dict[str, Any]:
    return values_of(Measured([Entry(question) for question in questions]))


def of_known(values: dict[str, Any]) -> set[str]:
    """Those that the questions say something of."""
    return {key for key, value in values.items() if value == value and value != UNKNOWN}


def near(estimate: Estimate, value: float, stderr: float, low: float, high: float) -> bool:
    return (estimate.value, estimate.stderr, estimate.low, estimate.high) == pytest.approx((value, stderr, low, high))


def test_a_share_has_wilsons_interval_and_a_mean_of_other_values_the_normal_one() -> None:
    binary = [True] * 3 + [False] * 9
    ends = binomtest(3, 12).proportion_ci(method="wilson")
    assert near(share(binary), 0.25, sem(binary), ends.low, ends.high)
    partial = [0.5, 1.0, 0.0, 0.25]
    error = sem(partial)
    assert near(share(partial), 0.4375, error, 0.4375 - 1.959964 * error, 0.4375 + 1.959964 * error)
    assert share([]) == UNKNOWN
    assert near(normal(0.5, 0.1), 0.5, 0.1, 0.3040036, 0.6959964)


def test_the_gap_has_newcombes_published_interval() -> None:
    """Newcombe (1998), Statistics in Medicine 17:873, table II, method 10: 56/70 - 48/80 is 0.0524 to 0.3339."""
    right = [1.0] * 56 + [0.0] * 14 + [1.0] * 48 + [0.0] * 32
    values = columns([True] * 70 + [False] * 80, right)
    gap = values["gap"]
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    assert gap.stderr == pytest.approx(math.hypot(sem(right[:70]), sem(right[70:])))
    assert (values["accuracy_flagged"].value, values["accuracy_unflagged"].value) == (0.8, 0.6)
    assert values["strong_rate"].value == pytest.approx(56 / 150)
    assert values["gap_pvalue"] == pytest.approx(fisher_exact([[56, 14], [48, 32]], alternative="greater").pvalue)


def test_easier_questions_that_are_flagged_more_often_leave_no_gap_within_strata() -> None:
    flagged = [True] * 8 + [False] * 2 + [True] * 2 + [False] * 8
    right = [1.0] * 10 + [0.0] * 10
    values = columns(flagged, right, ["easy"] * 10 + ["hard"] * 10)
    assert values["gap"].value == pytest.approx(0.6)
    assert (values["gap_adjusted"].value, values["gap_pvalue"]) == (0, pytest.approx(1))
    together = columns(flagged, right)["gap_adjusted"]
    assert together.value == pytest.approx(0.6)
    assert (together.high - together.low) / 2 == pytest.approx(1.959964 * together.stderr)


def test_without_right_and_wrong_there_is_a_gap_and_no_count_of_right_answers() -> None:
    values = columns([True, True, False, False], [0.5, 1.0, 0.25, 0.75])
    assert values["gap"].value == pytest.approx(0.25)
    assert not {"gap_adjusted", "gap_pvalue", "strong_rate"} & of_known(values)


def test_the_pvalue_is_of_all_questions_with_a_null_rate_and_the_rates_are_of_those_with_a_flag() -> None:
    """Of two options the sign counts, which is no flag: a p-value of 1/2 at a null rate of 1/2 is one."""
    four = [audited(i, flagged=i < 3, null_rate=1 / 24, pvalue=1 / 24 if i < 3 else 0.5) for i in range(20)]
    two = [audited(20 + i, flagged=None, null_rate=0.5, pvalue=0.5 if i < 5 else 1.0) for i in range(6)]
    without = [audited(30, flagged=None, null_rate=0.5), audited(31, flagged=True), audited(32)]
    values = of(*four, *two, *without)
    assert values["pvalue"] == pytest.approx(poisson_binom.sf(3 + 5 - 1, [1 / 24] * 20 + [0.5] * 7))
    assert values["null_rate"] == pytest.approx(1 / 24)
    assert values["flagged_rate"].value == pytest.approx(4 / 21)


def test_questions_with_a_guard_stand_apart() -> None:
    free = [audited(i, flagged=i < 2, null_rate=1 / 24, pvalue=0.5) for i in range(10)]
    guarded = [audited(10 + i, flagged=True, null_rate=1 / 24, pvalue=0.01, guards=("rising",)) for i in range(5)]
    values = of(*free, *guarded)
    assert values["flagged_rate"].value == pytest.approx(7 / 15)
    assert values["flagged_rate_unguarded"].value == pytest.approx(2 / 10)
    assert values["pvalue"] == pytest.approx(poisson_binom.sf(6, [1 / 24] * 15), rel=1e-6)
    assert values["pvalue_unguarded"] == pytest.approx(poisson_binom.sf(1, [1 / 24] * 10))


def test_choice_confusion_has_an_accuracy_per_arm_and_the_change_with_its_paired_error() -> None:
    arms = [Arms(i < 6, i < 5, i < 3, i % 2 == 0) for i in range(10)]
    values = of(*(audited(i, arms=arms_of_question) for i, arms_of_question in enumerate(arms)), audited(10))
    by_arm = {name: values[column.key].value for name, column in ARM_COLUMNS.items()}
    assert by_arm == {"original": 0.6, "shuffled": 0.5, "replaced": 0.3, "generalized": 0.5}
    changes = [arms_of_question.generalized - arms_of_question.original for arms_of_question in arms]
    error = sem(changes)
    assert near(values["confusion_delta"], np.mean(changes), error, -0.1 - 1.959964 * error, -0.1 + 1.959964 * error)
    assert not {"accuracy_original", "confusion_delta"} & of_known(of(audited()))


def test_strata_are_subject_third_by_length_within_it_and_third_of_ease() -> None:
    lengths = [10, 60, 20, 50, 30, 40, 1]
    ease = [0.0, 0.33, 0.34, 0.66, 0.67, 1.0, None]
    thirds = [(0, 0), (2, 0), (0, 1), (2, 1), (1, 2), (1, 2), (0, None)]
    values = strata_of(["a"] * 6 + ["b"], lengths, ease)
    assert values == [(subject, *third) for subject, third in zip("aaaaaab", thirds, strict=True)]
