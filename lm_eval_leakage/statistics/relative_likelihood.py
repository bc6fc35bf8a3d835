"""How much likelier is the published text than forms of it that only a reader would take for the same?

Null hypothesis: none, and so no p-value and no flag; the values rank questions, and need known-unseen ones to be
compared with. A higher one means more leakage. Limits: names and formulas lose by capitals what prose does not.
Source: likelihood by zlib's size and by case, Carlini et al. (arXiv 2012.07805); neighbours, Mattern et al. (arXiv
2305.18462); ReCaLL, Xie et al. (arXiv 2406.15968); a reference model, Carlini et al. (arXiv 2112.03570).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from lm_eval_leakage.inference.pooling import mean_row
from lm_eval_leakage.records import Answered, DeclaredRow, Measurement, Skipped
from lm_eval_leakage.statistics import statistics

NO_NATS = -1e-6  # above it there is nothing to take a share of


@dataclass(frozen=True)
class RelativeMeasurement(Measurement):
    """per_zlib_byte: log-likelihood over the bytes that zlib makes of the text, nats
    over_upper: share of the nats of the text in upper case that the published form saves
    over_shuffled: the same of the text with its words shuffled
    recall: nats after unseen questions over nats alone (ReCaLL); what is known by heart gains little by them
    """

    ranks_by: ClassVar[tuple[str, ...]] = ("per_zlib_byte", "over_upper", "over_shuffled", "recall")
    per_zlib_byte: float
    over_upper: float
    over_shuffled: float
    recall: float

    def values(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class ReferencedMeasurement(RelativeMeasurement):
    """over_reference: share of the nats of a reference model, on the same text, that this model saves"""

    ranks_by: ClassVar[tuple[str, ...]] = (*RelativeMeasurement.ranks_by, "over_reference")
    over_reference: float


@statistics.register("relative_likelihood")
@dataclass(frozen=True)
class RelativeLikelihood:
    probe: ClassVar[str] = "altered_text"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row("per_zlib_byte", "Log-likelihood of the published text over the bytes that zlib makes of it, nats"),
        mean_row("over_upper", "Share of the nats of the text in upper case that the published form saves"),
        mean_row(
            "over_shuffled", "Share of the nats of the text with its words shuffled that the published form saves"
        ),
        mean_row("recall", "Nats of the text after unseen questions over its nats alone (ReCaLL)"),
        mean_row("over_reference", "Share of a reference model's nats on the text that the model saves"),
    )

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[RelativeMeasurement | Skipped]:
        return [_measure(question) for question in answered]


def _measure(answered: Answered) -> RelativeMeasurement | Skipped:
    own = answered.own_loglikelihoods
    expected = answered.reference[0] if answered.reference else own[0]
    published, upper, shuffled, after_unseen = own
    if max(*own, expected) > NO_NATS:
        return Skipped("a model is certain of every token of a text, so that no share of its nats can be taken")
    size = len(zlib.compress(answered.requests[0].continuation.encode("utf-8", "surrogatepass")))
    values = (published / size, 1 - published / upper, 1 - published / shuffled, after_unseen / published)
    if not answered.reference:
        return RelativeMeasurement(*values)
    return ReferencedMeasurement(*values, 1 - published / expected)
