"""Log-likelihoods of many questions' orders as one padded batch on one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def find_device(name: str = "auto") -> torch.device:
    """The named device; "auto" is the first accelerator that computes in float64, else the CPU."""
    if name != "auto":
        return torch.device(name)
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if accelerator is None or accelerator.type == "mps" else accelerator


@dataclass(frozen=True)
class OrderScores:
    """Scores of every order of every question.

    loglikelihoods: nats, float64, `(n_questions, n_orders)`; column 0 is the published order; a question with
        fewer orders is padded with -inf at the end of its row
    n_orders: `(n_questions,)`, how many of a row's columns count
    """

    loglikelihoods: Tensor
    n_orders: Tensor

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[float]], device: str = "auto") -> OrderScores:
        """A batch from one sequence of log-likelihoods a question, on `device`."""
        for index, row in enumerate(rows):
            if len(row) < 2:
                raise ValueError(f"row {index} has {len(row)} orders; at least 2 are needed to compare")
        n_orders = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        padded = torch.full((len(rows), max(map(len, rows), default=2)), -torch.inf, dtype=torch.float64)
        filled = torch.arange(padded.shape[1]) < n_orders[:, None]
        padded[filled] = torch.tensor([score for row in rows for score in row], dtype=torch.float64)
        if not torch.isfinite(padded[filled]).all():
            bad = int((filled & ~torch.isfinite(padded)).any(dim=1).nonzero()[0])
            raise ValueError(f"row {bad} holds a log-likelihood that is not finite; leave such questions out")
        where = find_device(device)
        return cls(padded.to(where), n_orders.to(where))
