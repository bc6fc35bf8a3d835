"""Base of the statistics on option orders: log-likelihoods of many questions as one padded batch on one device."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import torch
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
        rows = [question.answers for question in answered]
        try:
            return self(OrderScores.from_rows(rows, device))
        except RuntimeError as error:
            if find_device(device).type == "cpu":
                raise
            logger.warning("%s is computed on the CPU, since the device failed: %s", self, error)
            return self(OrderScores.from_rows(rows, "cpu"))


@dataclass(frozen=True)
class OrderScores:
    """Scores of every order of every question.

    loglikelihoods: nats, float64, `(n_questions, n_orders)`; column 0 is the published order; a question with
        fewer orders is padded with -inf at the end of its row
    n_orders: `(n_questions,)`, number of columns of each row that are not padding
    """

    loglikelihoods: Tensor
    n_orders: Tensor

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[float]], device: str = "auto") -> OrderScores:
        """A batch on `device` from one sequence of log-likelihoods per question."""
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        if len(rows) and lengths.min() < 2:
            bad = int(lengths.argmin())
            raise ValueError(f"row {bad} has {lengths[bad]} orders; at least 2 are needed")
        values = np.fromiter(chain.from_iterable(rows), dtype=np.float64, count=int(lengths.sum()))
        if not np.isfinite(values).all():
            bad = int(np.repeat(np.arange(len(rows)), lengths)[~np.isfinite(values)][0])
            raise ValueError(f"row {bad} holds a log-likelihood that is not finite; leave such questions out")
        padded = np.full((len(rows), int(lengths.max(initial=2))), -np.inf)
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = values
        where = find_device(device)
        return cls(torch.from_numpy(padded).to(where), torch.from_numpy(lengths).to(where))
