from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binomtest, ks_2samp

from lm_eval_leakage.stats import known_scores as module
from lm_eval_leakage.stats.known_scores import exchangeability


def drawn(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_questions_of_another_kind_are_noticed_and_named_first() -> None:
    rng = drawn(3)
    unseen = {"options": rng.integers(4, 6, 150).tolist(), "length": rng.normal(60, 10, 150).tolist()}
    asked = {"options": rng.integers(4, 6, 200).tolist(), "length": rng.normal(80, 10, 200).tolist()}
    first, second = exchangeability(unseen, asked, rng=rng)
    assert (first.name, first.pvalue, first.adjusted) == ("length", 1 / 1000, 2 / 1000)
    assert first.unseen == pytest.approx(np.median(unseen["length"]))
    assert first.asked == pytest.approx(np.median(asked["length"]))
    assert second.adjusted > 0.05


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]])
def test_the_pvalue_is_the_rank_among_all_splits(values: list[float]) -> None:
    """Compared with complete enumeration; scipy's distance is used for each split."""

    def distance(chosen: tuple[int, ...]) -> float:
        rest = [i for i in range(len(values)) if i not in chosen]
        return float(ks_2samp([values[i] for i in chosen], [values[i] for i in rest]).statistic)

    observed = distance((0, 1, 2))
    exact = np.mean([distance(chosen) >= observed - 1e-12 for chosen in combinations(range(len(values)), 3)])
    (found,) = exchangeability({"x": values[:3]}, {"x": values[3:]}, rng=drawn())
    assert found.pvalue == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 999) + 0.002)


def test_questions_of_one_pool_are_called_different_as_often_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_SPLITS", 99)
    rng, called = drawn(5), 0
    for _ in range(150):
        pool = {"length": rng.lognormal(3, 1, 60), "guarded": rng.random(60) < 0.2, "options": rng.integers(2, 5, 60)}
        unseen = {name: values[:25].tolist() for name, values in pool.items()}
        asked = {name: values[25:].tolist() for name, values in pool.items()}
        called += any(one.adjusted <= 0.05 for one in exchangeability(unseen, asked, rng=rng))
    assert binomtest(called, 150, 0.05, "greater").pvalue > 0.01


def test_a_property_that_does_not_vary_or_that_one_side_lacks_is_no_test() -> None:
    unseen = {"options": [4.0] * 30, "length": [1.0, 2.0] * 15, "by a reference": [1.0, 2.0] * 15}
    asked = {"options": [4.0] * 30, "length": [1.0, 2.0] * 15}
    assert [one.name for one in exchangeability(unseen, asked, rng=drawn())] == ["length"]
