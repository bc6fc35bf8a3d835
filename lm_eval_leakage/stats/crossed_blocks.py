"""Tests crossed blocks: does a model prefer, in each row, the filler with which the row was published?

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

Limits: fillers that fit their rows are preferred without memory, so audits also score a control form. No single row
can be tested: its published filler is the likeliest of k with probability 1 / k. Source: ours; Fisher's
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
    """Return the places of a block's fillers in the order in which they are scored: the published one first."""
    return [place, *(other for other in range(n_fillers) if other != place)]


def as_asked(values: Sequence[float], place: int) -> list[float]:
    """Return the values of a block's fillers in the order in which they are scored."""
    return [values[other] for other in places_asked(place, len(values))]


def by_form(answers: Sequence[float], n_fillers: int, place: int) -> tuple[tuple[float, ...], ...]:
    """Return the answers about a row with the fillers in the order of its block, `(n_forms, n_fillers)`.

    answers: in the order of scoring, one layout or form after the other
    """
    order = places_asked(place, n_fillers)
    parts = [answers[begin : begin + n_fillers] for begin in range(0, len(answers), n_fillers)]
    return tuple(tuple(part[order.index(filler)] for filler in range(n_fillers)) for part in parts)


@dataclass(frozen=True, eq=False)
class CrossedBlock:
    """A block whose rows and fillers are crossed: it holds matrices of log-likelihoods, rows x fillers, nats, `(k,
    k)`.

    layouts: by the model, one matrix per layout
    control: by the model, in the control form
    references: by another model, one matrix per layout
    """

    layouts: tuple[Floats, ...]
    control: Floats | None = None
    references: tuple[Floats, ...] = ()

    @property
    def size(self) -> int:
        return len(self.layouts[0])


def crossed_blocks(answers: Iterable[FillerAnswers]) -> list[CrossedBlock]:
    """Return the blocks of rows and fillers that can be crossed. A row without answers is left out together with its
    filler, and so is a block with a single row left."""
    members: dict[str, dict[int, FillerAnswers]] = {}
    for row in answers:
        members.setdefault(row.block, {}).setdefault(row.place, row)
    crossed = []
    for _, by_place in sorted(members.items()):
        places = sorted(by_place)
        rows = [by_place[place] for place in places]
        if len(rows) < 2 or len({(row.layouts, row.n_fillers) for row in rows}) > 1:
            continue
        layouts = _matrices([row.loglikelihoods for row in rows], places)
        control: Floats | None = None
        references: tuple[Floats, ...] = ()
        if all(row.control for row in rows):
            control = _matrices([(row.control,) for row in rows], places)[0]
        if all(row.reference for row in rows):
            references = _matrices([row.reference for row in rows], places)
        crossed.append(CrossedBlock(layouts, control, references))
    return crossed


def _matrices(rows: Sequence[Sequence[Sequence[float]]], places: Sequence[int]) -> tuple[Floats, ...]:
    """Return a matrix for each layout, with the columns of the fillers at `places`.

    rows: the log-likelihoods of each row, `(n_layouts, n_fillers)`
    """
    return tuple(np.array(layout)[:, places] for layout in zip(*rows, strict=True))


@dataclass(frozen=True)
class Preference:
    """The preference for published fillers; it is described by a test and by an effect per row.

    test: the sum test of the blocks
    effect: in standard deviations of a block's scores per row, with its standard error between blocks; 0 is expected
        without memory
    null_error: standard deviation of the effect under the null hypothesis, from sampling alone
    n_rows, n_blocks: counts of rows and of blocks whose placements differ in likelihood
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
    """Return placements of k fillers, `(n_placements, k)`, the published one first. Of more than
    `ALL_PLACEMENTS_UP_TO` fillers, it draws `PLACEMENTS_DRAWN`."""
    if k <= ALL_PLACEMENTS_UP_TO:
        return np.array(list(permutations(range(k))))
    drawn = np.random.default_rng(PLACEMENT_SEED).random((PLACEMENTS_DRAWN - 1, k)).argsort(axis=1)
    return np.vstack([np.arange(k), drawn])


def placement_scores(scores: Floats) -> Floats:
    """Return the score of each placement of a block, nats, `(n_placements,)`.

    scores: log-likelihoods of the block's rows with its fillers, nats, `(k, k)`
    """
    k = len(scores)
    summed: Floats = double_centred(scores)[np.arange(k), placements(k)].sum(axis=1)
    return summed


def block_scores(layouts: Sequence[Floats], others: Sequence[Floats] = ()) -> Floats | None:
    """Return the standardised scores of a block's placements times sqrt(k - 1); None if they do not differ.

    layouts: a matrix per layout, whose standardised scores are averaged as those of orders are
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
    """Return the scores of a block's placements, averaged over layouts."""
    scores = [placement_scores(layout) for layout in layouts]
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

    blocks: the `block_scores` of each block
    sizes: the number of rows of each block
    natural: the preference that is expected without memory, in standard deviations per row
    spread: standard deviation of the natural preference between benchmarks, in standard deviations per row
    """
    usable = [(scores, k) for scores, k in zip(blocks, sizes, strict=True) if scores is not None]
    usable.sort(key=lambda block: tuple(block[0]))
    if not usable:
        return Preference(OrderSum(0))
    published = np.array([float(scores[0]) for scores, _ in usable])
    freedom = np.array([k - 1.0 for _, k in usable])
    per_block = float(freedom.sum()) / len(usable)
    test = order_sum(
        [scores for scores, _ in usable],
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
        math.sqrt(sum(float(np.mean(scores**2)) for scores, _ in usable)) / float(freedom.sum()),
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
