from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from lm_eval_leakage.stats.known_scores import EVERY_CLASS, OWN, Calibration, KnownScores, by_class


def test_a_threshold_holds_on_fresh_draws() -> None:
    rng = np.random.default_rng(0)
    flagged = 0
    for _ in range(60):
        known = KnownScores({EVERY_CLASS: rng.standard_t(3, 100).tolist()}, ())
        flagged += sum(known.pvalue(score, "x") <= 0.05 for score in rng.standard_t(3, 50))
    assert binomtest(flagged, 3000, 5 / 101).pvalue > 1e-4


def test_a_class_has_its_own_threshold_where_it_has_enough_questions() -> None:
    of_class = {"rising": [5.0] * 19, "rare": [5.0] * 3, "odd": [0.0] * 6}
    known = KnownScores({EVERY_CLASS: [score for own in of_class.values() for score in own], **of_class}, ())
    assert known.pvalue(3.0, "rising") == 1
    assert known.pvalue(3.0, "rare") == known.pvalue(3.0, "odd") == 4 / 10  # the small classes are one group
    with pytest.raises(ValueError, match="no known-unseen question of the class 'unheard of'; add some"):
        known.pvalue(3.0, "unheard of")
    assert KnownScores({EVERY_CLASS: [0.0] * 99}, ()).pvalue(3.0, "unheard of") == 1 / 100


def test_the_rate_holds_over_all_questions_where_one_class_is_large_and_another_small() -> None:
    """Compared with all questions, the 12 guarded ones would be flagged too often on top of 5 % of the others."""
    rng = np.random.default_rng(4)
    flagged = []
    for _ in range(150):
        names = np.repeat(["plain", "guarded"], [48, 12])
        shift = np.where(names == "guarded", 1.5, 0.0)
        unseen, asked = rng.normal(size=60) + shift, rng.normal(size=60) + shift
        classes = {str(i): str(name) for i, name in enumerate(names)}
        known = KnownScores(by_class({str(i): float(score) for i, score in enumerate(unseen)}, classes), ())
        flagged += [known.pvalue(score, name) <= 0.05 for score, name in zip(asked, names, strict=True)]
    assert 0.02 < np.mean(flagged) < 0.05


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


def test_scores_match_a_run_by_its_detectors_with_or_without_the_value_that_ranks() -> None:
    found = Calibration("M", "b", OWN, "o", {"p/t": KnownScores({EVERY_CLASS: [1.0]}, [])})
    assert found.unmatched(["p"]) is None
    assert found.unmatched(["x", "p/t"]) is None
    for run in (["p:max_orders=12"], []):
        said = str(found.unmatched(run))
        assert "'M' has scores of p/t, but the run has " in said
        assert ", ".join(run) in said
    assert "has scores of Q" in str(found.unmatched(["p"], "Q"))


CLASSES = {"a": 0.0, "b": 1.5}  # class: mean score of its unseen questions


def of_two_classes(rng, n: int, *, with_classes: bool = True) -> KnownScores:
    drawn = {name: (mean + rng.normal(size=n)).tolist() for name, mean in CLASSES.items()}
    seen = [mean + 2 + rng.normal() for mean in CLASSES.values() for _ in range(n)]
    names = [name for name in CLASSES for _ in range(n)]
    return KnownScores({EVERY_CLASS: [*drawn["a"], *drawn["b"]]} | drawn, seen, names if with_classes else ())


def test_without_the_classes_of_seen_questions_nothing_is_said_of_them() -> None:
    of_seen, of_unseen = of_two_classes(np.random.default_rng(2), 40, with_classes=False).flagged(0.05)
    assert of_seen == (0, 0)
    assert of_unseen == (4, 80)  # two of 40 in each class
