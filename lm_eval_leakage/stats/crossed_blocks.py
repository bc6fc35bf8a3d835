"""Crossed blocks: does a model prefer, in each row, the filler with which the row was published?

A block has k rows and the k fillers that were published in them. Each row is scored with each filler, which gives a
matrix of log-likelihoods, `(k, k)`: rows x fillers, with the published pairs on the diagonal. Its row and column means
are subtracted, so that how likely a row is and how common a filler is both cancel exactly. A placement is an order of
the fillers; its score is the sum of the matrix over the rows, each with the filler that the placement gives it. A
block is tested like a question whose options are its fillers: its placements are the orders, and the published one is
that of the diagonal (`order_sum`).

Null hypothesis: without memory, every placement of a block's fillers is equally likely to be the published one, since
which filler stands in which row was as good as drawn at random. The test is then exact for any model and for any
effects of rows and fillers. Scores of a block's placements have mean 0 by construction; they are divided by their
standard deviation, so that each block counts alike however long its rows are, and multiplied by sqrt(k - 1): a
preference of d standard deviations per row shifts the standardised score by d x sqrt(k - 1), and independent scores
that are normal with equal variances are summed best with weights in proportion to their shifts.

Limits: fillers that fit their rows are preferred without memory, which is why audits ask a control form, too. No
single row can be tested: its own filler is the likeliest of k with probability 1 / k. Source: ours; Fisher's
randomisation test with one stratum per block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from lm_eval_leakage.records import FillerAnswers
from lm_eval_leakage.stats.order_sum import OrderSum, averaged, order_sum, standard_scores
from lm_eval_leakage.stats.pooling import NAN, Floats

ALL_PLACEMENTS_UP_TO = 6  # fillers, of which there are 720 placements
PLACEMENTS_DRAWN = 720  # of larger blocks, with the published one among them
PLACEMENT_SEED = 0


def places_asked(place: int, n_fillers: int) -> list[int]:
    """Return the places of a block's fillers in the order in which they are asked: the published one first."""
    return [place, *(other for other in range(n_fillers) if other != place)]


def as_asked(values: Sequence[float], place: int) -> list[float]:
    """Return the values of a block's fillers in the order in which they are asked."""
    return [values[other] for other in places_asked(place, len(values))]


def by_form(answers: Sequence[float], n_fillers: int, place: int) -> tuple[tuple[float, ...], ...]:
    """Return the answers about a row with the fillers in the order of its block, `(n_forms, n_fillers)`.

    answers: as they were asked, one layout or form after the other
    """
    order = places_asked(place, n_fillers)
    parts = [answers[begin : begin + n_fillers] for begin in range(0, len(answers), n_fillers)]
    return tuple(tuple(part[order.index(own)] for own in range(n_fillers)) for part in parts)


@dataclass(frozen=True, eq=False)
class CrossedBlock:
    """The matrices of one block, rows x fillers, nats, `(k, k)`.

    layouts: of the model, in each layout; control: in the control form; references: of another model, in each layout
    """

    layouts: tuple[Floats, ...]
    control: Floats | None = None
    references: tuple[Floats, ...] = ()

    @property
    def size(self) -> int:
        return len(self.layouts[0])


def crossed_blocks(answers: Iterable[FillerAnswers]) -> list[CrossedBlock]:
    """Return the blocks of rows and fillers that can be crossed. A row without answers is left out with its filler;
    so is a block of which one row is left."""
    members: dict[str, dict[int, FillerAnswers]] = {}
    for one in answers:
        members.setdefault(one.block, {}).setdefault(one.place, one)
    crossed = []
    for _, rows in sorted(members.items()):
        places = sorted(rows)
        own = [rows[place] for place in places]
        if len(own) < 2 or len({(one.layouts, one.n_fillers) for one in own}) > 1:
            continue
        layouts = _matrices([one.loglikelihoods for one in own], places)
        control = _matrices([(one.control,) for one in own], places)[0] if all(one.control for one in own) else None
        references = _matrices([one.reference for one in own], places) if all(one.reference for one in own) else ()
        crossed.append(CrossedBlock(layouts, control, references))
    return crossed


def _matrices(rows: Sequence[Sequence[Sequence[float]]], places: Sequence[int]) -> tuple[Floats, ...]:
    """Return a matrix for each layout, with the columns of these fillers.

    rows: of each row, its log-likelihoods, `(n_layouts, n_fillers)`
    """
    return tuple(np.array(layout)[:, places] for layout in zip(*rows, strict=True))


@dataclass(frozen=True)
class Preference:
    """How much published fillers are preferred, per row.

    test: the sum test of the blocks
    effect: in standard deviations of a block's scores per row, with its standard error between blocks; 0 is expected
        without memory
    null_error: standard deviation of the effect under the null hypothesis, from sampling alone
    n_rows, n_blocks: in blocks whose placements differ in likelihood
    """

    test: OrderSum
    effect: float = NAN
    error: float = NAN
    null_error: float = NAN
    n_rows: int = 0
    n_blocks: int = 0


def double_centred(scores: Floats) -> Floats:
    """Return the matrix minus its row means and column means, plus its mean."""
    centred: Floats = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    return centred


@lru_cache(maxsize=16)
def placements(k: int) -> NDArray[np.int64]:
    """Return placements of k fillers, `(n_placements, k)`, the published one first: all, or so many drawn ones."""
    if k <= ALL_PLACEMENTS_UP_TO:
        return np.array(list(permutations(range(k))))
    drawn = np.random.default_rng(PLACEMENT_SEED).random((PLACEMENTS_DRAWN - 1, k)).argsort(axis=1)
    return np.vstack([np.arange(k), drawn])


def placement_scores(scores: Floats) -> Floats:
    """Return the score of each placement of a block, nats, `(n_placements,)`.

    scores: log-likelihoods of its rows with its fillers, nats, `(k, k)`
    """
    k = len(scores)
    summed: Floats = double_centred(scores)[np.arange(k), placements(k)].sum(axis=1)
    return summed


def block_scores(layouts: Sequence[Floats], others: Sequence[Floats] = ()) -> Floats | None:
    """Return the standardised scores of a block's placements times sqrt(k - 1); None if they do not differ.

    layouts: of each layout, its matrix; their standardised scores are averaged as those of orders are
    others: matrices of the same block, such as a control form's or another model's, whose standardised scores are
        subtracted, likewise averaged
    """
    k = len(layouts[0])
    if k < 2:
        return None
    minus = _averaged(others) if others else None
    scores = standard_scores(_averaged(layouts), minus)
    return None if scores is None else math.sqrt(k - 1) * scores


def _averaged(layouts: Sequence[Floats]) -> Floats:
    scores = [placement_scores(own) for own in layouts]
    return np.array(averaged(np.concatenate(scores).tolist(), len(scores)))


def preference(
    blocks: Sequence[Floats | None],
    sizes: Sequence[int],
    *,
    natural: float = 0.0,
    spread: float = 0.0,
    seed: int = 0,
) -> Preference:
    """Test whether published fillers are preferred in all blocks together.

    blocks: of each, its `block_scores`; sizes: how many rows each has
    natural: the preference that is expected without memory, in standard deviations per row
    spread: standard deviation of the natural preference between benchmarks, in standard deviations per row
    """
    usable = sorted(
        ((own, k) for own, k in zip(blocks, sizes, strict=True) if own is not None), key=lambda one: tuple(one[0])
    )
    if not usable:
        return Preference(OrderSum(0))
    published = np.array([float(own[0]) for own, _ in usable])
    freedom = np.array([k - 1.0 for _, k in usable])
    per_block = float(freedom.sum()) / len(usable)
    test = order_sum(
        [own for own, _ in usable],
        np.random.default_rng(seed),
        natural * per_block,
        weigh=np.positive,
        spread=spread * per_block,
    )
    effect = float(published.sum() / freedom.sum())
    return Preference(
        test,
        effect,
        _error(published, freedom, effect),
        math.sqrt(sum(float(np.mean(own**2)) for own, _ in usable)) / float(freedom.sum()),
        sum(k for _, k in usable),
        len(usable),
    )


def _error(published: Floats, freedom: Floats, effect: float) -> float:
    """Return the standard error of a ratio of sums over independent blocks; NaN for one block."""
    n = len(published)
    if n < 2:
        return NAN
    residuals = published - effect * freedom
    return math.sqrt(n / (n - 1) * float(residuals @ residuals)) / float(freedom.sum())
