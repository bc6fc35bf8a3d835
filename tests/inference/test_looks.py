"""The ledger's levels and e-values: what all looks together may claim falsely."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.stats.looks import (
    USUAL_ALPHA,
    Look,
    accumulated_evalue,
    as_ranges,
    check_alpha,
    from_ranges,
    number_alone,
    number_together,
    spent_share,
)


def look(number=0, model="org/one", digest="a", log_evalue=1.0, places="0-9", alpha=0.01, pvalue=0.5):
    return Look(number, model, digest, alpha, pvalue, log_evalue, places)


def test_what_all_looks_spend_sums_to_alpha_however_many_are_reported_together():
    single = [spent_share(number, number, 0.01) for number in range(1, 1_001)]
    assert single[:3] == pytest.approx([0.005, 0.01 / 6, 0.01 / 12])
    assert math.fsum(single) == pytest.approx(0.01 * (1 - 1 / 1_001))
    assert spent_share(2, 3, 0.01) == pytest.approx(math.fsum(single[1:3]))
    assert spent_share(1, 1_000, 0.01) == pytest.approx(math.fsum(single))


def test_looks_are_numbered_in_turn_and_the_same_answers_are_the_same_look():
    given_looks = [look(digest="a"), look(digest="b"), look(model="org/two", digest="a"), look(digest="a")]
    pairs = number_together([], given_looks)
    assert [(numbered_look.number, same and same.number) for numbered_look, same in pairs] == [
        (1, None),
        (2, None),
        (3, None),
        (1, 1),
    ]
    assert {(numbered_look.first, numbered_look.last) for numbered_look, _ in pairs} == {(1, 3)}
    earlier = [numbered_look for numbered_look, same in pairs if same is None]
    (again, written), (new, none) = number_together(
        earlier, [look(digest="b", pvalue=0.9, alpha=0.5), look(digest="c")]
    )
    assert written == earlier[1]
    assert (again.number, again.pvalue, again.share) == (2, 0.9, pytest.approx(0.01 * 3 / 4))
    assert none is None
    assert (new.number, new.first, new.last, new.share) == (4, 4, 4, pytest.approx(0.01 / 20))


def test_what_the_looks_at_one_benchmark_spend_sums_to_alpha_and_most_of_it_is_for_the_first():
    looks: list[Look] = []
    for n in range(200):
        numbered_look, is_new = number_alone(looks, look(digest=str(n)))
        looks += [numbered_look] if is_new else []
    assert [look.share / look.alpha for look in looks[:3]] == pytest.approx([3 / 4, 5 / 36, 7 / 144])
    assert math.fsum(look.share for look in looks) == pytest.approx(0.01 * (1 - 1 / 201**2))


def test_looks_at_one_benchmark_are_numbered_apart_from_others_and_the_same_questions_are_the_same_look():
    looks: list[Look] = []
    for model, digest, number in (("m on x", "a", 1), ("m on y", "a", 1), ("m on x", "b", 2), ("m on x", "a", 1)):
        numbered_look, is_new = number_alone(looks, look(model=model, digest=digest))
        assert numbered_look.number == number
        looks += [numbered_look] if is_new else []
    assert len(looks) == 3


def test_evalues_are_multiplied_over_looks_at_different_questions_of_one_model():
    looks = [look(1, places="0-9"), look(2, places="10-19", log_evalue=2.0), look(3, "org/two", places="20-29")]
    assert accumulated_evalue(looks, "org/one") == (3.0, 2)
    assert accumulated_evalue(looks, "org/three") == (0.0, 0)


def test_a_question_that_was_looked_at_before_does_not_count_again_whether_its_first_look_counted_or_not():
    looks = [look(1, places="0-9"), look(2, places="5-14"), look(3, places="12-14"), look(4, places="15")]
    assert accumulated_evalue(looks, "org/one") == (2.0, 2)
    assert accumulated_evalue([look(1, log_evalue=math.nan), look(2)], "org/one") == (0.0, 0)


def test_whoever_chooses_the_next_look_by_the_last_cannot_raise_the_mean_of_the_evalue():
    """Two questions, each with e-value 2 or 0: every strategy of looking at one, both, and again, by enumeration."""
    evalues = {0.0: -1e9, 2.0: math.log(2)}
    for after_loss, after_win in itertools.product(("0", "1", "0-1", ""), repeat=2):
        mean = 0.0
        for drawn in itertools.product((0.0, 2.0), repeat=2):

            def of(places, drawn=drawn):
                return math.fsum(evalues[drawn[place]] for place in from_ranges(places))

            following = after_win if drawn[0] else after_loss
            looks = [look(1, places="0", log_evalue=of("0"))]
            looks += [look(2, places=following, log_evalue=of(following))] if following else []
            mean += math.exp(accumulated_evalue(looks, "org/one")[0]) / 4
        assert mean == pytest.approx(1)


@given(st.sets(st.integers(0, 300)))
def test_places_are_written_as_ranges_and_read_back(places):
    assert set(from_ranges(as_ranges(places))) == places
    assert as_ranges([0, 1, 2, 7]) == "0-2,7"


@pytest.mark.parametrize("alpha", [0, 1, -0.1, True, math.nan])
def test_an_error_that_is_no_probability_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha is .*; the probability of any false claim"):
        check_alpha(alpha)
    check_alpha(USUAL_ALPHA)
