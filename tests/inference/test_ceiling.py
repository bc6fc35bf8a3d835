from __future__ import annotations

import math
from itertools import product

import pytest
from scipy.stats import binomtest

from lm_eval_leakage.stats.sealed import ceiling

RIGHT = (1, 2, 1, 3, 2)  # equally right options of five questions


def keys() -> list[tuple[int, ...]]:
    """All that the author's key may have drawn."""
    return list(product(*(range(n) for n in RIGHT)))


def test_a_model_that_knows_all_right_options_is_rejected_by_no_more_keys_than_the_level_says() -> None:
    for answered in keys():  # it answers one right option of each question, in any way
        found = [ceiling([own == drawn for own, drawn in zip(answered, key, strict=True)], RIGHT) for key in keys()]
        for level in {one.pvalue for one in found}:
            assert sum(one.pvalue <= level for one in found) == pytest.approx(level * len(found))
        assert sum(math.exp(one.log_evalue) for one in found) == pytest.approx(len(found))
        assert sum(one.n_hits for one in found) / len(found) == pytest.approx(found[0].expected)
        deviation = math.sqrt(sum((one.n_hits - one.expected) ** 2 for one in found) / len(found))
        assert deviation == pytest.approx(found[0].expected_error)


def test_a_model_that_is_often_wrong_is_rejected_less_often() -> None:
    for answered in keys():
        found = [
            ceiling([own == drawn and own > 0 for own, drawn in zip(answered, key, strict=True)], RIGHT)
            for key in keys()
        ]
        for level in {one.pvalue for one in found}:
            assert sum(one.pvalue <= level for one in found) <= level * len(found) + 1e-9
        assert sum(math.exp(one.log_evalue) for one in found) <= len(found) + 1e-9


def test_questions_with_one_right_option_say_nothing() -> None:
    with_others = ceiling([True] * 15 + [False] * 5 + [True] * 80, [2] * 20 + [1] * 80)
    alone = ceiling([True] * 15 + [False] * 5, [2] * 20)
    assert with_others.pvalue == alone.pvalue == pytest.approx(binomtest(15, 20, 0.5, alternative="greater").pvalue)
    assert (with_others.n, with_others.n_hits, with_others.expected) == (20, 15, 10)


def test_without_a_question_with_several_right_options_there_is_no_test() -> None:
    found = ceiling([True, False], [1, 1])
    assert math.isnan(found.pvalue)
    assert math.isnan(found.log_evalue)
    assert ceiling([], []).n == 0
