"""Base of the statistics on option orders: log-likelihoods of many questions as one padded batch on one device."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lm_eval_leakage.inference.pooling import EVIDENCE_ROWS
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence, Skipped

logger = logging.getLogger(__name__)


def find_device(name: str = "auto") -> torch.device:
    """The named device; "auto" is the current accelerator if it supports float64, else the CPU."""
    if name != "auto":
        return torch.device(name)
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if accelerator is None or accelerator.type == "mps" else accelerator


class OrderStatistic(ABC):
    """A statistic on the log-likelihoods of a question's orders, batched over questions."""

    probe: ClassVar[str] = "option_orders"
    rows: ClassVar[tuple[DeclaredRow, ...]] = EVIDENCE_ROWS

    @abstractmethod
    def __call__(self, scores: OrderScores) -> Sequence[Evidence | Skipped]:
        """One verdict per question of the batch, in its order."""

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> Sequence[Evidence | Skipped]:
        """Verdicts on answers; computed on the CPU if the device fails, since the model may have left no memory there
        and its answers may have taken hours."""
        try:
            return self(_scores(answered, device))
        except RuntimeError as error:
            if find_device(device).type == "cpu":
                raise
            logger.warning("%s is computed on the CPU, since the device failed: %s", self, error)
            return self(_scores(answered, "cpu"))


@dataclass(frozen=True)
class OrderScores:
    """Scores of every order of every question.

    loglikelihoods: nats, float64, `(n_questions, n_orders)`; column 0 is the published order; a question with
        fewer orders is padded with -inf at the end of its row
    n_orders: `(n_questions,)`, number of columns of each row that are not padding
    fixed_places: `(n_questions, n_orders)`, number of options that stand in their published place, any number in the
        padding; None if only column 0 is known to be the published order, which then counts 1 and every other order 0
    """

    loglikelihoods: Tensor
    n_orders: Tensor
    fixed_places: Tensor | None = None

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[float]], device: str = "auto") -> OrderScores:
        """A batch on `device` from one sequence of log-likelihoods per question."""
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        if len(rows) and lengths.min() < 2:
            bad = int(lengths.argmin())
            raise ValueError(f"row {bad} has {lengths[bad]} orders; at least 2 are needed")
        padded = _padded(rows, lengths, -np.inf)
        outside = ~np.isfinite(padded) & _within(padded, lengths)
        if outside.any():
            bad = int(np.flatnonzero(outside.any(axis=1))[0])
            raise ValueError(f"row {bad} holds a log-likelihood that is not finite; leave such questions out")
        where = find_device(device)
        return cls(torch.from_numpy(padded).to(where), torch.from_numpy(lengths).to(where))

    def with_fixed_places(self, rows: Sequence[Sequence[int]]) -> OrderScores:
        """The same scores with the number of options in their published place, one sequence per question; an empty one
        where it is not known."""
        if not any(rows):
            return self
        lengths = self.n_orders.cpu().numpy()
        known = [own or [1] + [0] * (length - 1) for own, length in zip(rows, lengths.tolist(), strict=True)]
        for bad, (own, length) in enumerate(zip(known, lengths, strict=True)):
            if len(own) != length:
                raise ValueError(f"row {bad} has fixed places of {len(own)} orders, but scores of {length}")
        return replace(self, fixed_places=torch.from_numpy(_padded(known, lengths, 0)).to(self.loglikelihoods.device))

    @property
    def is_order(self) -> Tensor:
        """Which entries are not padding."""
        return torch.arange(self.loglikelihoods.shape[1], device=self.n_orders.device) < self.n_orders[:, None]

    def centred(self, values: Tensor) -> Tensor:
        """Values of the same shape minus their mean over the question's orders; 0 in the padding."""
        values = torch.where(self.is_order, values, 0.0)
        return torch.where(self.is_order, values - (sums(values) / self.n_orders)[:, None], 0.0)

    def standardised(self) -> Tensor:
        """Log-likelihoods minus their mean over the question's orders, over their (population) standard deviation; 0
        in the padding, and for a question whose orders are all equally likely."""
        centred = self.centred(self.loglikelihoods)
        lowest = torch.where(self.is_order, self.loglikelihoods, torch.inf).amin(dim=1, keepdim=True)
        deviation = (sums(centred.square()) / self.n_orders).sqrt()[:, None]
        varies = (
            self.loglikelihoods.amax(dim=1, keepdim=True) > lowest
        )  # the mean of equal numbers may be off by a bit
        return torch.where(varies & (deviation > 0), centred / deviation, 0.0)


def running_sums(rows: Tensor) -> Tensor:
    """Sums of the first 1, 2, .. numbers of each row, added one after the other, so that neither the other rows nor
    padding with zeros changes a sum in its last digit."""
    if rows.device.type == "cpu":
        return rows.cumsum(dim=1)
    return rows.T.contiguous().cumsum(dim=0).T  # accelerators divide a scan along the rows, by the number of rows


def sums(rows: Tensor) -> Tensor:
    """The sum of each row, likewise."""
    return running_sums(rows)[:, -1]


def _scores(answered: Sequence[Answered], device: str) -> OrderScores:
    scores = OrderScores.from_rows([question.answers for question in answered], device)
    return scores.with_fixed_places([question.fixed_places for question in answered])


def _padded(rows: Sequence[Sequence[float]], lengths: NDArray[np.int64], filler: float) -> NDArray[np.float64]:
    padded = np.full((len(rows), int(lengths.max(initial=2))), filler, dtype=np.float64)
    padded[_within(padded, lengths)] = np.fromiter(chain.from_iterable(rows), dtype=np.float64)
    return padded


def _within(padded: NDArray[np.float64], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = np.arange(padded.shape[1]) < lengths[:, None]
    return inside
