"""Known scores: thresholds by class, rows, whether questions are of one kind, and when nothing is said."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from lm_eval_leakage.questions.families import described
from lm_eval_leakage.records import Described, Question
from lm_eval_leakage.stats.known_scores import (
    COMBINED,
    COPY,
    EVERY_CLASS,
    FEWEST,
    OWN,
    Calibration,
    KnownScores,
    by_class,
    exchangeability,
    why_withheld,
)


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


def test_without_the_classes_of_seen_questions_nothing_is_said_of_them() -> None:
    by_class = {"a": [float(i) for i in range(40)], "b": [float(i) for i in range(40)]}
    known = KnownScores({EVERY_CLASS: by_class["a"] + by_class["b"], **by_class}, [50.0])
    assert known.flagged(0.05) == ((0, 0), (4, 80))  # two of 40 in each class


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


def test_questions_of_another_kind_are_noticed_and_named_first() -> None:
    rng = np.random.default_rng(3)
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
    (found,) = exchangeability({"x": values[:3]}, {"x": values[3:]}, rng=np.random.default_rng(0))
    assert found.pvalue == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 999) + 0.002)


def test_a_property_that_does_not_vary_or_that_one_side_lacks_is_no_test() -> None:
    unseen = {"options": [4.0] * 30, "length": [1.0, 2.0] * 15, "by a reference": [1.0, 2.0] * 15}
    asked = {"options": [4.0] * 30, "length": [1.0, 2.0] * 15}
    assert [one.name for one in exchangeability(unseen, asked, rng=np.random.default_rng(0))] == ["length"]


def questions(numbers: range, text: str = "What is the value of {}?", guarded: bool = False) -> Described:
    made = [Question(str(i), text.format(i), (f"{i}1", f"{i}2", f"{i}3")) for i in numbers]
    return described((one, guarded) for one in made)


ASKED = questions(range(1000, 1100))
KNOWN = KnownScores({EVERY_CLASS: [float(i) for i in range(99)]}, [200.0] * 30 + [0.0] * 20)
MADE = Calibration(
    "org/m", "mmlu", OWN, "40 private questions", {"max_order": KNOWN}, unseen=questions(range(2000, 2040))
)


def test_scores_of_a_copy_say_what_would_be_found() -> None:
    of_copy = replace(MADE, whose=COPY, origin="held-out questions after 3 exposures to 50 others")
    said = str(why_withheld(of_copy, ASKED))
    assert "holds scores of a copy of 'org/m' that was trained on the benchmark (held-out questions after 3" in said
    assert "what would be found (30 of 50 trained questions by max_order, at a false-positive rate of 5%)" in said
    assert "not what was found; make one of the model's own scores" in said
    assert "lm-eval-leakage calibrate" in said
    combined = replace(of_copy, detectors={"max_order": KNOWN, COMBINED: replace(KNOWN, seen=[200.0] * 9)})
    assert "(9 of 9 trained questions by combined" in str(why_withheld(combined, ASKED))
    by_class = replace(KNOWN, unseen={EVERY_CLASS: KNOWN.unseen[EVERY_CLASS], "a": KNOWN.unseen[EVERY_CLASS]})
    for unknown in ({}, {"max_order": by_class}, {"max_order": replace(KNOWN, seen=[])}):
        assert "what would be found, not what" in str(why_withheld(replace(of_copy, detectors=unknown), ASKED))


def test_a_calibration_that_does_not_say_what_its_questions_are_like_is_silent() -> None:
    assert "does not say what its unseen questions are like" in str(why_withheld(replace(MADE, unseen=None), ASKED))


@pytest.mark.parametrize(
    ("n_unseen", "n_asked", "said"), [(19, 100, "19 unseen"), (40, 5, "5 asked"), (0, 100, "0 un")]
)
def test_too_few_of_either_are_not_compared(n_unseen: int, n_asked: int, said: str) -> None:
    few = replace(MADE, unseen=questions(range(2000, 2000 + n_unseen)))
    reason = str(why_withheld(few, questions(range(1000, 1000 + n_asked))))
    assert reason.startswith(said)
    assert f"at least {FEWEST} are needed of either kind" in reason
