from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lm_eval_leakage import __version__
from lm_eval_leakage.results.data_verdict import PATTERN_ALONE
from lm_eval_leakage.results.provenance import Provenance
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.verdict import NOT_AUDITED, Basis, DataVerdict, not_judged
from lm_eval_leakage.results.verdict_texts import (
    REFERENCE_OPTION,
    UNSEEN_WOULD_FIND,
    VerdictSummary,
    changing_options,
    sentence_to_copy,
    summarise_verdict,
)
from lm_eval_leakage.results.verdict_words import reason_of, scores_in_words, verdict_in_words
from lm_eval_leakage.stats.order_sum import OrderRatio, OrderSum
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate, normal
from lm_eval_leakage.stats.unseen_texts import TextTest
from tests.report.made import LITTLE, UNDECIDED, row, verdict

LAYOUTS_OF_SEEN = ", in whatever layout"


def short_sentence(verdict: DataVerdict) -> str:
    return verdict_in_words(verdict, short=True)


def text(verdict: VerdictSummary) -> str:
    """Return the text with plain spaces instead of those that keep a number and its unit together."""
    return " ".join([verdict.sentence, verdict.figures, *verdict.reasons]).replace("\u00a0", " ")


NOT_ESTIMATED = {"inflation": UNKNOWN}


def figures(verdict: VerdictSummary) -> str:
    return verdict.figures.replace("\u00a0", " ")


def test_finding_nothing_by_the_orders_alone_compares_with_nothing() -> None:
    assert short_sentence(verdict(0.2, basis=Basis.ORDERS)).startswith(
        "No significant preference for the published orders ("
    )


@pytest.mark.parametrize(
    ("at_most", "clause"),
    [
        ((), ", but how many questions may have been seen is not known."),
        (
            ((1, math.nan), (3, math.nan)),
            ", but all of the questions may have been seen 3 times as the audit shows them; the aim was",
        ),
        (((1, 0.244), (3, 0.251)), ", but up to 25.1 % of the questions may have been seen 3 times as the audit"),
        (((1, 0.244), (3, 0.251)), "the aim was 25.0 %."),
        (((1, 0.244), (3, 0.1)), "). At most 10 % of the questions were seen 3 times as the audit shows them, "),
        (((1, math.nan), (3, 0.1)), "). At most 10 % of the questions were seen 3 times as the audit shows them, "),
    ],
)
def test_finding_nothing_says_how_many_questions_may_have_been_seen(at_most, clause) -> None:
    sentence = short_sentence(verdict(0.2, at_most=at_most)).replace("\u00a0", " ")
    assert sentence.startswith(
        "No significantly stronger preference for the published orders than in both control forms"
    )
    assert clause in sentence
    assert ("At most" in sentence) is (clause.startswith(")"))


@pytest.mark.parametrize(
    ("verdict_given", "expected", "option"),
    [
        (
            UNDECIDED,
            "People wrote these orders, and the audit has neither a control nor a reference. The published order is "
            "the most likely one 1.5 times as often as by chance; natural preference may explain that.",
            "`check`, which asks control forms, may change that.",
        ),
        (
            DataVerdict(Basis.RATIO, OrderStatus.UNDECIDED, n_asked=5, ratio=OrderRatio(5)),
            "People may have written these orders, and the audit has neither a control nor a reference.",
            "`check`, which asks control forms, may change that.",
        ),
        (
            DataVerdict(
                Basis.ORDERS, OrderStatus.DRAWN, 30, 30, OrderSum(30, 0.4, mean=0.1, mean_error=0.1), doubt="so few"
            ),
            "So few.",
            "`check` with `--questions all` may change that.",
        ),
        (
            DataVerdict(Basis.REFERENCE, OrderStatus.WRITTEN, 30, 30, doubt="the reference is this model"),
            "The reference is this model.",
            "Another model as reference (`--reference`) may change that.",
        ),
        (not_judged("the model gives no log-likelihoods"), "The model gives no log-likelihoods.", None),
    ],
    ids=["written", "undecided", "doubt", "reference", "no audit"],
)
def test_no_verdict_says_why_once_and_what_may_change_that(verdict_given, expected, option) -> None:
    shown = summarise_verdict(row(verdict=verdict_given, flagged_rate=UNKNOWN, accuracy=UNKNOWN))
    assert shown.word == "no verdict"
    remedy = "No command would change that for this model and task." if option is None else option
    counted = f" {verdict_given.n_asked} questions, which this audit cannot flag singly."
    assert text(shown).strip() == f"{expected} {remedy}{counted if verdict_given.n_asked else ''}"


def options(verdict_given: DataVerdict, has_more: bool = True, n_available: int | None = None, **numbers: int):
    return changing_options(replace(row(verdict=verdict_given), **numbers), has_more, n_available)


def test_more_questions_are_a_remedy_only_where_there_are_more() -> None:
    few, weak = DataVerdict(Basis.CONTROL, n=12, n_asked=40), DataVerdict(Basis.CONTROL, n=30, n_asked=40, doubt="few")
    assert options(few) == options(weak) == {"questions": "all"}
    assert options(few, has_more=False) is None
    guarded = DataVerdict(Basis.CONTROL, n_asked=40, ratio=OrderRatio(0))
    assert options(guarded) is options(replace(few, doubt=PATTERN_ALONE)) is None
    assert options(weak, has_more=False) == REFERENCE_OPTION
    assert options(replace(weak, basis=Basis.ORDERS), has_more=False) is None


def test_more_questions_than_a_benchmark_has_are_no_remedy() -> None:
    power = SimpleNamespace(needed=lambda detect, level: 300)
    missed = verdict(0.2, at_most=LITTLE, power=(power,))
    assert options(missed) == options(missed, n_available=300) == {"questions": "300"}
    assert options(missed, n_available=299) == REFERENCE_OPTION


def test_a_larger_window_is_the_remedy_where_enough_questions_were_too_long() -> None:
    few, none = DataVerdict(Basis.CONTROL, n=12, n_asked=12), not_judged("all were skipped")
    larger = {"model_args": "max_length=300"}
    assert options(few, n_too_long=8, window_needed=300) == options(none, n_too_long=20, window_needed=300) == larger
    assert options(few, has_more=False, n_too_long=7, window_needed=300) is None
    shown = summarise_verdict(replace(row(verdict=none, accuracy=UNKNOWN), n_too_long=20, window_needed=300))
    assert "`check` with `--model_args max_length=300` may" in shown.sentence


def test_the_accuracy_says_how_many_questions_it_counts() -> None:
    shown = summarise_verdict(
        replace(row(verdict=verdict(0.2)), n=100, n_left_out=30, n_too_long=20, window_needed=300)
    )
    assert " on 70 of 100 questions" in shown.figures
    assert " on 70 of 100 questions" in shown.citation
    texts = "Texts of 20 questions are longer than the model's window and were not scored"
    assert f"{texts}; all would need max_length=300." in shown.figures
    assert "Accuracy 0.50 (95 % interval 0.40 to 0.60);" in figures(summarise_verdict(row()))


def test_of_fewer_than_ten_flagged_questions_only_their_number_is_reported() -> None:
    about = {"gap_adjusted": Estimate(0.1, 0.03), "flagged_rate_unguarded": Estimate(0.07, 0.02)}
    few = summarise_verdict(row(flagged_rate=Estimate(0.09, 0.03), verdict=verdict(0.2, at_most=()), **about))
    of_unguarded = "7 % of those without a natural order (4 % expected by chance)"
    assert f"9 % of 100 questions flagged, {of_unguarded}." in figures(few)
    assert len(few.reasons) == 2
    enough = summarise_verdict(row(flagged_rate=Estimate(0.10, 0.03), verdict=verdict(0.2, at_most=()), **about))
    assert len(enough.reasons) == 3


def test_without_a_question_for_which_it_holds_no_share_by_chance_is_given() -> None:
    assert "25 % of 100 questions flagged, all with a natural order." in figures(
        summarise_verdict(row(flagged_rate_unguarded=UNKNOWN))
    )


def test_the_reasons_say_why_texts_were_not_tested_and_nothing_where_they_were() -> None:
    withheld = verdict(0.2, texts=TextTest(100, 60, withheld="they are others"))
    assert (
        "Its texts are not compared with those of the unseen questions: they are others."
        in summarise_verdict(row(verdict=withheld)).reasons
    )
    tested = summarise_verdict(row(verdict=verdict(0.2, texts=TextTest(100, 60, 0.3, 0.1, 0.2)))).reasons
    assert not any("are not compared" in reason or reason == UNSEEN_WOULD_FIND for reason in tested)


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        (
            {
                "n_tested": 1000,
                "flagged_rate": Estimate(0.004, 0.002),
                "accuracy": normal(0.4121, 0.0042),
                **NOT_ESTIMATED,
            },
            "0.4 % of 1,000 questions flagged (4 % expected by chance). Accuracy 0.412 (95 % interval 0.404 to "
            "0.420).",
        ),
        (
            {"metric": "", "accuracy": UNKNOWN},
            "25 % of 100 questions flagged (4 % expected by chance).",
        ),
        ({"null_rate": math.nan, "accuracy": UNKNOWN}, "25 % of 100 questions flagged."),
        ({"n_tested": 1, "flagged_rate": Estimate(1.0), "null_rate": math.nan}, "100 % of 1 question flagged."),
        (
            {"metric": "acc_norm,none", "flagged_rate": UNKNOWN, **NOT_ESTIMATED},
            "Accuracy (acc_norm) 0.50 (95 % interval 0.40 to 0.60).",
        ),
        (
            {"n_tested": 0, "flagged_rate": UNKNOWN, **NOT_ESTIMATED, "verdict": verdict(0.2, at_most=())},
            "100 questions, which this audit cannot flag singly. Accuracy 0.50 (95 % interval 0.40 to 0.60).",
        ),
    ],
    ids=["small", "without a run", "without a null rate", "one question", "another metric", "two options"],
)
def test_figures_say_what_was_counted_and_nothing_else(about, expected) -> None:
    assert figures(summarise_verdict(row(**about))).startswith(expected)


def test_without_an_audit_there_is_no_word_and_nothing_is_said_of_flags() -> None:
    nothing = row(n_joined=0, n_tested=0, flagged_rate=UNKNOWN, inflation=UNKNOWN)
    text_of_verdict = summarise_verdict(nothing)
    assert (text_of_verdict.word, text_of_verdict.badge, figures(text_of_verdict)) == (
        "",
        "",
        "Accuracy 0.50 (95 % interval 0.40 to 0.60).",
    )
    assert text_of_verdict.sentence == "No audit of this model covers it, so there is no verdict."
    assert summarise_verdict(row()).sentence == "Audited without option orders, so there is no verdict."
    assert short_sentence(NOT_AUDITED) == text_of_verdict.citation == ""


def test_the_gap_among_similar_questions_has_its_direction() -> None:
    lower = summarise_verdict(row(gap_adjusted=normal(-0.1, 0.03))).reasons[-1]
    assert lower.replace("\u00a0", " ") == (
        "Among questions of similar difficulty, the accuracy on flagged ones is lower by 0.10 (95 % interval 0.04 to "
        "0.16)."
    )


# ---------------------------------------------------------------------- a sentence to copy

MADE = Provenance("org/m", "revision 93efa2f", "hf, dtype=bfloat16", 7, "0.4.13", "2026-11-23", digest="1a2b3c4d")
BEGINNING = (
    "org/m (revision 93efa2f) was checked for leakage on 100 questions of mmlu (digest 1a2b3c4d; drawn with seed "
    f"7) by lm_eval_leakage {__version__}, lm_eval 0.4.13, 2026-11-23: the verdict is "
)
NONE = verdict(0.57, n=60, adjusted=1.0, n_together=2, at_most=((1, 0.65), (3, 0.24)))


@pytest.mark.parametrize(
    ("judged", "ending"),
    [
        (
            NONE,
            "“none found: 25\xa0% seen three times is excluded” (p = 0.57, 1 after adjustment for 2 "
            "verdicts, evidence at ≤ 0.01; 60 questions without a natural order, compared with the model's own "
            "control forms; at most 65\xa0% of the questions were seen once or 24\xa0% three times as the audit shows "
            "them, with 95\xa0% confidence).",
        ),
        (not_judged("it has no options"), "“no verdict” (it has no options)."),
    ],
)
def test_a_verdict_of_any_kind_is_one_sentence_with_model_questions_versions_and_date(judged, ending) -> None:
    given = row(verdict=judged, provenance=MADE, accuracy=UNKNOWN, **NOT_ESTIMATED)
    assert sentence_to_copy(given) == BEGINNING + ending


def test_what_an_accuracy_is_worth_is_estimated_or_bounded_or_not_reported() -> None:
    verdict_of_ratio = verdict(0.2, at_most=((1, math.nan), (3, 0.25)))
    estimated = summarise_verdict(row(verdict=verdict_of_ratio, inflation=Estimate(0.1, 0.04, 0.02, 0.18)))
    assert (
        "Accuracy 0.50 (95 % interval 0.40 to 0.60); about 0.40 (0.32 to 0.48) without leakage, which adds 0.10."
        in figures(estimated)
    )
    for value, low in ((0.004, 0.002), (-0.2, -0.3), (0.11, -0.02), (0.11, 0.0)):
        estimated = summarise_verdict(row(verdict=verdict_of_ratio, inflation=Estimate(value, 0.05, low, value + 0.1)))
        assert "without leakage, no measurable inflation." in figures(estimated)
        assert "which adds" not in estimated.citation
    bounded = summarise_verdict(row(verdict=verdict_of_ratio, **NOT_ESTIMATED))
    least = "at least 0.24 without leakage if no more than 25 % of the questions were seen"
    assert figures(bounded).endswith(f"Accuracy 0.50 (95 % interval 0.40 to 0.60); {least}.")
    assert f"Its accuracy is 0.50 (95 % interval 0.40 to 0.60); {least}." in bounded.citation.replace("\u00a0", " ")
    for other in (verdict(0.003, at_most=verdict_of_ratio.at_most), verdict(0.2, at_most=((1, math.nan), (3, 0.6)))):
        assert figures(summarise_verdict(row(verdict=other, **NOT_ESTIMATED))).endswith(
            "Accuracy 0.50 (95 % interval 0.40 to 0.60)."
        )


@pytest.mark.parametrize(
    ("layouts", "how"), [((), " as the audit shows them"), (("audited", "json"), LAYOUTS_OF_SEEN)]
)
def test_a_bound_says_in_which_layouts_the_questions_were_seen(layouts: tuple[str, ...], how: str) -> None:
    verdict_of_looks = verdict(0.2, at_most=((1, 0.4), (3, 0.2)), layouts=layouts)
    assert (
        f"; at most 40\xa0% of the questions were seen once or 20\xa0% three times{how}, with 95\xa0% confidence"
        in reason_of(verdict_of_looks)
    )
    little = replace(verdict_of_looks, at_most=((3, 0.4),))
    assert f"at most 40\xa0% of the questions were seen three times{how}, with 95\xa0% confidence" in reason_of(little)
    assert f"up to 40 % of the questions may have been seen 3 times{how}; the aim" in verdict_in_words(
        little, short=True
    ).replace("\xa0", " ")
    assert f"At most 20 % of the questions were seen 3 times{how}, " in verdict_in_words(
        verdict_of_looks, short=True
    ).replace("\xa0", " ")
    over = " over 2 layouts" if layouts else ""
    scored = scores_in_words(replace(verdict_of_looks, scores=(0.1, 0.2, 0.3)))
    assert scored.startswith(f"Mean score of the published orders{over}, in standard deviations")
