"""One number per model over all benchmarks: the share of them with evidence of leakage. The best model comes first.

Claim: with all p-values adjusted together, the probability that any clean model has a number above 0 is at most 1 %.
The largest share of questions that a model may have seen would be another number. It is not used, since it is
undefined for a model with evidence, and depends on the number of questions more than on the model.

Limits: 0 does not mean clean, since `inconclusive` counts as no evidence; the words stand beside the number. Models
that were audited in different ways are in different groups and have no common ranks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lm_eval_leakage.results.audit_settings import AuditSettings, why_not_ranked
from lm_eval_leakage.results.formatting import count
from lm_eval_leakage.results.tabulating import COUNT, EMPTY, PERCENT, TEXT, Column
from lm_eval_leakage.results.verdict import VerdictWord

WITH_EVIDENCE = (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE)
NUMBER_MEANING = (
    "The number of a model is the share of its benchmarks with evidence of leakage, among those with a verdict. "
    "The best model comes first, and equal numbers share a place. It is undefined for a model without a verdict."
)


@dataclass(frozen=True)
class RankedModel:
    """A model with its number, and its place in its group.

    n_words: how many benchmarks have each word, also those without a verdict
    place: 1 + the number of models of its group with a lower share; None for a model without a verdict
    """

    model: str
    n_words: Mapping[str, int]
    place: int | None = None

    @property
    def n_judged(self) -> int:
        """Return the number of benchmarks with a verdict."""
        return sum(n for word, n in self.n_words.items() if word != VerdictWord.NO_VERDICT)

    @property
    def evidence_share(self) -> float:
        """Return the share of the benchmarks with a verdict that have evidence; NaN without a verdict."""
        n_evidence = sum(self.n_words.get(word, 0) for word in WITH_EVIDENCE)
        return n_evidence / self.n_judged if self.n_judged else math.nan

    @property
    def words(self) -> str:
        """Return how many benchmarks have each word, the most suspicious first."""
        shown = [(word, self.n_words.get(word, 0)) for word in reversed(VerdictWord)]
        return ", ".join(f"{count(n)} {word}" for word, n in shown if n)


@dataclass(frozen=True)
class ModelGroup:
    """Models that were audited alike, the best first.

    apart: a sentence that says why they are not ranked against the first group; empty for that one
    """

    models: tuple[RankedModel, ...]
    apart: str = ""


@dataclass(frozen=True)
class AuditedModel:
    """A model's verdict words by benchmark, and the settings of those with a verdict."""

    model: str
    words: Mapping[str, str]
    settings: Mapping[str, AuditSettings]


def rank_models(models: Iterable[AuditedModel]) -> tuple[ModelGroup, ...]:
    """Return the models in groups of equal settings, the largest group first, those without a verdict last."""
    by_settings: dict[frozenset[tuple[str, AuditSettings]], list[AuditedModel]] = {}
    for model in models:
        by_settings.setdefault(frozenset(model.settings.items()), []).append(model)
    alike = sorted(by_settings.values(), key=_size)
    return tuple(ModelGroup(_ranked(members), _why_apart(members[0], alike[0][0])) for members in alike)


def _size(members: Sequence[AuditedModel]) -> tuple[bool, int, int, str]:
    """Return a sort key of a group: the most models first, then the most benchmarks; without a verdict last."""
    n_judged = len(members[0].settings)
    return not n_judged, -len(members), -n_judged, min(model.model for model in members)


def _ranked(members: Sequence[AuditedModel]) -> tuple[RankedModel, ...]:
    scored = [RankedModel(model.model, Counter(model.words.values())) for model in members]
    if not members[0].settings:
        return tuple(sorted(scored, key=lambda model: model.model))
    shares = [model.evidence_share for model in scored]
    placed = [
        RankedModel(model.model, model.n_words, 1 + sum(share < model.evidence_share for share in shares))
        for model in scored
    ]
    return tuple(sorted(placed, key=lambda model: (model.place, model.model)))


def _why_apart(model: AuditedModel, first: AuditedModel) -> str:
    if not model.settings and first.settings:
        return "Not ranked, since no benchmark has a verdict."
    return why_not_ranked(model.settings, first.settings)


RANKED: Sequence[Column[RankedModel]] = (
    Column("model", TEXT, lambda model: model.model),
    Column("place", COUNT, lambda model: EMPTY if model.place is None else model.place),
    Column("benchmarks with evidence", PERCENT, lambda model: model.evidence_share),
    Column("of benchmarks with a verdict", COUNT, lambda model: model.n_judged),
    Column("verdicts", TEXT, lambda model: model.words),
)
