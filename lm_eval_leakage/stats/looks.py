"""Controls one error over all looks at many models, or at one benchmark with ever more questions: each look has a
level, and e-values are multiplied. A look is an analysis that produces a p-value.

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
from itertools import groupby
from typing import Any

from lm_eval_leakage.stats.pooling import NAN

USUAL_ALPHA = 0.01  # a false claim harms somebody; one in 100 benchmarks may ever make one
FIRST_STAGE = 0.1  # share of a look's error that a first stage of fewer questions may spend
STRONGER = 100  # evidence is strong at a level so many times smaller, as 0.0001 is to 0.01 in a single verdict
# keys of a record, by the type of their values
FLOATS, TEXTS = ("alpha", "pvalue", "log_evalue"), ("model", "digest", "places", "time")
INTEGERS = ("number", "first", "last")


@dataclass(frozen=True)
class Look:
    """A look at one model: it records the result and the share of the error that it spends.

    number: from 1, among the looks with this seal, or in the folder of a check among those at this model and benchmark
    model: the model's name; in the folder of a check a digest of its identity, and the benchmark
    digest: digest of the analysed answers
    alpha: the error of all looks together, as chosen at this look
    pvalue, log_evalue: of all tests combined
    places: places of the tested questions in the public file of a seal, as `as_ranges` writes them
    time: time of the look, in ISO 8601
    first, last: the range of numbers of the looks that are reported together with it, and spend their shares together
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
        """Return the share of the error that the looks reported together spend."""
        return spent_share(self.first, self.last, self.alpha)


def spent_share(first: int, last: int, alpha: float) -> float:
    """Return the sum of alpha / (i (i + 1)) over `first` <= i <= `last`; over all i >= 1 it is alpha."""
    return alpha * (last + 1 - first) / (first * (last + 1))


def share_alone(number: int) -> float:
    """Return the share of the error that look `number` at one model and benchmark spends, see `numbered_alone`."""
    return spent_share(number**2, (number + 1) ** 2 - 1, 1.0)


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless alpha is a number between 0 and 1."""
    if isinstance(alpha, bool) or not 0 < alpha < 1:
        raise ValueError(
            f"alpha is {alpha!r}; the probability of any false claim over all looks is above 0 and below 1, such as "
            f"{USUAL_ALPHA}"
        )


def numbered(earlier: Sequence[Look], looks: Sequence[Look]) -> list[tuple[Look, Look | None]]:
    """Return looks that are reported together with their numbers, each with the earlier look at the same answers of
    the same model; None if there is none. A repeated look keeps the number, alpha and time of the earlier one, with
    the results as computed now."""
    first = 1 + max((look.number for look in earlier), default=0)
    by_answers = {(look.model, look.digest): look for look in earlier}
    last = first - 1 + len({(look.model, look.digest) for look in looks} - by_answers.keys())
    pairs = []
    for look in looks:
        same = by_answers.get((look.model, look.digest))
        number = first + len(by_answers) - len(earlier)
        numbered_look = (
            replace(look, number=number, first=first, last=last) if same is None else numbered_like(look, same)
        )
        by_answers.setdefault((look.model, look.digest), numbered_look)
        pairs.append((numbered_look, same))
    return pairs


def numbered_like(look: Look, same: Look) -> Look:
    """Return a look with the number, alpha and time of an earlier look at the same answers."""
    return replace(look, number=same.number, alpha=same.alpha, time=same.time, first=same.first, last=same.last)


def numbered_alone(earlier: Iterable[Look], look: Look) -> tuple[Look, bool]:
    """Return a look with its number among those at one model and benchmark, and whether it is new.

    `look.model` names both. Look i spends as much as looks i² to (i + 1)² - 1 at many models: .75, .139 and .049 of
    alpha for the first three. Few looks at one benchmark are to be expected, and most often one.
    """
    before = [other for other in earlier if other.model == look.model]
    for same in before:
        if same.digest == look.digest:
            return numbered_like(look, same), False
    number = 1 + len(before)
    return replace(look, number=number, first=number**2, last=(number + 1) ** 2 - 1), True


def accumulated(looks: Iterable[Look], model: str) -> tuple[float, int]:
    """Return the logarithm of the product of a model's e-values over looks at different questions, and their
    number."""
    total, seen, n_looks = 0.0, set[int](), 0
    for look in sorted(looks, key=lambda look: look.number):
        if look.model != model:
            continue
        places = set(from_ranges(look.places))
        if places and not places & seen and not math.isnan(look.log_evalue):
            total, n_looks = total + look.log_evalue, n_looks + 1
        seen |= places  # even if it does not count: its result may decide which questions are looked at next
    return total, n_looks


# ---------------------------------------------------------------------- as JSON


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


# ---------------------------------------------------------------------- places of questions


def as_ranges(places: Iterable[int]) -> str:
    """Return places as text: 0, 1, 2 and 7 as `0-2,7`."""
    runs = groupby(enumerate(sorted(set(places))), key=lambda numbered: numbered[1] - numbered[0])
    ends = [[place for _, place in run] for _, run in runs]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)


def from_ranges(text: str) -> Iterator[int]:
    """Yield the places that `as_ranges` wrote. Raises ValueError for any other text."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
