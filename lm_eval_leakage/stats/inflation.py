"""Estimates how much memory of published questions adds to an accuracy.

By shuffling: each question is answered as published and once more with its options shuffled, and the model names a
letter. Assumptions: without memory, the model is right with a probability that does not depend on which version is the
published one. A share of the questions is answered from memory, with the letter that was right as published, whichever
option now has it. With P and R the accuracies as published and shuffled, R of the questions whose right option has
moved, memory answers a share P - R, and the accuracy without it is R / (1 - P + R). If shuffling breaks the memory, so
that the model answers as if it had none, it is R itself; the interval holds both. Letters that a model prefers change
nothing, since R is weighted by the places that right options have as published. Limits: memory of the right option's
text, with whatever letter, is not measured, so the inflation may be higher. The accuracy is that of the benchmark's
own prompt without examples. `TRANSFER` is the error of the assumptions, from copies that were trained on purpose
(docs/validity/inflation.md). Source: ours.

By unseen questions: the difference to the accuracy on questions of the same kind that the model cannot have seen, with
Newcombe's interval. It includes all kinds of memory. Limits: questions of the same kind may still be more difficult.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.stats.order_sum import error_of_mean
from lm_eval_leakage.stats.pooling import IN_95_PERCENT, UNKNOWN, Estimate, Floats, difference_of_shares, share

FEWEST_MOVED = 20  # families of questions whose right option has moved when their options were shuffled
FEWEST_IN_PLACE = 3  # of them, for each place of published right options, with the right option moved to it
FEWEST_UNSEEN = 30  # questions
TRANSFER = 0.02  # standard deviation, beside sampling


@dataclass(frozen=True)
class AnsweredTwice:
    """The answers to a question as published and with its options shuffled; it says which are right.

    published, shuffled: whether the answer is right in each version
    place, moved_to: the place of the right option in each version
    """

    published: bool
    shuffled: bool
    place: int
    moved_to: int


def by_shuffling(answers: Iterable[AnsweredTwice], families: Sequence[int] | None = None) -> Estimate:
    """Return the accuracy that is due to memory of letters, with a 95 % interval. It is undefined for too few
    questions, and if some published right options stand in places to which none has moved.

    families: the number of each question's family, which is one unit of evidence (`questions.families`); None if each
        question is a family
    """
    questions = list(answers)
    numbers = range(len(questions)) if families is None else families
    moved = [(question, number) for question, number in zip(questions, numbers, strict=True) if _has_moved(question)]
    n_moved = len({number for _, number in moved})
    places = sorted({question.place for question in questions})
    counts = [sum(question.moved_to == place for question, _ in moved) for place in places]
    if n_moved < FEWEST_MOVED or min(counts) < FEWEST_IN_PLACE:
        return UNKNOWN
    n = len(questions)
    right = np.array([question.published for question in questions], dtype=float)
    accuracy = float(right.mean())
    shuffled, of_shuffled = _by_place(questions, places)
    remembered = accuracy - shuffled
    if 1 - remembered < 1 / n:
        return UNKNOWN  # everything is answered from memory
    without = shuffled / (1 - remembered)
    # the influence of each question on both estimates of the accuracy without memory
    of_accuracy = right - accuracy
    of_without = (shuffled * of_accuracy + (1 - accuracy) * of_shuffled) / (1 - remembered) ** 2
    errors = [_error(of_accuracy - influence, numbers) for influence in (of_without, of_shuffled)]
    values = [accuracy - without, remembered]
    low = min(value - IN_95_PERCENT * error for value, error in zip(values, errors, strict=True))
    high = max(value + IN_95_PERCENT * error for value, error in zip(values, errors, strict=True))
    return Estimate(values[0], errors[0], max(low, accuracy - 1), min(high, accuracy))


def _has_moved(question: AnsweredTwice) -> bool:
    return question.moved_to != question.place


def _by_place(questions: Sequence[AnsweredTwice], places: Sequence[int]) -> tuple[float, Floats]:
    """Return the accuracy on the moved questions, weighted by the places of published right options, and the influence
    of each question on it, `(n_questions,)`."""
    n = len(questions)
    published = np.array([question.place for question in questions])
    moved_to = np.array([question.moved_to for question in questions])
    right = np.array([question.shuffled for question in questions], dtype=float)
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
    """Return the standard error of an estimate with these influences. Since one more family could differ from all
    others, it is at least one over the number of families."""
    return math.hypot(error_of_mean(influence, families), 1 / len(set(families)), TRANSFER)


def by_unseen(right: Sequence[bool], of_unseen: tuple[int, int]) -> Estimate:
    """Return the inflation by the answers to unseen questions, with Newcombe's 95 % interval. It is undefined for too
    few questions.

    right: whether each question of the benchmark is answered correctly
    of_unseen: numbers of right answers to unseen questions, and of all answers to them
    """
    n_right, n = of_unseen
    if n < FEWEST_UNSEEN or len(right) < FEWEST_UNSEEN:
        return UNKNOWN
    return difference_of_shares(share(right), share([True] * n_right + [False] * (n - n_right)))


def without(accuracy: Estimate, inflation: Estimate) -> Estimate:
    """Return an accuracy minus its inflation by leakage. The interval is that of the inflation."""
    if not accuracy or not inflation:
        return UNKNOWN
    ends = (accuracy.value - end for end in (inflation.value, inflation.high, inflation.low))
    value, low, high = (min(1.0, max(0.0, end)) for end in ends)
    return Estimate(value, inflation.stderr, low, high)


def lowest(accuracy: float, n: int, share_seen: float) -> float:
    """Return a lower bound of the accuracy without leakage; NaN if all questions may have been seen.

    At most this share of the n questions was seen, and all of these are taken to be answered correctly for that
    reason. The bound is the lower end of Wilson's 95 % interval of the accuracy on the others.
    """
    if not share_seen < 1:
        return math.nan
    n_seen = math.ceil(share_seen * n - 1e-9)
    n_right = max(0, round(accuracy * n) - n_seen)
    return share([True] * n_right + [False] * (n - n_seen - n_right)).low
