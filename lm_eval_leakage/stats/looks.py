"""Looks at many models over years, or at one benchmark with ever more questions, with one error for all of them: a
level for each look, and e-values that add up.

Every model that is looked at is another chance of a false claim. Look i therefore spends alpha / (i (i + 1)). That
sums to alpha over all looks that will ever be made, so that the probability of any false claim at all is at most
alpha, however the looks depend on each other, in whatever order models come, and whenever the author stops
(Bonferroni, with the error spent in advance). Looks that are told together have the sum of what each of them spends,
and are tested by Holm's method at that, so that their order does not matter. The same logs looked at again are the
same look.

The e-values of one model are multiplied over looks at different questions: the key drew each question independently,
so that the mean of each factor given the earlier ones is at most 1, and by Ville's inequality the product ever reaches
1/a with a probability of at most a, whenever one stops. A look at questions that an earlier look at this model tested
repeats the same draws; its e-value does not count.

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

USUAL_ALPHA = 0.01  # a false claim harms somebody; one in 100 benchmarks may make any at all, in its whole life
FIRST_STAGE = 0.1  # of a look's error, what a first stage of fewer questions may spend
STRONGER = 100  # times below the level, evidence is strong, as 0.0001 is to 0.01 in a single verdict


@dataclass(frozen=True)
class Look:
    """One look at one model.

    number: from 1, of the looks that this seal, or this model at one benchmark in the folder of a check, has had
    model: its name; in the folder of a check a digest of its identity, and the benchmark
    digest: of what was looked at
    alpha: the error of all looks together, as chosen at this look
    pvalue: of all tests together
    log_evalue: of all tests together
    places: of the questions tested, in the public file of a seal, as `as_ranges` writes them
    time: when, in ISO 8601
    first, last: the numbers of the looks that are told together with it; what it spends with them
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
        """Of the error, what the looks that are told together spend."""
        return share_of(self.first, self.last, self.alpha)


def share_of(first: int, last: int, alpha: float) -> float:
    """The sum of alpha / (i (i + 1)) over `first` <= i <= `last`; over all i >= 1 it is alpha."""
    return alpha * (last + 1 - first) / (first * (last + 1))


def share_alone(number: int) -> float:
    """Of the error, what look `number` at one benchmark by one model spends, see `numbered_alone`."""
    return share_of(number**2, (number + 1) ** 2 - 1, 1.0)


def check_alpha(alpha: float) -> None:
    if isinstance(alpha, bool) or not 0 < alpha < 1:
        raise ValueError(
            f"alpha is {alpha!r}; the probability of any false claim over all looks is above 0 and below 1, such as "
            f"{USUAL_ALPHA}"
        )


def numbered(earlier: Sequence[Look], looks: Sequence[Look]) -> list[tuple[Look, Look | None]]:
    """Looks that are told together, each with its number, and with the one at the same answers of the same model that
    was there before it, if there was one: then it has that one's number, place and time, and what it found stays as it
    was computed now."""
    first = 1 + max((one.number for one in earlier), default=0)
    known = {(one.model, one.digest): one for one in earlier}
    last = first - 1 + len({(one.model, one.digest) for one in looks} - known.keys())
    found = []
    for look in looks:
        same = known.get((look.model, look.digest))
        number = first + len(known) - len(earlier)
        own = replace(look, number=number, first=first, last=last) if same is None else at_place_of(look, same)
        known.setdefault((look.model, look.digest), own)
        found.append((own, same))
    return found


def at_place_of(look: Look, same: Look) -> Look:
    return replace(look, number=same.number, alpha=same.alpha, time=same.time, first=same.first, last=same.last)


def numbered_alone(earlier: Iterable[Look], look: Look) -> tuple[Look, bool]:
    """A look at one benchmark by one model (`look.model` names both) in the numbers of its own, and whether it is new.

    Look i spends what looks i² to (i + 1)² - 1 at many models would: .75, .139 and .049 of alpha for the first three.
    Few looks at one benchmark are to be expected, and most often one.
    """
    own = [one for one in earlier if one.model == look.model]
    for same in own:
        if same.digest == look.digest:
            return at_place_of(look, same), False
    number = 1 + len(own)
    return replace(look, number=number, first=number**2, last=(number + 1) ** 2 - 1), True


def accumulated(looks: Iterable[Look], model: str) -> tuple[float, int]:
    """Logarithm of the product of a model's e-values over looks at different questions, and the number of looks in
    it."""
    total, seen, n_looks = 0.0, set[int](), 0
    for look in sorted(looks, key=lambda one: one.number):
        if look.model != model:
            continue
        own = set(from_ranges(look.places))
        if own and not own & seen and not math.isnan(look.log_evalue):
            total, n_looks = total + look.log_evalue, n_looks + 1
        seen |= own  # also where it does not count: whoever has seen its result chooses what to look at next
    return total, n_looks


# ---------------------------------------------------------------------- as JSON

NUMBERS, TEXTS = ("alpha", "pvalue", "log_evalue"), ("model", "digest", "places", "time")
PLACES = ("number", "first", "last")


def as_record(look: Look) -> dict[str, object]:
    kept: dict[str, object] = asdict(look) | {"share": look.share}
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in kept.items()}


def look_of(record: Mapping[str, Any]) -> Look:
    """Raises KeyError, TypeError or ValueError for anything but what `as_record` returned."""
    alpha, pvalue, log_evalue = (NAN if record[key] is None else float(record[key]) for key in NUMBERS)
    model, digest, places, time = (str(record[key]) for key in TEXTS)
    number, first, last = (int(record[key]) for key in PLACES)
    look = Look(number, model, digest, alpha, pvalue, log_evalue, places, time, first, last)
    list(from_ranges(look.places))
    check_alpha(look.alpha)
    return look


# ---------------------------------------------------------------------- places of questions


def as_ranges(places: Iterable[int]) -> str:
    """0, 1, 2, 7 as `0-2,7`."""
    runs = groupby(enumerate(sorted(set(places))), key=lambda numbered: numbered[1] - numbered[0])
    ends = [[place for _, place in run] for _, run in runs]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)


def from_ranges(text: str) -> Iterator[int]:
    """The places that `as_ranges` wrote. Raises ValueError for any other text."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
