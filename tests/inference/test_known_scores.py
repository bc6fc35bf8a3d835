from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from lm_eval_leakage.inference.known_scores import (
    EVERY_CLASS,
    OWN,
    Calibration,
    KnownScores,
    by_class,
    class_of,
)


def test_a_threshold_holds_on_fresh_draws() -> None:
    rng = np.random.default_rng(0)
    flagged = 0
    for _ in range(60):
        known = KnownScores({EVERY_CLASS: rng.standard_t(3, 100).tolist()}, ())
        flagged += sum(known.pvalue(score, "x") <= 0.05 for score in rng.standard_t(3, 50))
    assert binomtest(flagged, 3000, 5 / 101).pvalue > 1e-4


def test_a_class_has_its_own_threshold_where_it_has_enough_questions() -> None:
    known = KnownScores({EVERY_CLASS: [0.0] * 99, "rising": [5.0] * 19, "rare": [5.0] * 3}, ())
    assert known.pvalue(3.0, "rising") == 1
    assert known.pvalue(3.0, "rare") == 1 / 100
    assert known.pvalue(3.0, "unheard of") == 1 / 100


def test_known_rates_are_those_of_the_threshold() -> None:
    known = KnownScores({EVERY_CLASS: [float(i) for i in range(99)]}, [200.0, 97.5, 3.0])
    assert known.flagged(0.05) == ((2, 3), (5, 99))
    assert KnownScores({EVERY_CLASS: [1.0]}, ()).flagged(0.05) == ((0, 0), (0, 1))


@pytest.mark.parametrize("seen", [(), (2.0,)])
def test_at_five_percent_nineteen_known_unseen_questions_are_the_fewest_that_flag_one(seen: tuple[float, ...]) -> None:
    """A p-value of 1 / 20 is reached, one of 1 / 19 is not."""
    for n_unseen, n_flagged in ((18, 0), (19, 1), (38, 1), (39, 2)):
        of_seen, of_unseen = KnownScores({EVERY_CLASS: [1.0] * n_unseen}, seen).flagged(0.05)
        assert of_unseen == (n_flagged, n_unseen)
        assert of_seen == (len(seen) * (n_flagged > 0), len(seen))


def test_every_percent_of_ninety_nine_known_unseen_questions_is_that_many() -> None:
    """0.29 * 100 is 28.999999999999996 for a computer."""
    known = KnownScores({EVERY_CLASS: [float(i) for i in range(99)]}, ())
    assert [known.flagged(percent / 100)[1][0] for percent in range(1, 100)] == list(range(1, 100))


def test_scores_are_grouped_and_what_is_not_finite_is_left_out() -> None:
    classes = {"a": class_of(4, True), "b": class_of(4, False), "c": class_of(4, True)}
    grouped = by_class({"a": 1.0, "b": 2.0, "c": float("nan")}, classes)
    assert grouped == {EVERY_CLASS: [1.0, 2.0], "4 options, guarded": [1.0], "4 options, no guard": [2.0]}


def test_scores_match_a_run_by_its_detectors_with_or_without_the_value_that_ranks() -> None:
    found = Calibration("M", "b", OWN, "o", {"p/t": KnownScores({EVERY_CLASS: [1.0]}, [])})
    assert found.unmatched(["p"]) is None
    assert found.unmatched(["x", "p/t"]) is None
    for run in (["p:max_orders=12"], []):
        said = str(found.unmatched(run))
        assert "'M' has scores of p/t, but the run has " in said
        assert ", ".join(run) in said
    assert "has scores of Q" in str(found.unmatched(["p"], "Q"))


def test_margins_of_an_earlier_version_are_not_compared_with_todays_scores() -> None:
    margins = Calibration("M", "b", OWN, "o", {"max_order/margin": KnownScores({EVERY_CLASS: [1.0]}, [])})
    assert "has scores of max_order/margin, but the run has max_order" in str(margins.unmatched(["max_order"]))
    assert margins.unmatched(["max_order/margin"]) is None
