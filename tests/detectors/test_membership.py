from __future__ import annotations

import json
import random
import zlib
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.detectors.membership import (
    AlteredText,
    PublishedText,
    ReferencedMeasurement,
    RelativeLikelihood,
    RelativeMeasurement,
    TokenEvidence,
    TokenMeasurement,
    shuffled,
    unseen_before,
    z_scores,
)
from lm_eval_leakage.records import Answered, Question, Skipped, TokenScores

QUESTION = Question("q", "What shines?", ("The sun", "A stone", "Wool", "Mud"), answer=0)
nats = st.floats(-500, -1)


def measured(answers: tuple[float, ...], reference: tuple[float, ...] = ()):
    given_off = (
        tuple(answer - other for answer, other in zip(answers, reference, strict=True)) if reference else answers
    )
    answered = Answered(QUESTION, AlteredText().requests(QUESTION), given_off, reference=reference)
    (verdict,) = RelativeLikelihood().judge([answered])
    return verdict


def test_ratios_by_hand() -> None:
    text = "What shines?\nA. The sun\nB. A stone\nC. Wool\nD. Mud"
    size = len(zlib.compress(text.encode()))
    assert measured((-30.0, -60.0, -40.0, -24.0)) == RelativeMeasurement(-30 / size, 0.5, 0.25, 0.8)


def test_a_reference_adds_one_value_and_changes_no_other() -> None:
    alone, beside = (measured((-30.0, -60.0, -40.0, -24.0), other) for other in ((), (-40.0, -70.0, -50.0, -39.0)))
    assert isinstance(beside, ReferencedMeasurement)
    assert asdict(beside) == pytest.approx(asdict(alone) | {"over_reference": 0.25})
    assert beside.ranks_by[-1] == "over_reference"


@given(st.tuples(nats, nats, nats, nats), nats, st.floats(0.01, 0.99))
def test_a_likelier_published_text_ranks_higher_by_every_value(answers, reference, share) -> None:
    before = measured(answers, (reference,) * 4)
    after = measured((answers[0] * share, *answers[1:]), (reference,) * 4)
    assert all(getattr(after, name) > getattr(before, name) for name in before.ranks_by)


def test_a_text_with_log_likelihood_0_is_skipped_with_the_reason() -> None:
    reason = "the log-likelihood of one of its texts is 0, so that ratios to it are undefined"
    assert measured((-1.0, -2.0, -3.0, 0.0)) == Skipped(reason)
    assert measured((-1.0, -2.0, -3.0, -4.0), (0.0, -1.0, -1.0, -1.0)) == Skipped(reason)


def test_the_altered_forms_hold_the_same_words() -> None:
    published, upper, mixed, after = AlteredText().requests(QUESTION)
    assert upper.continuation == published.continuation.upper()
    assert sorted(mixed.continuation.split()) == sorted(published.continuation.split())
    assert mixed.continuation.split() != published.continuation.split()
    assert after.continuation == "\n\n" + published.continuation


def test_a_script_without_spaces_is_shuffled_by_character() -> None:
    assert sorted(shuffled("水是什么 A. 氧", rng=random.Random(0)).split()) == sorted(["A.", *"水是什么氧"])


def test_the_unseen_questions_before_a_question_never_include_itself() -> None:
    first = unseen_before(QUESTION).split("\n")[0]
    again = unseen_before(Question("f", first, ("a", "b")))
    assert first not in again
    assert again.count("\nA. ") == unseen_before(QUESTION).count("\nA. ") == 5


def test_the_text_is_asked_for_as_published_and_as_a_row_of_json() -> None:
    published, in_json = (request.continuation for request in PublishedText().requests(QUESTION))
    assert published == "What shines?\nA. The sun\nB. A stone\nC. Wool\nD. Mud"
    assert json.loads(in_json + '"]}') == {"question": QUESTION.stem, "choices": [*QUESTION.options]}


IN_JSON = TokenScores((-1.5, -2.0), (0.0, 0.0), (1.0, 1.0))


def of_tokens(tokens: TokenScores, k: float = 20.0) -> TokenMeasurement | Skipped:
    requests = PublishedText().requests(QUESTION)
    (verdict,) = TokenEvidence(k).judge([Answered(QUESTION, requests, (), tokens=(tokens, IN_JSON))])
    return verdict


def test_values_of_tokens_by_hand() -> None:
    loglikelihoods = (-1.0, -8.0, -3.0, -4.0, -2.0, -6.0, -1.0, -1.0, -1.0, -1.0)
    verdict = of_tokens(TokenScores(loglikelihoods, (-2.0,) * 10, (2.0,) * 10))
    assert verdict == TokenMeasurement(-2.8, -0.4, -7.0, -2.5, 10, -3.5)  # 20 % are two tokens: -8 and -6


@pytest.mark.parametrize(("k", "lowest"), [(1.0, -8.0), (39.0, -8.0), (40.0, -7.0), (100.0, -4.4)])
def test_k_percent_of_five_tokens_is_rounded_down_to_at_least_one(k: float, lowest: float) -> None:
    verdict = of_tokens(TokenScores((-1.0, -8.0, -6.0, -5.0, -2.0), (0.0,) * 5, (1.0,) * 5), k)
    assert isinstance(verdict, TokenMeasurement)
    assert (verdict.min_k, verdict.min_k_zscore) == pytest.approx((lowest, lowest))


def test_a_token_that_the_model_is_certain_of_scores_zero() -> None:
    np.full(64, 7.0)  # fills memory that is then freed and must not show up as a score
    scores = z_scores(TokenScores((0.0, -3.0) * 32, (0.0, -2.0) * 32, (0.0, 0.5) * 32))
    assert scores.tolist() == [0.0, -2.0] * 32


def test_a_text_without_tokens_is_skipped_with_the_reason() -> None:
    assert of_tokens(TokenScores((), (), ())) == Skipped("its text has no scored token")
