"""Accuracy above what is possible: of several equally right options, a key drew the one that counts.

Null hypothesis: the model is independent of the draw. A question with r equally right options is then answered as the
key says with probability 1/r at most, however much the model knows: knowing all right options, it can only guess which
of them was drawn. A model that is better at guessing what authors prefer gains nothing, since no author chose. The
number of hits has a Poisson-binomial tail, exactly, so a better score is evidence of having seen the key. Limits: asks
for questions with several right options, which are few in most benchmarks; wrong answers hide what a model remembers,
so that finding nothing says little. Source: after CapBencher (arXiv 2505.18102), which lets the key of a question
be one of several right answers; the exact tail for different numbers of them is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lm_eval_leakage.inference.pooling import NAN, mean_and_stderr
from lm_eval_leakage.inference.sealed_tests import hits_log_evalue, hits_pvalue


@dataclass(frozen=True)
class Ceiling:
    """The test's result; NaN where it is undefined.

    n: number of questions with several equally right options; n_hits: of them answered as the key says
    expected: the most hits to expect by chance, with their standard deviation
    pvalue: probability, by chance, of at least so many hits (an upper bound, reached by a model that knows all right
        options); log_evalue: logarithm of an e-value
    n_answered: number of all questions; accuracy: on them, with its standard error
    best: the ceiling: the highest accuracy on all questions to expect of any model that did not see the key, with the
        standard deviation of such a model's accuracy over keys
    """

    n: int = 0
    n_hits: int = 0
    expected: float = NAN
    expected_error: float = NAN
    pvalue: float = NAN
    log_evalue: float = NAN
    n_answered: int = 0
    accuracy: float = NAN
    accuracy_error: float = NAN
    best: float = NAN
    best_error: float = NAN


def ceiling(correct: Sequence[bool], n_right: Sequence[int]) -> Ceiling:
    """correct: whether each question was answered as the key says
    n_right: its number of equally right options, 1 for most
    """
    if not correct:
        return Ceiling()
    chances = [1 / n for n in n_right]
    several = [place for place, n in enumerate(n_right) if n > 1]
    hits, rates = [correct[place] for place in several], [chances[place] for place in several]
    return Ceiling(
        len(several),
        sum(hits),
        math.fsum(rates) if several else NAN,
        _deviation(rates) if several else NAN,
        hits_pvalue(hits, rates) if several else NAN,
        hits_log_evalue(hits, rates),
        len(correct),
        *mean_and_stderr([float(own) for own in correct]),
        math.fsum(chances) / len(chances),
        _deviation(chances) / len(chances),
    )


def _deviation(chances: Sequence[float]) -> float:
    """Standard deviation of a number of independent hits."""
    return math.sqrt(math.fsum(chance * (1 - chance) for chance in chances))
