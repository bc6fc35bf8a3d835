from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lm_eval_leakage.detectors.option_orders import MaxOrder
from lm_eval_leakage.records import Answered, Question
from lm_eval_leakage.stats.order_scores import OrderScores, find_device


def test_rows_of_different_lengths_share_a_batch() -> None:
    scores = OrderScores.from_rows([[-1.0, -2.0], [-3.0, -4.0, -5.0]], device="cpu")
    assert scores.n_orders.tolist() == [2, 3]
    assert scores.loglikelihoods.tolist() == [[-1.0, -2.0, -math.inf], [-3.0, -4.0, -5.0]]
    assert scores.loglikelihoods.dtype == torch.float64


def test_one_order_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="row 1 has 1 orders; at least 2"):
        OrderScores.from_rows([[-1.0, -2.0], [-1.0]])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="row 1 holds a log-likelihood that is not finite"):
        OrderScores.from_rows([[-1.0, -2.0], [value, -1.0]])


def test_scores_are_computed_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, on_cpu = [], OrderScores.from_rows

    def noted(rows, device="nowhere"):
        asked.append(device)
        return on_cpu(rows, "cpu")

    monkeypatch.setattr(OrderScores, "from_rows", noted)
    question = Answered(Question("q", "Which?", ("a", "b")), (), (-1.0, -2.0))
    MaxOrder().judge([question], "meta")
    MaxOrder().judge([question])
    assert asked == ["meta", "auto"]


@pytest.mark.parametrize(("there", "found"), [(None, "cpu"), ("cuda", "cuda"), ("xpu", "xpu"), ("mps", "cpu")])
def test_the_first_accelerator_with_float64_is_found(
    there: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = None if there is None else torch.device(there)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: device is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: device)
    assert find_device().type == found
    assert find_device("cpu").type == "cpu"


@pytest.mark.parametrize("size", [1, 3, 8])
def test_standardised_scores_are_the_same_to_the_last_digit_in_any_batch(size: int) -> None:
    rng = np.random.default_rng(1)
    rows = [rng.normal(-60, 3, n).tolist() for n in [24] * 30 + [6, 120] * 5]
    together = OrderScores.from_rows(rows, "cpu").standardised()
    for at in range(0, len(rows), size):
        part = OrderScores.from_rows(rows[at : at + size], "cpu").standardised()
        assert torch.equal(part, together[at : at + size, : part.shape[1]])
