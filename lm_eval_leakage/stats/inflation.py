"""How much does memory of published questions add to an accuracy?

By shuffling: each question is answered as published and once more with its options shuffled, and the model names a
letter. Model: without memory it is right with a probability that does not depend on which version is the published
one; a share of the questions is answered from memory, with the letter that was right as published, whatever stands
there. With P and R the accuracies as published and shuffled, R of the questions whose right option has moved, memory
answers a share P - R, and the accuracy without it is R / (1 - P + R). If shuffling breaks the memory, so that the
model answers as if it had none, it is R itself; the interval holds both. Letters that a model prefers change nothing,
since R is taken by the place of the right option, with the weights that places have as published. Limits: what a
model remembers of the right option's text, whatever its letter, stays, so that more may be due to memory than is
told; and the accuracy is that of the benchmark's own prompt without examples. `TRANSFER` is the error of the model
itself, from copies that were trained on purpose (docs/validity/inflation.md#inflation). Source: ours.

By unseen questions: the difference to the accuracy on questions of the same kind that the model cannot have seen, with
Newcombe's interval; it holds all kinds of memory. Limits: questions of the same kind may still be more difficult.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.stats.order_sum import error_of_mean
from lm_eval_leakage.stats.pooling import IN_95_PERCENT, UNKNOWN, Estimate, Floats, difference_of_shares, share

FEWEST_MOVED = 20  # families of questions whose right option has moved when their options were shuffled
FEWEST_IN_PLACE = 3  # of them, with the right option now in a place in which published ones have it
FEWEST_UNSEEN = 30  # questions
TRANSFER = 0.02  # standard deviation, beside sampling


@dataclass(frozen=True)
class AnsweredTwice:
    """published, shuffled: whether it is answered correctly as published, and with its options shuffled
    place, moved_to: of the right option, as published and then
    """

    published: bool
    shuffled: bool
    place: int
    moved_to: int


def by_shuffling(answers: Iterable[AnsweredTwice], families: Sequence[int] | None = None) -> Estimate:
    """What memory of letters adds to the accuracy, with a 95 % interval; undefined for too few questions, or where the
    right options stand in places to which none has moved.

    families: of each question, the number of its family, which is one unit of evidence (`questions.families`); None
        if each is one of its own
    """
    asked = list(answers)
    numbers = range(len(asked)) if families is None else families
    moved = [one for one in asked if one.moved_to != one.place]
    n_moved = len({number for one, number in zip(asked, numbers, strict=True) if one.moved_to != one.place})
    places = sorted({one.place for one in asked})
    counts = [sum(one.moved_to == place for one in moved) for place in places]
    if n_moved < FEWEST_MOVED or min(counts) < FEWEST_IN_PLACE:
        return UNKNOWN
    n = len(asked)
    right = np.array([one.published for one in asked], dtype=float)
    accuracy = float(right.mean())
    shuffled, of_shuffled = _by_place(asked, places)
    remembered = accuracy - shuffled
    if 1 - remembered < 1 / n:
        return UNKNOWN  # everything is answered from memory
    without = shuffled / (1 - remembered)
    # by how much each question changes either estimate of the accuracy without memory
    of_accuracy = right - accuracy
    of_without = (shuffled * of_accuracy + (1 - accuracy) * of_shuffled) / (1 - remembered) ** 2
    errors = [_error(of_accuracy - own, numbers) for own in (of_without, of_shuffled)]
    values = [accuracy - without, remembered]
    low = min(value - IN_95_PERCENT * error for value, error in zip(values, errors, strict=True))
    high = max(value + IN_95_PERCENT * error for value, error in zip(values, errors, strict=True))
    return Estimate(values[0], errors[0], max(low, accuracy - 1), min(high, accuracy))


def _by_place(asked: Sequence[AnsweredTwice], places: Sequence[int]) -> tuple[float, Floats]:
    """Accuracy on the moved questions, with the weights that places have as published; and the influence of each
    question on it, `(n_questions,)`."""
    n = len(asked)
    published = np.array([one.place for one in asked])
    moved_to = np.array([one.moved_to for one in asked])
    right = np.array([one.shuffled for one in asked], dtype=float)
    total, influence = 0.0, np.zeros(n)
    for place in places:
        here, weight = (moved_to == place) & (published != place), float((published == place).mean())
        accuracy = float(right[here].mean())
        total += weight * accuracy
        influence += (
            np.where(here, (right - accuracy) * weight * n / here.sum(), 0.0) + (published == place) * accuracy
        )
    return total, influence - total


def _error(influence: Floats, families: Sequence[int]) -> float:
    """Standard error of a mean of such influences. Where no family tells a difference, one more could."""
    return math.hypot(error_of_mean(influence, families), 1 / len(set(families)), TRANSFER)


def by_unseen(right: Sequence[bool], of_unseen: tuple[int, int]) -> Estimate:
    """The same by the answers to unseen questions, with Newcombe's 95 % interval; undefined for too few of them.

    of_unseen: (right, all)
    """
    n_right, n = of_unseen
    if n < FEWEST_UNSEEN or len(right) < FEWEST_UNSEEN:
        return UNKNOWN
    return difference_of_shares(share(right), share([True] * n_right + [False] * (n - n_right)))


def without(accuracy: Estimate, inflation: Estimate) -> Estimate:
    """An accuracy on the same questions without what leakage adds; the interval is that of the inflation."""
    if not accuracy or not inflation:
        return UNKNOWN
    ends = (accuracy.value - end for end in (inflation.value, inflation.high, inflation.low))
    value, low, high = (min(1.0, max(0.0, end)) for end in ends)
    return Estimate(value, inflation.stderr, low, high)


def lowest(accuracy: float, n: int, share_seen: float) -> float:
    """What the accuracy would be at least without leakage if no more than this share of the n questions was seen, and
    these are all answered correctly for that reason: on the others, the lower end of Wilson's 95 % interval. NaN where
    all may have been seen."""
    if not share_seen < 1:
        return math.nan
    n_seen = math.ceil(share_seen * n - 1e-9)
    n_right = max(0, round(accuracy * n) - n_seen)
    return share([True] * n_right + [False] * (n - n_seen - n_right)).low
