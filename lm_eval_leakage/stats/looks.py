"""Control the probability of any false claim over many looks. A look is an analysis that produces a p-value.

The looks may be at many models, or at one benchmark with ever more questions. Each look has its level, and the
e-values of a model are multiplied.

Each further look is another chance of a false claim. Look i therefore spends alpha / (i (i + 1)). That sums to alpha
over all looks that will ever be made, so that the probability of any false claim at all is at most alpha, however the
looks depend on each other, in whatever order models come, and whenever the author stops (Bonferroni, with the error
spent in advance). Looks that are reported together have the sum of their shares as their level, and are tested by
Holm's method at it, so that their order does not matter. A second look at the same logs is the same look.

The e-values of one model are multiplied over looks at different questions. The key drew each question independently,
so the mean of each factor given the earlier ones is at most 1. By Ville's inequality the product ever reaches 1/a with
a probability of at most a, whenever the author stops. A look at questions that an earlier look at this model tested
repeats the same draws, and its e-value does not count.

Null hypothesis: none of the models has seen the published version. Source: alpha spending, Foster and Stine (2008);
Ville (1939); Vovk and Wang (arXiv 1912.06116).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lm_eval_leakage.stats.pooling import NAN

USUAL_ALPHA = 0.01  # a false claim harms somebody; one in 100 benchmarks may ever make one
FIRST_STAGE = 0.1  # share of a look's error that its first stage spends, which tests fewer questions
STRONGER = 100  # evidence is strong at a level so many times smaller, as 0.0001 is to 0.01 in a single verdict
# fields of a look, by the type of their values
FLOATS, TEXTS = ("alpha", "pvalue", "log_evalue"), ("model", "digest", "places", "time")
INTEGERS = ("number", "first", "last")


@dataclass(frozen=True)
class Look:
    """A look at one model, with its result and the share of the error that it spends.

    It belongs to the ledger of a seal, with looks at many models, or to the folder of a check.

    number: in a ledger, counted from 1; in a folder, counted from 1 for each model and benchmark
    model: in a ledger, the model's name; in a folder, a digest of the model's identity, and the benchmark
    digest: digest of the analysed answers
    alpha: the error of all looks together, as chosen at this look
    pvalue, log_evalue: of all tests of the look, combined
    places: places of the tested questions in the public file of a seal, as `as_ranges` writes them
    time: time of the look, in ISO 8601
    first, last: the range of numbers whose shares the look spends, together with the looks that are reported with it;
        0 before it is numbered
    """

    number: int
    model: str
    digest: str
    alpha: float
    pvalue: float
    log_evalue: float
    places: str
    time: str = ""
    first: int = 0
    last: int = 0

    @property
    def share(self) -> float:
        """Return the error that the looks spend that are reported with this one, itself included."""
        return spent_share(self.first, self.last, self.alpha)


def spent_share(first: int, last: int, alpha: float) -> float:
    """Return the sum of alpha / (i (i + 1)) over `first` <= i <= `last`; over all i >= 1 it is alpha."""
    return alpha * (last + 1 - first) / (first * (last + 1))


def share_alone(number: int) -> float:
    """Return the share of the error that look `number` at one model and benchmark spends, as `number_alone` says."""
    return spent_share(number**2, (number + 1) ** 2 - 1, 1.0)


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless alpha is a number between 0 and 1."""
    if isinstance(alpha, bool) or not 0 < alpha < 1:
        raise ValueError(
            f"alpha is {alpha!r}; the probability of any false claim over all looks is above 0 and below 1, such as "
            f"{USUAL_ALPHA}"
        )


def number_together(earlier: Sequence[Look], looks: Sequence[Look]) -> list[tuple[Look, Look | None]]:
    """Give numbers to looks that are reported together, which spend the shares of all of these numbers.

    Return each look, numbered, with the look before it at the same answers of the same model; None if there is none.
    A repeated look keeps the number, alpha and time of the one before, with the results as computed now.

    earlier: all looks of the ledger
    """
    by_answers = {(look.model, look.digest): look for look in earlier}
    n_new = len({(look.model, look.digest) for look in looks} - by_answers.keys())
    first = 1 + max((look.number for look in earlier), default=0)
    last, number = first + n_new - 1, first
    pairs = []
    for look in looks:
        same = by_answers.get((look.model, look.digest))
        if same is None:
            numbered_look = replace(look, number=number, first=first, last=last)
            by_answers[look.model, look.digest] = numbered_look
            number += 1
        else:
            numbered_look = _with_number_of(same, look)
        pairs.append((numbered_look, same))
    return pairs


def number_alone(earlier: Iterable[Look], look: Look) -> tuple[Look, bool]:
    """Give a look its number among those at the same model and benchmark; return it, and whether it is new.

    `look.model` names both. Look i spends as much as looks i² to (i + 1)² - 1 at many models: .75, .139 and .049 of
    alpha for the first three. So the first look has most of alpha, since a benchmark is mostly looked at once.

    earlier: all looks of the folder
    """
    before = [other for other in earlier if other.model == look.model]
    for same in before:
        if same.digest == look.digest:
            return _with_number_of(same, look), False
    number = 1 + len(before)
    return replace(look, number=number, first=number**2, last=(number + 1) ** 2 - 1), True


def _with_number_of(same: Look, look: Look) -> Look:
    """Return `look` with the number, alpha and time of `same`, a look at the same answers."""
    return replace(look, number=same.number, alpha=same.alpha, time=same.time, first=same.first, last=same.last)


def accumulated_evalue(looks: Iterable[Look], model: str) -> tuple[float, int]:
    """Return the logarithm of the product of a model's e-values, and the number of looks in it.

    A look counts if no earlier look at this model tested one of its questions.
    """
    total, seen, n_looks = 0.0, set[int](), 0
    for look in sorted(looks, key=lambda look: look.number):
        if look.model != model:
            continue
        places = set(from_ranges(look.places))
        if places and not places & seen and not math.isnan(look.log_evalue):
            total, n_looks = total + look.log_evalue, n_looks + 1
        seen |= places  # of a look that does not count, too: its result may decide which questions are tested next
    return total, n_looks


def look_record(look: Look) -> dict[str, object]:
    """Return a look as JSON values, with None for undefined numbers."""
    values: dict[str, object] = asdict(look) | {"share": look.share}
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}


def look_of(record: Mapping[str, Any]) -> Look:
    """Return the look of a record. Raises KeyError, TypeError or ValueError for anything but a `look_record`."""
    alpha, pvalue, log_evalue = (NAN if record[key] is None else float(record[key]) for key in FLOATS)
    model, digest, places, time = (str(record[key]) for key in TEXTS)
    number, first, last = (int(record[key]) for key in INTEGERS)
    look = Look(number, model, digest, alpha, pvalue, log_evalue, places, time, first, last)
    list(from_ranges(look.places))
    check_alpha(look.alpha)
    return look


def as_ranges(places: Iterable[int]) -> str:
    """Return places of questions as text: 0, 1, 2 and 7 as `0-2,7`."""
    ranges: list[tuple[int, int]] = []  # the first and the last place of each
    for place in sorted(set(places)):
        if ranges and ranges[-1][1] == place - 1:
            ranges[-1] = ranges[-1][0], place
        else:
            ranges.append((place, place))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def from_ranges(text: str) -> Iterator[int]:
    """Yield the places that `as_ranges` wrote. Raises ValueError for any other text."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
