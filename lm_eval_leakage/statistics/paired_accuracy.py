"""Is a question still answered when its options are shuffled, replaced, or both?

Null hypothesis of McNemar's test: answers are as often lost as won between the original and the generalized
question. Limits: it says that accuracy changed, not why; a clean model gains, so a verdict on leakage needs the
difference of a clean reference. Source: Yao et al., EMNLP 2024 (arXiv 2406.13236): accuracy(generalized) -
accuracy(original); the two arms between, the errors and the test are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binomtest, norm

from lm_eval_leakage.records import Answered, Measurement
from lm_eval_leakage.statistics import statistics
from lm_eval_leakage.statistics.tail_answered import margin_and_rank

ARMS = ("original", "shuffled", "replaced", "generalized")


@dataclass(frozen=True)
class ArmsMeasurement(Measurement):
    """Whether the right option was chosen, in each arm; a tie is not right.

    reference, reference_stderr: a clean model's delta, None where none was given
    """

    original: bool
    shuffled: bool
    replaced: bool
    generalized: bool
    reference: float | None = None
    reference_stderr: float | None = None

    def values(self) -> dict[str, float]:
        return {f"accuracy_{arm}": float(getattr(self, arm)) for arm in ARMS}


@statistics.register("paired_accuracy")
@dataclass(frozen=True)
class PairedAccuracy:
    """reference: a clean model's `delta` on the same task, with which this model's is compared
    reference_stderr: its standard error, taken as 0 where it is not given
    """

    reference: float | None = None
    reference_stderr: float = 0.0

    def __post_init__(self) -> None:
        if self.reference is not None and not -1 <= float(self.reference) <= 1:
            raise ValueError(f"reference is {self.reference!r}; it is a difference of accuracies, so between -1 and 1")

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[ArmsMeasurement]:
        return [self._measure(question) for question in answered]

    def _measure(self, answered: Answered) -> ArmsMeasurement:
        n_options = len(answered.question.options)
        arms = [answered.answers[start : start + n_options] for start in range(0, 4 * n_options, n_options)]
        right = [margin_and_rank(scores, gold)[0] > 0 for scores, gold in zip(arms, answered.gold, strict=True)]
        original, shuffled, replaced, generalized = right
        return ArmsMeasurement(original, shuffled, replaced, generalized, self.reference, self.reference_stderr)


@dataclass(frozen=True)
class Difference:
    """Accuracy after minus accuracy before, on the same questions; NaN where it is undefined.

    stderr: of paired differences
    pvalue: McNemar's, two-sided and exact
    """

    value: float
    stderr: float
    pvalue: float


def difference(before: Sequence[bool], after: Sequence[bool]) -> Difference:
    """The change between two arms. The standard error is the sample standard deviation of the questions' own
    differences (-1, 0, 1) over sqrt n; the p-value is the binomial one of the questions that changed."""
    n = len(before)
    lost = sum(b and not a for b, a in zip(before, after, strict=True))
    won = sum(a and not b for b, a in zip(before, after, strict=True))
    if n == 0:
        return Difference(math.nan, math.nan, math.nan)
    mean = (won - lost) / n
    stderr = math.sqrt(((won + lost) / n - mean**2) / (n - 1)) if n > 1 else math.nan
    pvalue = float(binomtest(won, won + lost).pvalue) if won + lost else 1.0
    return Difference(mean, stderr, pvalue)


def below_reference(found: Difference, reference: float, reference_stderr: float) -> float:
    """One-sided p-value of a difference at least as far below a clean model's (normal approximation)."""
    error = math.hypot(found.stderr, reference_stderr)
    if not error > 0:
        return math.nan
    return float(norm.cdf((found.value - reference) / error))
