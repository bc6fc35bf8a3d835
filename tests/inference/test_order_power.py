"""The smallest share of seen questions that the data-set test finds, against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_leakage.stats.order_power import FOUND_WITH, OrderPower
from lm_eval_leakage.stats.order_sum import order_sum, standard_scores

SEEN = (0.5, 0.2, 0.1, 0.08, 0.06, 0.06)  # of sixths of the orders, the most likely ones first
UNSEEN = (1.0,) * 6


def scores_of(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [standard_scores(rng.normal(size=size)) for size in sizes]


def detectable_share(weights, critical, ranks):
    ((_, share),) = OrderPower(weights, ranks={1: ranks}).beyond(critical)
    return share


def weights_and_critical(sizes, seed=0):
    scores = scores_of(sizes, seed)
    return [np.exp(own) for own in scores], order_sum(scores, np.random.default_rng(seed)).critical


def found_at(share, weights, critical, ranks, n_runs=2000):
    """How often the test rejects if each question was seen with probability `share`."""
    rng = np.random.default_rng(1)
    sums = np.zeros(n_runs)
    for own in weights:
        ordered, width = np.sort(own)[::-1], len(own) // len(ranks)
        assert width * len(ranks) == len(own)
        seen = ordered[rng.choice(len(ranks), n_runs, p=ranks) * width + rng.integers(width, size=n_runs)]
        sums += np.where(rng.random(n_runs) < share, seen, rng.choice(own, n_runs))
    return float((sums >= critical).mean())


@pytest.mark.parametrize("sizes", [[24] * 200, [24, 120] * 60, [6] * 400], ids=["24", "24 and 120", "6"])
def test_at_the_share_that_it_returns_the_test_rejects_with_the_stated_probability(sizes) -> None:
    weights, critical = weights_and_critical(sizes)
    share = detectable_share(weights, critical, SEEN)
    assert 0 < share < 1
    error = math.sqrt(FOUND_WITH * (1 - FOUND_WITH) / 2000)
    normal_error = 0.02  # the sum of so many questions is not quite normal
    assert abs(found_at(share, weights, critical, SEEN) - FOUND_WITH) < 4 * error + normal_error
    assert found_at(share / 2, weights, critical, SEEN) < FOUND_WITH - 0.1


def test_of_more_questions_a_smaller_share_is_found() -> None:
    shares = [detectable_share(*weights_and_critical([24] * n), SEEN) for n in (30, 100, 300, 1000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < shares[0] / 3
    assert shares[1] / shares[3] == pytest.approx(math.sqrt(10), rel=0.35)  # about 1 / sqrt(n)


@given(st.integers(0, 1000), st.floats(0, 1))
@settings(max_examples=25)
def test_of_better_remembered_questions_a_smaller_share_is_found(seed: int, mixed: float) -> None:
    weights, critical = weights_and_critical([24] * 60, seed)
    weaker = tuple(mixed * seen + (1 - mixed) / len(SEEN) for seen in SEEN)
    strong, weak = (detectable_share(weights, critical, ranks) for ranks in (SEEN, weaker))
    assert 0 < strong <= 1
    assert math.isnan(weak) or weak >= strong - 1e-9


@pytest.mark.parametrize(("n", "ranks"), [(300, UNSEEN), (1, SEEN), (3, SEEN)], ids=["no memory", "1", "3"])
def test_it_is_undefined_where_not_even_a_benchmark_seen_as_a_whole_is_found(n: int, ranks) -> None:
    weights, critical = weights_and_critical([24] * n)
    assert math.isnan(detectable_share(weights, critical, ranks))
    if n > 1:
        assert found_at(1.0, weights, critical, [rank / sum(ranks) for rank in ranks]) < FOUND_WITH


def test_parts_that_do_not_fit_the_number_of_orders_are_divided_between_neighbouring_orders() -> None:
    """Two orders: the more likely one gets the first three of six parts."""
    weights, critical = weights_and_critical([2] * 200)
    halves = (sum(SEEN[:3]), sum(SEEN[3:]))
    assert detectable_share(weights, critical, SEEN) == pytest.approx(detectable_share(weights, critical, halves))
    assert abs(found_at(detectable_share(weights, critical, SEEN), weights, critical, halves) - FOUND_WITH) < 0.06
