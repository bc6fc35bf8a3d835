"""Whether unseen questions are of the same kind as a benchmark's, and when they say nothing."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from lm_eval_leakage.questions.families import describe_families
from lm_eval_leakage.records import Described, Question
from lm_eval_leakage.stats.exchangeability import FEWEST, exchangeability, why_not_comparable


def test_questions_of_another_kind_are_noticed_and_named_first() -> None:
    rng = np.random.default_rng(3)
    unseen = {"options": rng.integers(4, 6, 150).tolist(), "length": rng.normal(60, 10, 150).tolist()}
    columns = {"options": rng.integers(4, 6, 200).tolist(), "length": rng.normal(80, 10, 200).tolist()}
    first, second = exchangeability(unseen, columns, rng=rng)
    assert (first.name, first.pvalue, first.adjusted) == ("length", 1 / 1000, 2 / 1000)
    assert first.unseen == pytest.approx(np.median(unseen["length"]))
    assert first.benchmark == pytest.approx(np.median(columns["length"]))
    assert second.adjusted > 0.05


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]])
def test_the_pvalue_is_the_rank_among_all_splits(values: list[float]) -> None:
    """Compared with complete enumeration; scipy's distance is used for each split."""

    def distance(chosen: tuple[int, ...]) -> float:
        rest = [i for i in range(len(values)) if i not in chosen]
        return float(ks_2samp([values[i] for i in chosen], [values[i] for i in rest]).statistic)

    observed = distance((0, 1, 2))
    exact = np.mean([distance(chosen) >= observed - 1e-12 for chosen in combinations(range(len(values)), 3)])
    (test,) = exchangeability({"x": values[:3]}, {"x": values[3:]}, rng=np.random.default_rng(0))
    assert test.pvalue == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 999) + 0.002)


def test_a_property_that_does_not_vary_or_that_one_side_lacks_is_no_test() -> None:
    unseen = {"options": [4.0] * 30, "length": [1.0, 2.0] * 15, "by a reference": [1.0, 2.0] * 15}
    columns = {"options": [4.0] * 30, "length": [1.0, 2.0] * 15}
    assert [result.name for result in exchangeability(unseen, columns, rng=np.random.default_rng(0))] == ["length"]


def questions(numbers: range, text: str = "What is the value of {}?", guarded: bool = False) -> Described:
    made = [Question(str(i), text.format(i), (f"{i}1", f"{i}2", f"{i}3")) for i in numbers]
    return describe_families((question, guarded) for question in made)


@pytest.mark.parametrize(
    ("n_unseen", "n_asked", "said"),
    [(19, 100, "19 unseen"), (40, 5, "5 questions of the benchmark"), (0, 100, "0 un")],
)
def test_too_few_of_either_are_not_compared(n_unseen: int, n_asked: int, said: str) -> None:
    reason = str(why_not_comparable(questions(range(2000, 2000 + n_unseen)), questions(range(1000, 1000 + n_asked))))
    assert reason.startswith(said)
    assert f"at least {FEWEST} are needed of either kind" in reason


def test_questions_of_the_same_kind_are_compared() -> None:
    assert why_not_comparable(questions(range(2000, 2040)), questions(range(1000, 1100))) is None
