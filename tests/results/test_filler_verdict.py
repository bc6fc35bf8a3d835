"""The verdict on rows that exchanged their fillers, and its words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lm_eval_leakage.records import FillerAnswers, OrderAnswers
from lm_eval_leakage.results.data_verdict import at_its_level, data_verdict
from lm_eval_leakage.results.filler_verdict import (
    NATURAL_SPREAD,
    NUMBERS_ALONE,
    filler_verdict,
    rows_usually_exclude,
    rows_usually_needed,
)
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.verdict_words import (
    cited,
    positive_in_words,
    reason_of,
    scores_in_words,
    sentence_of,
    verdict_in_words,
)
from lm_eval_leakage.stats.order_power import DETECT, DETECT_TIMES, SEEN_ERROR, seen_at_most
from lm_eval_leakage.stats.positive_control import PositiveControl


def answers(n_blocks: int = 20, k: int = 6, *, memory: float = 0.0, fit: float = 0.0, seed: int = 0, reference=False):
    """Answers to rows of blocks; `memory` and `fit` standard deviations are added to the published fillers, the latter
    in the control form and by the reference, too."""
    rng = np.random.default_rng(seed)
    answers_of_rows = []
    for block in range(n_blocks):
        names = 5 * rng.normal(size=k)
        for place in range(k):
            is_published = np.eye(k)[place]
            layouts = tuple(
                tuple((-60 + names + (memory + fit) * is_published + rng.normal(size=k)).tolist()) for _ in range(2)
            )
            control = tuple((-8 + names + fit * is_published + rng.normal(size=k)).tolist())
            others = tuple(tuple((-70 + names + fit * is_published + rng.normal(size=k)).tolist()) for _ in range(2))
            given = {"reference": others} if reference else {"control": control}
            answers_of_rows.append(
                FillerAnswers(f"block {block}", place, layouts, layouts=("prompt", "json"), start="<s>", **given)
            )
    return answers_of_rows


def test_memory_is_evidence_in_words() -> None:
    verdict = filler_verdict(answers(memory=1.0))
    assert (verdict.basis, verdict.n, verdict.word) == ("fillers", 120, "strong evidence")
    assert sentence_of(verdict).startswith(
        "strong evidence: on 120 questions in 20 blocks that exchanged their names, with names chosen by their "
        "authors, the model prefers the published names to the names of other rows, also beyond the control form"
    )
    assert verdict_in_words(verdict, short=True).startswith("Prefers the published names to the names of other rows")
    assert "compared with the names of other rows and with the model's own control form" in cited(verdict)
    clause = scores_in_words(verdict)
    assert "over 2 layouts" in clause
    assert "Each document starts with '<s>'" in clause


def test_without_memory_it_says_how_many_may_have_been_seen() -> None:
    verdict = filler_verdict(answers(60, seed=3))
    assert verdict.word == "none found"
    assert 0 < dict(verdict.at_most)[3] <= 0.25
    assert "No significant preference for the published names" in verdict_in_words(verdict, short=True)
    assert "of the questions were seen once or" in sentence_of(verdict) or "were seen three times" in sentence_of(
        verdict
    )


def test_few_rows_are_inconclusive_or_have_no_verdict() -> None:
    assert filler_verdict(answers(5, seed=1)).word == "inconclusive"
    few = filler_verdict(answers(3))
    assert (few.word, few.n) == ("no verdict", 18)
    assert "the audit has only 18 questions; at least 20 are needed" in reason_of(few)


def test_what_fits_is_no_evidence_and_without_the_control_form_it_would_be() -> None:
    fitting = answers(fit=1.0, seed=2)
    assert "evidence" not in filler_verdict(fitting).word
    alone = [replace(answer, control=()) for answer in fitting]
    assert filler_verdict(alone).word == "strong evidence"


def test_a_reference_takes_what_fits_off() -> None:
    assert "evidence" not in filler_verdict(answers(fit=1.0, seed=2, reference=True)).word
    assert filler_verdict(answers(memory=1.0, seed=2, reference=True)).word == "strong evidence"


def test_a_row_without_answers_is_left_out_with_its_filler() -> None:
    whole = answers(memory=1.0)
    part = [answer for number, answer in enumerate(whole) if number % 7]
    assert filler_verdict(part).n == len(part)
    assert filler_verdict(part).word == "strong evidence"
    assert filler_verdict([*whole, *whole]).n == 120, "copies count once"


def test_the_same_in_any_order() -> None:
    whole = answers(seed=4)
    assert filler_verdict(whole).pvalue == filler_verdict(whole[::-1]).pvalue


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_larger_of_both_pvalues(seed: int) -> None:
    whole = answers(memory=0.3, seed=seed)
    alone = filler_verdict([replace(answer, control=()) for answer in whole])
    assert filler_verdict(whole).pvalue >= alone.pvalue


def test_orders_decide_where_there_are_some() -> None:
    assert data_verdict(()).basis == ""
    assert data_verdict((), fillers=answers()).basis == "fillers"


def test_a_positive_control_is_reported_beside_the_verdict() -> None:
    clean, seen = filler_verdict(answers(60, seed=3)), filler_verdict(answers(memory=1.0))
    shown = PositiveControl("its train split", 100, 0.7, 0.11, 1e-4, 0.27)
    clause = positive_in_words(replace(clean, positive=shown))
    assert clause.startswith(
        "as a positive control, the model shows memory of its train split (0.70 ± 0.11, p = 0.0001)"
    )
    assert "at most 27" in clause
    assert "at most" not in positive_in_words(replace(seen, positive=shown))
    assert "at most" not in positive_in_words(replace(clean, positive=replace(shown, at_most=math.nan)))
    none = PositiveControl("its train split", 100, 0.1, 0.11, 0.2)
    assert "shows no memory either" in positive_in_words(replace(clean, positive=none))
    assert "could not be tested" in positive_in_words(replace(clean, positive=PositiveControl("its train split", 3)))
    assert positive_in_words(replace(filler_verdict(answers(3)), positive=shown)) == ""


def test_fewer_rows_are_needed_for_a_larger_share() -> None:
    few, many = (rows_usually_needed(share, 0.01, has_reference=False) for share in (1.0, 0.5))
    assert few < many
    assert rows_usually_needed(0.05, 0.01, has_reference=False) is None


def test_a_model_without_memory_may_be_none_found_from_so_many_rows_as_usually_exclude_the_aim() -> None:
    def word_of(n_blocks: int) -> str:
        return filler_verdict(answers(n_blocks, memory=-1.0)).word

    def excluded(n_blocks: int) -> float:
        return dict(rows_usually_exclude(6 * n_blocks, SEEN_ERROR, has_reference=False))[DETECT_TIMES]

    n_blocks = next(n for n in range(4, 200) if excluded(n) <= DETECT)
    assert (word_of(n_blocks // 2), word_of(2 * n_blocks)) == ("inconclusive", "none found")


# ---------------------------------------------------------------------- beside option orders


def orders(memory: float = 0.0, *, status: str = OrderStatus.DRAWN, seed: int = 0) -> list[OrderAnswers]:
    """Answers to questions of three options; `memory` standard deviations are added to the published order."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(100, 6)) + memory * np.eye(6)[0]
    return [OrderAnswers(tuple(scores_of_question.tolist()), status) for scores_of_question in scores]


def test_orders_and_names_are_one_verdict_by_bonferronis_rule() -> None:
    by_orders, by_names = data_verdict(orders()), filler_verdict(answers(60, seed=3))
    both = data_verdict(orders(), fillers=answers(60, seed=3))
    smaller = min(by_orders.pvalue, by_names.pvalue)
    assert 0.03 < smaller < 0.5
    assert both.pvalue == pytest.approx(2 * smaller)
    assert both.pvalue_of_each == {"orders": by_orders.pvalue, "names": by_names.pvalue}
    assert by_orders.pvalue_of_each == {}
    assert both.level_of_each == by_orders.level_of_each / 2
    assert "does not significantly prefer the published orders" in sentence_of(both)
    assert "it does not significantly prefer the published names to the names of other rows" in sentence_of(both)
    assert f"; together p = {both.pvalue:.2g}" in sentence_of(both)
    assert ", nor for the published names (p = " in verdict_in_words(both, short=True)
    assert "compared with the names of other rows" in cited(both)


def test_what_both_say_of_the_share_that_was_seen_has_one_error() -> None:
    by_orders, by_names = data_verdict(orders()), filler_verdict(answers(60, seed=3))
    both = at_its_level(data_verdict(orders(), fillers=answers(60, seed=3)))
    assert both.at_most == seen_at_most((*by_orders.power, *by_names.power), 0.025)
    assert dict(both.at_most)[3] > min(dict(by_names.at_most)[3], dict(at_its_level(by_orders).at_most)[3])


def test_evidence_by_one_of_them_is_reported_of_that_one() -> None:
    by_names = data_verdict(orders(), fillers=answers(memory=1.0))
    assert by_names.word == "strong evidence"
    assert verdict_in_words(by_names, short=True).startswith("Prefers the published names to the names of other rows")
    assert "does not significantly prefer the published orders" in sentence_of(by_names)
    assert "it prefers the published names" in sentence_of(by_names)
    by_orders = data_verdict(orders(1.0), fillers=answers(60, seed=3))
    assert by_orders.word == "strong evidence"
    assert verdict_in_words(by_orders, short=True).startswith("Prefers the published orders to other orders")
    assert "it does not significantly prefer the published names" in sentence_of(by_orders)


def test_orders_that_cannot_be_tested_leave_a_verdict_by_names_that_says_so() -> None:
    both = data_verdict(orders(status=OrderStatus.WRITTEN), fillers=answers(60, seed=3))
    alone = filler_verdict(answers(60, seed=3))
    assert (both.basis, both.word, both.pvalue) == ("fillers", alone.word, alone.pvalue)
    assert "; its option orders are not tested: these are orders written by people" in sentence_of(both)


def test_names_that_cannot_be_tested_leave_a_verdict_by_orders_that_says_so() -> None:
    both = data_verdict(orders(), fillers=answers(2))
    assert (both.basis, both.pvalue) == ("orders", data_verdict(orders()).pvalue)
    assert (
        "; its exchanged names are not tested: the audit has only 12 questions; at least 20 are needed"
        in sentence_of(both)
    )


def test_a_preference_that_unseen_rows_show_too_is_natural() -> None:
    alone = filler_verdict(answers(memory=0.8))
    beside = filler_verdict(answers(memory=0.8), answers(memory=0.8, seed=1))
    assert alone.word == "strong evidence"
    assert beside.pvalue > 0.05
    assert beside.n_unseen == 120
    natural, spread = beside.natural
    assert natural == pytest.approx(0.6, abs=0.2)
    assert spread > NATURAL_SPREAD
    few = filler_verdict(answers(memory=0.8), answers(2, memory=0.8, seed=1))
    assert (few.n_unseen, few.pvalue) == (0, alone.pvalue)


def test_a_preference_below_0_in_unseen_rows_makes_no_evidence() -> None:
    avoided = filler_verdict(answers(60, seed=3), answers(memory=-3.0, seed=1))
    assert avoided.natural[0] == 0


def test_numbers_are_tested_beside_another_model_or_unseen_rows_only() -> None:
    alone = [replace(answer, fillers="numbers", control=()) for answer in answers(memory=1.0)]
    verdict = filler_verdict(alone)
    assert (verdict.word, verdict.doubt) == ("no verdict", NUMBERS_ALONE)
    others = [replace(answer, fillers="numbers", control=()) for answer in answers(seed=1)]
    assert filler_verdict(alone, others).word == "strong evidence"
    referred = [replace(answer, fillers="numbers") for answer in answers(memory=1.0, reference=True)]
    assert filler_verdict(referred).word == "strong evidence"
    assert "the model prefers the published numbers more than the reference model does" in sentence_of(
        filler_verdict(referred)
    )


def test_rows_with_names_have_their_verdict_beside_tasks_of_a_group_that_have_only_numbers() -> None:
    named = answers(memory=1.0)
    numbers = [
        replace(answer, block=f"{answer.block} of numbers", fillers="numbers", control=())
        for answer in answers(seed=1)
    ]
    both, alone = filler_verdict([*numbers, *named]), filler_verdict(named)
    assert (both.word, both.pvalue, both.n) == (alone.word, alone.pvalue, alone.n)
    assert both.n_asked == 240
