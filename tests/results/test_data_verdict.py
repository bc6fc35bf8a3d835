"""The verdict on a data set: its word, what it is computed from, and when it is withheld."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, zscore

from lm_eval_leakage.questions.families import families, shared_texts
from lm_eval_leakage.records import OrderAnswers, Question
from lm_eval_leakage.results.data_verdict import (
    STAGES,
    at_its_level,
    data_verdict,
    natural_part,
    usually_excluded,
    usually_needed,
)
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.verdict import (
    EVIDENCE_LEVEL,
    FEWEST_JUDGED,
    NOT_AUDITED,
    STRONG_LEVEL,
    Basis,
    DataVerdict,
    VerdictWord,
)
from lm_eval_leakage.results.verdict_numbers import details
from lm_eval_leakage.results.verdict_words import reason_of, sentence_of, verdict_in_words
from lm_eval_leakage.stats.looks import share_alone
from lm_eval_leakage.stats.order_power import DETECT, DETECT_TIMES, SEEN_ERROR, SEEN_TIMES
from lm_eval_leakage.stats.order_sum import USUAL_SPREAD, NaturalPart, OrderSum, order_sum, standard_scores
from lm_eval_leakage.stats.unseen_texts import TextTest

EXACT_ONES = [OrderStatus.DRAWN, OrderStatus.SEALED]
INEXACT = [OrderStatus.WRITTEN, OrderStatus.UNDECIDED, OrderStatus.CONSISTENT, "of a later version"]
pvalues = st.floats(0, 1)
each_test = pytest.mark.parametrize(
    ("status", "shape"),
    [(OrderStatus.DRAWN, {}), (OrderStatus.WRITTEN, {"control": True}), (OrderStatus.WRITTEN, {"reference": True})],
)


def answers(
    n: int,
    status: str,
    *,
    natural: float = 0.0,
    memory: float = 0.0,
    control: bool = False,
    reference: bool = False,
    guarded: bool = False,
    n_orders: int = 6,
    seed: int = 0,
) -> list[OrderAnswers]:
    """A model's answers to questions whose published orders it prefers by so many standard deviations: in every form
    and like every model (`natural`), or in the published form alone (`memory`)."""
    rng = np.random.default_rng(seed)

    def form(bonus: float) -> tuple[float, ...]:
        drawn = rng.normal(-20, 2, size=n_orders)
        drawn[0] += 2 * bonus
        return tuple(drawn.tolist())

    return [
        OrderAnswers(
            form(natural + memory),
            status,
            guarded,
            form(natural) + form(natural) if control else (),
            form(natural) if reference else (),
        )
        for _ in range(n)
    ]


def numbers(verdict: DataVerdict) -> list[float]:
    """Every number that could be read as an answer."""
    tested, ratio = verdict.tested, verdict.ratio
    return [verdict.pvalue, tested.pvalue, tested.mean, tested.log_evalue, ratio.value, ratio.low]


# ---------------------------------------------------------------------- the word


@given(pvalues)
def test_the_word_follows_from_the_pvalue(pvalue: float) -> None:
    assert (STRONG_LEVEL, EVIDENCE_LEVEL) == (1e-4, 0.01)
    word = DataVerdict(Basis.ORDERS, OrderStatus.DRAWN, 30, 30, OrderSum(30, pvalue)).word
    assert (word == VerdictWord.STRONG_EVIDENCE) == (pvalue <= STRONG_LEVEL)
    assert (word in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE)) == (pvalue <= EVIDENCE_LEVEL)
    assert word in VerdictWord
    assert word != VerdictWord.NO_VERDICT


@given(st.integers(0, 50), st.sampled_from(OrderStatus), st.booleans(), st.booleans())
@settings(max_examples=30)
def test_every_verdict_begins_its_sentence_with_its_word_and_is_strict_json(n, status, control, reference) -> None:
    verdict = data_verdict(answers(n, status, control=control, reference=reference))
    assert (verdict == NOT_AUDITED) == (n == 0)
    assert sentence_of(verdict).startswith(f"{verdict.word}: " if n else "")
    assert "nan" not in sentence_of(verdict)
    json.dumps(details(verdict), allow_nan=False)


# ---------------------------------------------------------------------- the weakest status


@given(st.lists(st.sampled_from(OrderStatus), min_size=1, max_size=6))
def test_the_weakest_status_of_the_questions_is_that_of_all(statuses: list[str]) -> None:
    verdict = data_verdict([OrderAnswers((-1.0, -2.0 - place), statuse) for place, statuse in enumerate(statuses)])
    assert verdict.orders == min(statuses, key=[*OrderStatus].index)
    assert verdict.n_asked == len(statuses)


def test_one_question_with_written_orders_makes_the_exact_test_of_the_others_impossible() -> None:
    mixed = data_verdict([*answers(60, OrderStatus.DRAWN, memory=2), *answers(1, OrderStatus.WRITTEN)])
    assert (mixed.basis, mixed.word) == (Basis.RATIO, VerdictWord.NO_VERDICT)


# ---------------------------------------------------------------------- what it is computed from


@pytest.mark.parametrize("status", EXACT_ONES)
def test_exact_orders_need_no_control_and_count_questions_with_a_guard(status: str) -> None:
    plain = [*answers(15, status, memory=1), *answers(25, status, memory=1, guarded=True, seed=1)]
    verdict = data_verdict(plain)
    assert (verdict.basis, verdict.n, verdict.n_asked) == (Basis.ORDERS, 40, 40)
    with_more = [replace(question, control=question.loglikelihoods) for question in plain]
    if status == OrderStatus.SEALED:  # drawn with a key, so that no reference is needed either
        with_more = [replace(question, reference=question.loglikelihoods) for question in with_more]
    assert repr(data_verdict(with_more)) == repr(verdict)  # a NaN differs from itself


def test_a_reference_is_used_where_a_draw_rests_on_what_the_author_documents() -> None:
    """If the document is wrong, both models prefer the published orders, and that is no evidence."""
    natural = answers(60, OrderStatus.DRAWN, natural=1.5, reference=True)
    alone, compared = data_verdict(replace(question, reference=()) for question in natural), data_verdict(natural)
    assert (alone.word, alone.seen.n_seen > 0) == (VerdictWord.STRONG_EVIDENCE, True)
    assert (compared.basis, compared.word, compared.seen.n_seen) == (Basis.REFERENCE, VerdictWord.INCONCLUSIVE, 0)


def test_a_documented_draw_with_a_reference_is_as_exact_and_counts_questions_with_a_guard() -> None:
    seen = [
        *answers(30, OrderStatus.DRAWN, natural=1, memory=1.5, reference=True),
        *answers(30, OrderStatus.DRAWN, natural=1, memory=1.5, reference=True, guarded=True, seed=1),
        *answers(5, OrderStatus.DRAWN, seed=2),
    ]
    verdict = data_verdict(seen)
    assert (verdict.basis, verdict.n, verdict.n_asked, verdict.word) == (
        Basis.REFERENCE,
        60,
        65,
        VerdictWord.STRONG_EVIDENCE,
    )
    assert verdict.seen.n_seen > 0
    assert "on 60 questions with orders drawn at random, as documented," in sentence_of(verdict)
    unseen = (
        data_verdict(answers(20, OrderStatus.DRAWN, natural=1, reference=True, seed=seed)) for seed in range(100)
    )
    assert sum(verdict.tested.pvalue <= 0.05 for verdict in unseen) <= 11  # .99 quantile of 100 at .05


@pytest.mark.parametrize("status", INEXACT)
@pytest.mark.parametrize(
    ("shape", "basis"), [({"reference": True}, Basis.REFERENCE), ({"control": True}, Basis.CONTROL)]
)
def test_other_orders_are_tested_on_questions_without_a_guard_that_have_what_they_are_compared_with(
    status: str, shape, basis: str
) -> None:
    plain = answers(30, status, memory=1, **shape)
    verdict = data_verdict(plain)
    assert (verdict.basis, verdict.n) == (basis, 30)
    unasked = answers(9, status, seed=2)
    guarded = answers(25, status, natural=3, guarded=True, seed=1, **shape)
    more = data_verdict([*plain, *guarded, *unasked])
    assert (more.n, more.n_asked, more.tested) == (30, 64, verdict.tested)
    if basis == Basis.REFERENCE:  # it is asked for, so it goes first
        assert (
            data_verdict([replace(question, control=question.loglikelihoods) for question in plain]).tested
            == verdict.tested
        )


@pytest.mark.parametrize("status", INEXACT)
def test_other_orders_alone_have_a_ratio_and_no_pvalue(status: str) -> None:
    verdict = data_verdict(answers(60, status, natural=3))
    assert (verdict.basis, verdict.word, verdict.n) == (Basis.RATIO, VerdictWord.NO_VERDICT, 0)
    assert math.isnan(verdict.pvalue)
    assert repr(verdict.tested) == repr(OrderSum(0))
    n_first = sum(
        question.loglikelihoods[0] == max(question.loglikelihoods) for question in answers(60, status, natural=3)
    )
    assert verdict.ratio.value == pytest.approx(n_first / (60 / 6))
    assert 1 < verdict.ratio.low < verdict.ratio.value
    assert "times as often as by chance" in sentence_of(verdict)
    assert " p " not in sentence_of(verdict)


@pytest.mark.parametrize(("control", "reference"), [(True, False), (False, True)])
def test_a_preference_that_the_control_or_the_reference_shares_is_none_and_memory_is(control, reference) -> None:
    shape = {"natural": 0.7, "control": control, "reference": reference}
    assert data_verdict(answers(100, OrderStatus.WRITTEN, **shape)).word in (
        VerdictWord.NONE_FOUND,
        VerdictWord.INCONCLUSIVE,
    )
    assert data_verdict(answers(100, OrderStatus.WRITTEN, memory=1.5, **shape)).word == VerdictWord.STRONG_EVIDENCE
    drawn = [
        replace(question, orders=OrderStatus.DRAWN, reference=())
        for question in answers(100, OrderStatus.WRITTEN, **shape)
    ]
    assert data_verdict(drawn).word in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE)


@given(st.randoms(use_true_random=False), st.sampled_from([OrderStatus.DRAWN, OrderStatus.WRITTEN]))
@settings(max_examples=10)
def test_the_order_of_the_questions_changes_nothing(rng: random.Random, status: str) -> None:
    questions = answers(40, status, memory=0.3, control=True)
    shuffled = rng.sample(questions, len(questions))
    verdict, other = data_verdict(questions), data_verdict(shuffled)
    assert other.word == verdict.word
    assert other.pvalue == verdict.pvalue
    assert details(other) == pytest.approx(details(verdict), nan_ok=True)


# ---------------------------------------------------------------------- withheld


@pytest.mark.parametrize("n", [1, 5, FEWEST_JUDGED - 1])
@pytest.mark.parametrize(
    ("status", "shape", "basis"),
    [
        (OrderStatus.DRAWN, {}, Basis.ORDERS),
        (OrderStatus.SEALED, {}, Basis.ORDERS),
        (OrderStatus.WRITTEN, {"control": True}, Basis.CONTROL),
        (OrderStatus.WRITTEN, {"reference": True}, Basis.REFERENCE),
        (OrderStatus.WRITTEN, {}, Basis.RATIO),
        (OrderStatus.CONSISTENT, {}, Basis.RATIO),
    ],
)
def test_too_few_questions_have_no_number_and_a_sentence_with_the_rule(n: int, status: str, shape, basis) -> None:
    verdict = data_verdict(answers(n, status, memory=5, **shape))
    assert (verdict.basis, verdict.word, verdict.n_asked) == (basis, VerdictWord.NO_VERDICT, n)
    assert all(map(math.isnan, numbers(verdict)))
    assert str(n) in sentence_of(verdict)
    assert "20 are needed" in sentence_of(verdict)
    enough = data_verdict(answers(FEWEST_JUDGED, status, memory=5, **shape))
    assert math.isnan(enough.pvalue) == (basis == Basis.RATIO)
    assert not math.isnan(enough.ratio.value)


def test_mixed_numbers_of_options_count_together() -> None:
    def word(n_five: int, memory: float) -> str:
        four = answers(10, OrderStatus.DRAWN, memory=memory, n_orders=24)
        return data_verdict([*four, *answers(n_five, OrderStatus.DRAWN, memory=memory, n_orders=120, seed=1)]).word

    assert [word(9, 5), word(10, 0), word(10, 3)] == [
        VerdictWord.NO_VERDICT,
        VerdictWord.INCONCLUSIVE,
        VerdictWord.STRONG_EVIDENCE,
    ]


@pytest.mark.parametrize("shape", [{}, {"control": True}])
def test_questions_whose_orders_are_all_as_likely_are_not_counted(shape) -> None:
    status = OrderStatus.WRITTEN if shape else OrderStatus.DRAWN
    same = [replace(question, loglikelihoods=(-1.0,) * 6) for question in answers(30, status, **shape)]
    verdict = data_verdict([*same, *answers(FEWEST_JUDGED, status, seed=1, **shape)])
    assert (verdict.n, verdict.n_asked) == (FEWEST_JUDGED, FEWEST_JUDGED + 30)


def noisy(questions: list[OrderAnswers]) -> list[tuple[float, ...]]:
    rng = np.random.default_rng(0)
    return [tuple(np.array(question.loglikelihoods) + 0.1 * rng.normal(size=6)) for question in questions]


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        (lambda status: [question.loglikelihoods for question in status], "take a model of another origin"),
        (noisy, "take a model of another origin"),
        (
            lambda status: [
                question.loglikelihoods for question in answers(len(status), OrderStatus.WRITTEN, memory=2)
            ],
            "it may have seen the benchmark itself",
        ),
    ],
    ids=["the model itself", "a version of it", "one that has seen the benchmark"],
)
def test_a_reference_that_subtracts_more_than_natural_preferences_has_no_number_and_bounds_nothing(theirs, why):
    questions = answers(60, OrderStatus.WRITTEN, natural=0.5, seed=1)
    verdict = data_verdict(
        replace(question, reference=other) for question, other in zip(questions, theirs(questions), strict=True)
    )
    assert (verdict.basis, verdict.word, verdict.at_most) == (Basis.REFERENCE, VerdictWord.NO_VERDICT, ())
    assert math.isnan(verdict.pvalue)
    assert why in sentence_of(verdict)
    assert at_its_level(verdict).at_most == ()


# ---------------------------------------------------------------------- how many may have been seen


@each_test
def test_where_nothing_is_found_it_is_reported_how_many_may_have_been_seen(status: str, shape) -> None:
    shares = []
    for n in (20, 300):
        verdict = data_verdict(answers(n, status, **shape))
        reported_shares = {count: share for count, share in verdict.at_most if not math.isnan(share)}
        assert verdict.word == (
            VerdictWord.NONE_FOUND if reported_shares.get(3, 1) <= DETECT else VerdictWord.INCONCLUSIVE
        )
        assert replace(verdict, detect=1.0).word == (
            VerdictWord.NONE_FOUND if 3 in reported_shares else VerdictWord.INCONCLUSIVE
        )
        assert [count for count, _ in verdict.at_most] == list(SEEN_TIMES)
        assert all(0 < share <= 1 for share in reported_shares.values())
        assert [details(verdict)[f"at_most_seen_{count}"] for count in SEEN_TIMES] == [
            *map(reported_shares.get, SEEN_TIMES)
        ]
        assert ("all of the questions may have been seen 3 times" in sentence_of(verdict)) == (not reported_shares)
        shares.append(reported_shares.get(3, math.inf))
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 1


@each_test
def test_the_bounds_of_later_looks_are_weaker_and_all_together_have_one_error(status: str, shape) -> None:
    first = data_verdict(answers(300, status, **shape))
    spent = [1.0, share_alone(1), share_alone(2), share_alone(3)]
    shares = [dict(at_its_level(replace(first, spent=share)).at_most)[3] for share in spent]
    assert shares[0] == dict(first.at_most)[3]
    assert shares == sorted(shares)
    assert len({*shares}) == len(shares)
    assert at_its_level(replace(first, level=1e-8)).at_most == first.at_most


@each_test
def test_so_many_questions_as_are_needed_nearly_always_exclude_what_has_to_be_found(status: str, shape) -> None:
    few = data_verdict(answers(30, status, **shape))
    assert few.needed is not None
    enough = [data_verdict(answers(few.needed, status, seed=seed, **shape)) for seed in range(8)]
    assert sum(verdict.word == VerdictWord.NONE_FOUND for verdict in enough) >= 6
    many = 2 * few.needed
    assert data_verdict(answers(many, status, **shape)).needed == 2 * many
    assert (replace(few, look=1).needed, few.needed) > (few.needed, replace(few, detect=0.5).needed)


@each_test
def test_the_published_orders_scores_are_reported_and_evidence_begins_at_the_threshold(status: str, shape) -> None:
    verdict = at_its_level(data_verdict(answers(80, status, memory=0.3, **shape)))
    score, *others = verdict.scores
    compared = score - max(others, default=0.0)
    assert compared == pytest.approx(verdict.tested.mean, abs=1e-9)
    by_control = verdict.basis == Basis.CONTROL
    assert math.isnan(verdict.threshold) != by_control
    if by_control:
        assert (verdict.tested.mean >= verdict.threshold) == (verdict.tested.pvalue <= EVIDENCE_LEVEL)
        strict = at_its_level(replace(verdict, level=1e-6))
        assert strict.threshold > verdict.threshold


def test_no_number_of_questions_finds_less_than_what_may_be_natural() -> None:
    verdict = replace(data_verdict(answers(60, OrderStatus.WRITTEN, control=True)), detect=0.01)
    assert (verdict.word, verdict.needed) == (VerdictWord.INCONCLUSIVE, None)
    assert verdict_in_words(verdict, short=True).replace("\u00a0", " ").endswith("the aim was 1 %.")
    assert usually_needed(Basis.CONTROL, 12, 0.01, EVIDENCE_LEVEL) is None


@pytest.mark.parametrize(
    ("basis", "n_orders", "shape"),
    [(Basis.ORDERS, 24, {}), (Basis.REFERENCE, 12, {"reference": True}), (Basis.CONTROL, 12, {"control": True})],
)
def test_before_the_scores_are_known_about_as_many_are_needed_as_afterwards(basis, n_orders, shape) -> None:
    status = OrderStatus.DRAWN if basis == Basis.ORDERS else OrderStatus.WRITTEN
    afterwards = data_verdict(answers(30, status, n_orders=n_orders, **shape)).needed
    before = usually_needed(basis, n_orders, DETECT, EVIDENCE_LEVEL)
    assert before is not None
    assert 0.5 < before / afterwards < 2
    assert usually_needed(basis, n_orders, 0.5, EVIDENCE_LEVEL) < before


@pytest.mark.parametrize(
    ("basis", "n_orders", "shape"),
    [(Basis.ORDERS, 24, {}), (Basis.REFERENCE, 12, {"reference": True}), (Basis.CONTROL, 12, {"control": True})],
)
def test_a_model_without_memory_may_be_none_found_from_so_many_questions_as_usually_exclude_the_aim(
    basis, n_orders, shape
) -> None:
    def excluded(n: int) -> float:
        return dict(usually_excluded(basis, n_orders, n, SEEN_ERROR / STAGES))[DETECT_TIMES]

    def word_of(n: int) -> VerdictWord:
        status = OrderStatus.DRAWN if basis == Basis.ORDERS else OrderStatus.WRITTEN
        return data_verdict(answers(n, status, memory=-0.2, n_orders=n_orders, **shape)).word

    n = next(n for n in range(FEWEST_JUDGED, 200) if excluded(n) <= DETECT)
    assert word_of(2 * n) == VerdictWord.NONE_FOUND
    assert word_of(max(FEWEST_JUDGED, n // 2)) == VerdictWord.INCONCLUSIVE
    enough = usually_needed(basis, n_orders, DETECT, EVIDENCE_LEVEL)
    assert enough is not None
    assert n < enough  # a verdict of fewer questions than are usually needed may exclude the aim


def test_the_share_of_later_looks_is_reported_only_where_it_decides_the_word() -> None:
    def sentence(pvalue: float, look: int, spent: float) -> str:
        tested = OrderSum(30, pvalue, mean=0.1, mean_error=0.1)
        return sentence_of(DataVerdict(Basis.ORDERS, OrderStatus.DRAWN, 30, 30, tested, look=look, spent=spent))

    assert "p = 0.5, evidence at ≤ 0.01)" in sentence(0.5, 1, 0.75)
    assert "p = 0.001, evidence at ≤ 0.01)" in sentence(0.001, 1, 0.75)
    assert sentence(0.008, 1, 0.75).startswith("inconclusive: ")
    assert "p = 0.008, 0.011 after adjustment for later looks, evidence at ≤ 0.01)" in sentence(0.008, 1, 0.75)
    assert (
        "p = 0.008, 0.08 after adjustment for look 2 at this benchmark in this folder, evidence at ≤ 0.01)"
        in sentence(0.008, 2, 0.1)
    )


def test_natural_orders_that_are_preferred_more_next_to_their_question_are_no_evidence():
    """As numbers in rising order are, on questions that the model never saw."""
    numeric = answers(75, OrderStatus.WRITTEN, natural=1, memory=2, control=True, guarded=True)
    other = answers(40, OrderStatus.WRITTEN, control=True, seed=1)
    verdict = data_verdict([*numeric, *other])
    assert (verdict.word, verdict.pvalue) == (VerdictWord.INCONCLUSIVE, data_verdict(other).pvalue)
    assert "on 40 of 115 questions, those without a natural order, with orders written by people" in sentence_of(
        verdict
    )
    alone = data_verdict([replace(question, control=()) for question in numeric])
    assert "none of 75 questions is without a natural order" in sentence_of(alone)
    assert "19 of 94 questions without a natural order" in sentence_of(data_verdict([*numeric, *other[:19]]))
    assert data_verdict([replace(question, guarded=False) for question in numeric]).word in (
        VerdictWord.EVIDENCE,
        VerdictWord.STRONG_EVIDENCE,
    )


def test_where_the_null_is_exact_the_number_of_seen_questions_is_bounded_and_a_family_counts_once() -> None:
    seen = [
        replace(question, loglikelihoods=(0.0, *question.loglikelihoods[1:]))
        for question in answers(80, OrderStatus.DRAWN)
    ]
    drawn = [*seen, *answers(120, OrderStatus.DRAWN, seed=1)]
    bound = data_verdict(drawn).seen
    assert (bound.n, 40 < bound.n_seen <= 80) == (200, True)
    for status, n_seen in ((OrderStatus.SEALED, bound.n_seen), (OrderStatus.WRITTEN, 0)):
        assert data_verdict(replace(question, orders=status) for question in drawn).seen.n_seen == n_seen
    once = data_verdict(in_families(seen[:60], 3)).seen
    assert (once.n, once.n_seen) == (20, data_verdict(seen[:60:3]).seen.n_seen)


# ---------------------------------------------------------------------- families


def in_families(questions: list[OrderAnswers], size: int) -> list[OrderAnswers]:
    return [
        replace(question, shared=(f"passage {place // size}", f"stem {place}"))
        for place, question in enumerate(questions)
    ]


@pytest.mark.parametrize("status", [OrderStatus.DRAWN, OrderStatus.WRITTEN])
def test_questions_that_share_a_text_are_one_unit_unless_a_key_draws_for_each(status: str) -> None:
    questions = answers(120, status, memory=0.25, control=True)
    alone, shared = data_verdict(questions), data_verdict(in_families(questions, 4))
    assert (shared.n, shared.tested.n_units, details(shared)["n_families"]) == (120, 30, 30)
    assert shared.tested.mean == pytest.approx(alone.tested.mean)
    assert shared.pvalue > alone.pvalue
    assert "120 questions in 30 families with the same options, passage, stem or nearly the same text" in sentence_of(
        shared
    )
    assert "famil" not in sentence_of(alone)
    by_key = [replace(question, orders=OrderStatus.SEALED) for question in questions]
    assert data_verdict(in_families(by_key, 4)).pvalue == data_verdict(by_key).pvalue


@pytest.mark.parametrize("n_families", [1, FEWEST_JUDGED - 1])
def test_few_families_are_too_few_however_many_their_questions(n_families: int) -> None:
    verdict = data_verdict(in_families(answers(n_families * 50, OrderStatus.DRAWN, memory=2.0), 50))
    assert verdict.word == VerdictWord.NO_VERDICT
    assert f"at least {FEWEST_JUDGED} families are needed" in sentence_of(verdict)
    assert math.isnan(verdict.pvalue)


# ---------------------------------------------------------------------- two control forms


def in_forms(n: int, published_score: float, *forms: float, seed: int = 0) -> list[OrderAnswers]:
    """Answers whose published orders stand out by so much in the published form and in each control form."""
    drawn = np.random.default_rng(seed).normal(-20, 2, size=(n, 1 + len(forms), 6))
    drawn[:, :, 0] += 2 * np.array([published_score, *forms])
    answered = [(tuple(published_score.tolist()), tuple(np.ravel(rest).tolist())) for published_score, *rest in drawn]
    return [
        OrderAnswers(published_score, OrderStatus.WRITTEN, control=control) for published_score, control in answered
    ]


@pytest.mark.parametrize(
    ("forms", "word"),
    [((0, 0), VerdictWord.STRONG_EVIDENCE), ((0, 2), VerdictWord.INCONCLUSIVE), ((2, 0), VerdictWord.INCONCLUSIVE)],
)
def test_a_preference_that_one_of_two_control_forms_shares_is_no_evidence(forms, word) -> None:
    assert data_verdict(in_forms(100, 2, *forms)).word == word


def test_the_pvalue_is_the_larger_of_those_against_each_form() -> None:
    both, shared = in_forms(60, 0.6, 0, 0.2), []
    for form in (0, 1):
        answered = [replace(question, control=question.controls[form] * 2) for question in both]
        shared.append(data_verdict(answered).tested)
    verdict = data_verdict(both)
    assert verdict.tested.mean == min(test.mean for test in shared)
    assert verdict.pvalue == pytest.approx(max(test.pvalue for test in shared), abs=0.02)  # other draws


def test_only_the_compared_orders_count() -> None:
    """What the model makes of orders that were not asked in the control forms changes nothing."""
    questions = in_forms(50, 1, 0, 0)
    part = [
        replace(question, compared=(0, 2, 5), control=sum((form[:3] for form in question.controls), ()))
        for question in questions
    ]
    changed = [
        replace(
            question,
            loglikelihoods=(
                *question.loglikelihoods[:1],
                0.0,
                *question.loglikelihoods[2:3],
                0.0,
                0.0,
                *question.loglikelihoods[5:],
            ),
        )
        for question in part
    ]
    assert data_verdict(part).tested == data_verdict(changed).tested
    assert data_verdict(part).tested != data_verdict(questions).tested


def with_right(
    n: int, places: list[int], *, likes: float = 0.0, memory: float = 0.0, n_options: int = 4, seed: int = 0
) -> list[OrderAnswers]:
    """Questions whose published orders have the right option in one of `places` in turn. In the published form the
    model likes it first, by `likes` standard deviations of an order."""
    rng, questions = np.random.default_rng(seed), []
    for number in range(n):
        orders = list(permutations(range(n_options)))
        right = places[number % len(places)]
        places_of_right = tuple(order.index(right) for order in orders)  # the first order is the published one
        published, *rest = rng.normal(-20, 1, size=(4, len(orders)))
        published += likes * np.array([place == 0 for place in places_of_right])
        published[0] += memory
        control = tuple(np.ravel(rest[:2]).tolist())
        answers_of_question = OrderAnswers(
            tuple(published.tolist()), OrderStatus.WRITTEN, control=control, right=places_of_right
        )
        questions.append(answers_of_question)
    return questions


@pytest.mark.parametrize("places", [[0], [0, 0, 0, 2], [3], [0, 1, 2, 3]], ids=["first", "mostly", "last", "evenly"])
@pytest.mark.parametrize("by_reference", [False, True])
def test_a_liking_for_one_place_of_the_right_option_is_no_evidence_wherever_it_stands(places, by_reference) -> None:
    def judged(memory: float, **changes) -> DataVerdict:
        questions = [replace(question, **changes) for question in with_right(200, places, likes=2, memory=memory)]
        if by_reference:
            questions = [replace(question, reference=question.controls[0], control=()) for question in questions]
        return data_verdict(questions)

    assert judged(0).word in (VerdictWord.NONE_FOUND, VerdictWord.INCONCLUSIVE, VerdictWord.NO_VERDICT)
    assert judged(3).word == VerdictWord.STRONG_EVIDENCE
    if places == [0]:  # if that place were not known
        assert judged(0, right=()).word == VerdictWord.STRONG_EVIDENCE


def test_two_options_can_be_compared_unless_the_right_one_stands_in_one_place() -> None:
    verdict_of_places = data_verdict(with_right(100, [0, 1], memory=3, n_options=2))
    assert (verdict_of_places.word, verdict_of_places.n) == (VerdictWord.STRONG_EVIDENCE, 100)
    fixed = with_right(60, [1], memory=3, n_options=2)
    for questions in (fixed, [replace(question, reference=question.controls[0], control=()) for question in fixed]):
        verdict = data_verdict(questions)
        assert (verdict.word, verdict.n_asked) == (VerdictWord.NO_VERDICT, 60)
        assert "the right option stands in one place in all questions" in sentence_of(verdict)
        assert math.isnan(verdict.pvalue)
    assert (
        data_verdict([replace(question, orders=OrderStatus.DRAWN) for question in fixed]).word
        != VerdictWord.NO_VERDICT
    )


# ---------------------------------------------------------------------- how much may be natural


def test_a_natural_part_that_unseen_questions_show_is_no_evidence_and_what_is_beyond_is() -> None:
    unseen = natural_part(in_forms(200, 1, 0, 0, seed=1))
    questions, seen = in_forms(200, 1, 0, 0, seed=2), in_forms(200, 3, 0, 0, seed=3)
    assert data_verdict(questions).word == VerdictWord.STRONG_EVIDENCE
    verdict, beyond = data_verdict(questions, unseen), data_verdict(seen, unseen)
    assert verdict.pvalue > EVIDENCE_LEVEL or math.isnan(verdict.pvalue)
    assert (beyond.word, beyond.n_unseen) == (VerdictWord.STRONG_EVIDENCE, 200)
    mean, spread = beyond.natural
    assert f"of which {mean:.2f} ± {spread:.2f} are natural by 200 unseen questions" in sentence_of(beyond)
    assert "of which 0.00 ± 0.05 are natural on clean benchmarks" in sentence_of(data_verdict(seen))


def test_the_natural_part_is_the_mean_difference_of_the_questions_that_count() -> None:
    unguarded = in_forms(60, 1, 0, 0.5)
    part = natural_part([*unguarded, *(replace(question, guarded=True) for question in in_forms(40, 3, 0, 0))])
    published = zscore([[question.loglikelihoods, *question.controls] for question in unguarded], axis=2)[:, :, 0]
    scores = published[:, :1] - published[:, 1:]
    assert part is not None
    assert part.n == 60
    assert part.means == pytest.approx(scores.mean(axis=0))
    assert part.errors == pytest.approx(scores.std(axis=0, ddof=1) / math.sqrt(60))
    assert natural_part(unguarded[: FEWEST_JUDGED - 1]) is None
    assert natural_part([replace(question, shared=("one family",)) for question in unguarded]) is None


def test_unseen_questions_of_an_exact_benchmark_change_nothing() -> None:
    questions = answers(100, OrderStatus.DRAWN, memory=0.3)
    assert data_verdict(questions, NaturalPart(60, (0.5, 0.5), (0.05, 0.05))) == data_verdict(questions)


def patterned(seed: int) -> tuple[list[OrderAnswers], NaturalPart | None]:
    """Questions that follow a pattern, and what unseen ones of the same pattern show."""
    unseen = natural_part(in_forms(30, 1, 0.6, 0.6, seed=2 * seed))
    questions = in_forms(30, 1, 0.6, 0.6, seed=2 * seed + 1)
    return [replace(question, orders=OrderStatus.PATTERNED) for question in questions], unseen


@pytest.mark.parametrize(
    "drawn",
    [
        lambda seed: (answers(20, OrderStatus.DRAWN, seed=seed), None),
        lambda seed: (answers(20, OrderStatus.WRITTEN, reference=True, seed=seed), None),
        lambda seed: (in_forms(30, 1.5, *((1.5, 0.0), (0.0, 1.5))[seed % 2], seed=seed), None),
        lambda seed: (with_right(32, [0, 0, 0, 2], likes=2, seed=seed), None),
        patterned,
    ],
    ids=[
        "drawn",
        "a reference",
        "one form lacks what is natural",
        "places of the right option",
        "a pattern, with unseen questions",
    ],
)
def test_there_are_no_more_false_alarms_than_claimed(drawn) -> None:
    alarms = sum(data_verdict(*drawn(seed)).tested.pvalue <= 0.05 for seed in range(100))
    assert binomtest(alarms, 100, 0.05, alternative="greater").pvalue > 0.01


def test_orders_that_follow_a_pattern_need_unseen_questions() -> None:
    questions = [replace(question, orders=OrderStatus.PATTERNED) for question in in_forms(100, 2, 0, 0)]
    with_reference = [replace(question, reference=question.loglikelihoods) for question in questions]
    for verdict in (data_verdict(questions), data_verdict(with_reference)):
        assert (verdict.word, verdict.n_asked) == (VerdictWord.NO_VERDICT, 100)
        assert math.isnan(verdict.pvalue)
        assert "follow a pattern of the options' length or likeness" in sentence_of(verdict)
    unseen = NaturalPart(60, (0.4, 0.3), (0.1, 0.1))
    assert data_verdict(questions, unseen).word == VerdictWord.STRONG_EVIDENCE
    assert data_verdict(questions, replace(unseen, means=(2.0, 2.0))).word == VerdictWord.INCONCLUSIVE
    mixed = [*questions[:50], *in_forms(50, 0, 0, 0, seed=1)]
    assert data_verdict(mixed).n == 50


@pytest.mark.parametrize(
    ("mean", "error", "status", "natural"),
    [
        (0.0, USUAL_SPREAD, OrderStatus.WRITTEN, (0.0, USUAL_SPREAD / 2**0.5)),
        (0.1, USUAL_SPREAD, OrderStatus.WRITTEN, (0.05, USUAL_SPREAD / 2**0.5)),
        (0.1, 2 * USUAL_SPREAD, OrderStatus.WRITTEN, (0.02, USUAL_SPREAD * 0.8**0.5)),
        (-0.1, USUAL_SPREAD, OrderStatus.WRITTEN, (0.0, USUAL_SPREAD / 2**0.5)),
        (0.5, 0.1, OrderStatus.WRITTEN, (0.5, 0.1)),
        (0.1, 0.1, OrderStatus.PATTERNED, (0.1, 0.1)),
        (-0.1, 0.1, OrderStatus.PATTERNED, (0.0, 0.1)),
    ],
)
def test_what_is_usual_and_what_unseen_questions_show_are_weighed_by_their_errors(
    mean, error, status, natural
) -> None:
    unseen = NaturalPart(60, (mean, mean), (error, error))
    questions = [replace(question, orders=status) for question in in_forms(40, 1, 0, 0)]
    assert data_verdict(questions, unseen).natural == pytest.approx(natural)


def test_more_may_be_natural_in_several_layouts() -> None:
    questions = in_forms(40, 1, 0, 0)
    in_several = [replace(question, layouts=("audited", "json")) for question in questions]
    assert (data_verdict(questions).natural, data_verdict(in_several).natural) == ((0.0, 0.05), (0.0, 0.06))
    assert [
        data_verdict(questions_in_layouts).power[0].deviation for questions_in_layouts in (questions, in_several)
    ] == pytest.approx([2.0, 2.4])


# ---------------------------------------------------------------------- texts beside those of unseen questions


def with_texts(verdict: DataVerdict, pvalue: float) -> DataVerdict:
    return replace(verdict, texts=TextTest(verdict.n_asked, 60, pvalue, 0.6, 0.14))


clean_orders = data_verdict(answers(60, OrderStatus.WRITTEN, control=True))
seen_orders = data_verdict(answers(60, OrderStatus.WRITTEN, memory=1.5, control=True))


@given(pvalues, pvalues)
def test_two_tests_are_reported_as_twice_the_smaller_pvalue(by_orders: float, by_texts: float) -> None:
    verdict = with_texts(DataVerdict(Basis.CONTROL, tested=OrderSum(60, by_orders)), by_texts)
    assert verdict.pvalue == min(1.0, 2 * min(by_orders, by_texts))
    assert replace(verdict, texts=None).pvalue == by_orders
    assert with_texts(verdict, math.nan).pvalue == by_orders


def test_a_benchmark_whose_texts_are_known_is_found_by_them_where_its_orders_are_not_preferred() -> None:
    verdict = with_texts(clean_orders, 1e-6)
    assert (clean_orders.word, verdict.word) == (VerdictWord.INCONCLUSIVE, VerdictWord.STRONG_EVIDENCE)
    assert verdict_in_words(verdict, short=True) == (
        "Predicts the texts of 60 questions better than those of 60 unseen questions of the same kind, more than the "
        "reference does, by 0.60 ± 0.14 standard deviations (p = 2e-06, evidence at ≤ 0.01)."
    )
    assert "does not significantly prefer the published orders" in reason_of(verdict)
    assert "predicts their texts better than those of 60 unseen questions" in reason_of(verdict)
    assert "p = 1e-06); together p = 2e-06" in reason_of(verdict)


def test_texts_that_are_not_more_predictable_take_no_evidence_from_orders_that_are_strongly_preferred() -> None:
    verdict = with_texts(seen_orders, 0.5)
    assert (seen_orders.word, verdict.word) == (VerdictWord.STRONG_EVIDENCE, VerdictWord.STRONG_EVIDENCE)
    assert verdict_in_words(verdict, short=True).startswith(
        "Prefers the published orders more than in both control forms"
    )
    assert "and does not predict their texts significantly better than those of 60 unseen questions" in reason_of(
        verdict
    )


def test_orders_alone_need_half_the_level_where_texts_are_tested_too() -> None:
    verdict = with_texts(replace(clean_orders, tested=replace(clean_orders.tested, pvalue=0.008)), 0.5)
    assert (replace(verdict, texts=None).word, verdict.word) == (VerdictWord.EVIDENCE, VerdictWord.INCONCLUSIVE)
    assert at_its_level(with_texts(clean_orders, 0.5)).threshold > at_its_level(clean_orders).threshold
    assert "nor texts that are predicted better than those of 60 unseen questions" in verdict_in_words(
        verdict, short=True
    )


@pytest.mark.parametrize("doubt", ["", "the orders follow a pattern"])
def test_where_orders_cannot_be_tested_texts_may_show_evidence_and_clear_nothing(doubt: str) -> None:
    unjudged = replace(data_verdict(answers(60, OrderStatus.WRITTEN)), doubt=doubt)
    assert (unjudged.basis, unjudged.word) == (Basis.RATIO, VerdictWord.NO_VERDICT)
    verdict, not_found = with_texts(unjudged, 0.001), with_texts(unjudged, 0.5)
    assert (verdict.word, not_found.word) == (VerdictWord.EVIDENCE, VerdictWord.NO_VERDICT)
    assert math.isnan(not_found.pvalue)
    assert verdict_in_words(not_found) == verdict_in_words(unjudged)
    assert sentence_of(verdict).startswith(
        "evidence: the model predicts the texts of 60 questions better than those of 60"
    )
    assert verdict.pvalue == 0.001


def with_near_copies(questions: list[OrderAnswers], n_copies: int) -> list[OrderAnswers]:
    """Each question in several wordings, which the model answers alike."""
    rng = random.Random(0)
    trees = ["oak", "elm", "ash", "fir", "yew", "pine", "palm", "larch", "alder", "birch", "cedar", "maple"]
    copies = []
    for question in questions:
        stem = f"Which one of these trees has {' '.join(rng.sample(trees, 4))} near it"
        options = [" ".join(rng.sample(trees, 3)) for _ in range(3)]
        texts = [
            Question("", f"{stem}?", tuple(options)),
            Question("", f"2. {stem}?", tuple(f"{option}." for option in options)),
            Question("", stem.upper(), tuple(f"the {option}" for option in options)),
            Question(
                "", f"{stem}.", tuple(f"({letter}) {option}" for letter, option in zip("abc", options, strict=True))
            ),
        ]
        copies += [replace(question, shared=shared_texts(text)) for text in texts[:n_copies]]
    return copies


@each_test
@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_near_copies_change_neither_word_nor_error(status: str, shape: dict, memory: float) -> None:
    questions = answers(40, status, memory=memory, **shape)
    once, often = (data_verdict(with_near_copies(questions, n)) for n in (1, 4))
    assert (once.n, often.n, often.tested.n_units) == (40, 160, 40)
    assert often.word == once.word
    assert often.tested.mean == pytest.approx(once.tested.mean)
    assert often.tested.mean_error == pytest.approx(once.tested.mean_error)
    assert often.pvalue == pytest.approx(once.pvalue, abs=0.01)
    assert dict(often.at_most) == pytest.approx(dict(once.at_most), abs=0.03, nan_ok=True)
    assert often.seen.n_seen == once.seen.n_seen


def test_with_one_drawn_order_for_near_copies_no_more_than_one_percent_is_evidence() -> None:
    """Of 100 benchmarks of which the model has seen nothing; 10 of them with each copy counted by itself."""
    numbers = families(
        [with_near_copy.shared for with_near_copy in with_near_copies(answers(40, OrderStatus.DRAWN), 4)]
    )

    def is_evidence(seed: int) -> bool:
        scores = [
            standard_scores(np.array(question.loglikelihoods))
            for question in answers(40, OrderStatus.DRAWN, seed=seed)
        ]
        often = [scores_of_question for scores_of_question in scores for _ in range(4)]
        return order_sum(often, np.random.default_rng(0), families=numbers).pvalue <= EVIDENCE_LEVEL

    assert binomtest(sum(map(is_evidence, range(100))), 100, EVIDENCE_LEVEL, alternative="greater").pvalue > 0.05
