from __future__ import annotations

import json

import numpy as np
import pytest

from lm_eval_leakage.detectors.token_evidence import PublishedText, TokenEvidence, TokenMeasurement, z_scores
from lm_eval_leakage.records import Answered, Question, Skipped, TokenScores

QUESTION = Question("q", "Which?", ("a", "b"))
IN_JSON = TokenScores((-1.5, -2.0), (0.0, 0.0), (1.0, 1.0))


def test_the_text_is_asked_for_as_published_and_as_a_row_of_json() -> None:
    question = Question("q", 'Who said "no"?', ("Ann", "Bo"))
    published, in_json = (one.continuation for one in PublishedText().requests(question))
    assert published == 'Who said "no"?\nA. Ann\nB. Bo'
    assert json.loads(in_json + '"]}') == {"question": question.stem, "choices": ["Ann", "Bo"]}


def measured(tokens: TokenScores, k: float = 20.0) -> TokenMeasurement | Skipped:
    asked = PublishedText().requests(QUESTION)
    (found,) = TokenEvidence(k).judge([Answered(QUESTION, asked, (), tokens=(tokens, IN_JSON))])
    return found


def test_by_hand() -> None:
    own = (-1.0, -8.0, -3.0, -4.0, -2.0, -6.0, -1.0, -1.0, -1.0, -1.0)
    found = measured(TokenScores(own, (-2.0,) * 10, (2.0,) * 10))
    assert found == TokenMeasurement(-2.8, -0.4, -7.0, -2.5, 10, -3.5)  # 20 % are two tokens: -8 and -6


@pytest.mark.parametrize(("k", "lowest"), [(1.0, -8.0), (39.0, -8.0), (40.0, -7.0), (100.0, -4.4)])
def test_k_percent_of_five_tokens_is_rounded_down_to_at_least_one(k: float, lowest: float) -> None:
    found = measured(TokenScores((-1.0, -8.0, -6.0, -5.0, -2.0), (0.0,) * 5, (1.0,) * 5), k)
    assert isinstance(found, TokenMeasurement)
    assert (found.min_k, found.min_k_zscore) == pytest.approx((lowest, lowest))


def test_a_token_that_the_model_is_certain_of_scores_zero() -> None:
    np.full(64, 7.0)  # fills memory that is then freed and must not show up as a score
    found = z_scores(TokenScores((0.0, -3.0) * 32, (0.0, -2.0) * 32, (0.0, 0.5) * 32))
    assert found.tolist() == [0.0, -2.0] * 32


def test_a_text_without_tokens_is_skipped_with_the_reason() -> None:
    assert measured(TokenScores((), (), ())) == Skipped("its text has no scored token")
