"""How many questions a detector flags and how likely that is by chance: the one place that makes these p-values.

Null hypothesis: without leakage, a question is flagged at its own null rate, whatever happens to the others. A natural
order of the options, which guards name, breaks it; so there are two p-values under two names: one of all tested
questions, and one of those without a guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lm_eval_leakage.inference.pooling import mean_and_stderr, poisson_binomial_tail
from lm_eval_leakage.results.result_types import Suspicion

ALL_TESTED, NO_GUARD = "all tested", "no guard"  # how every table and page names the questions of a p-value
P, P_ADJUSTED, P_UNGUARDED = f"p, {ALL_TESTED}", f"p adjusted, {ALL_TESTED}", f"p, {NO_GUARD}"


@dataclass(frozen=True)
class Flags:
    """Of questions with a null rate.

    flags: whether each is flagged; of two options the sign counts, which is no flag by itself
    null_rates: how likely each is flagged without leakage
    """

    flags: Sequence[bool]
    null_rates: Sequence[float]

    @property
    def n(self) -> int:
        return len(self.flags)

    @property
    def n_flagged(self) -> int:
        return sum(self.flags)

    @property
    def null_rate(self) -> float:
        return mean_and_stderr(self.null_rates)[0]

    @property
    def pvalue(self) -> float:
        """Probability, by chance, of at least as many flags (exact); NaN without a question."""
        return poisson_binomial_tail(self.n_flagged, self.null_rates)


def flags_of(questions: Iterable[Suspicion], unguarded: bool = False) -> Flags:
    """Of all tested questions, or of those whose options have no natural order by their wording."""
    tested = [one for one in questions if one.null_rate is not None and not (unguarded and one.guards)]
    return Flags([_is_flagged(one) for one in tested], [one.null_rate or 0.0 for one in tested])


def _is_flagged(one: Suspicion) -> bool:
    if one.flagged is not None:
        return one.flagged
    return one.pvalue is not None and one.null_rate is not None and one.pvalue <= one.null_rate
