"""How much of a preference for published orders is natural: what a test by control forms expects without memory.

On clean benchmarks (docs/validity.md) the mean difference between the published and a control form is 0, and their
spread beyond sampling error is `USUAL_SPREAD` at most. Questions of the same kind that the model cannot have seen
measure it for one benchmark and one model; both are averaged with the inverse squares of their errors as weights, as
for a normal distribution. Where a benchmark is unlike those that were tried, the unseen questions alone count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

USUAL_SPREAD = 0.05  # standard deviations of a question's scores
CONTRADICTION = 3.0  # standard errors between unseen questions and the usual spread, from which a benchmark is unlike


@dataclass(frozen=True)
class NaturalPart:
    """Measured on `n` questions that the model cannot have seen.

    means, errors: of the published orders' scores minus those in each control form, with standard errors
    """

    n: int
    means: tuple[float, ...]
    errors: tuple[float, ...]


def expected(natural: NaturalPart | None, n_forms: int, *, is_usual: bool = True) -> list[tuple[float, float]]:
    """Mean, at least 0, and standard deviation by each control form.

    is_usual: whether the benchmark is like those from which `USUAL_SPREAD` comes
    """
    if natural is None:
        return [(0.0, USUAL_SPREAD)] * n_forms
    return [_updated(mean, error, is_usual) for mean, error in zip(natural.means, natural.errors, strict=True)]


def _updated(mean: float, error: float, is_usual: bool) -> tuple[float, float]:
    if not is_usual or abs(mean) > CONTRADICTION * math.hypot(error, USUAL_SPREAD):
        return max(0.0, mean), error
    usual, own = USUAL_SPREAD**-2, error**-2
    return max(0.0, mean * own / (usual + own)), (usual + own) ** -0.5
