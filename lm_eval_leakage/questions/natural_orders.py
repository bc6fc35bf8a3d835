"""Recognises natural orders: rising or falling numbers, dates and quantities, and options that extend each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, takewhile

Options = Sequence[str]  # the caller leaves out options that refer to others or say that there is no answer
LONGEST_QUANTITY = 1000  # characters of an option that is a quantity; arithmetic on longer numbers takes too long
LONGEST_SUM = 5000  # characters of an option that extends the previous one

_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_ORDINALS = ["zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
_DAYS = ["", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NUMERALS = "零一二三四五六七八九十"
_ROMAN = ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"]
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12} | {
    "百": 10**2,
    "千": 10**3,
    "万": 10**4,
    "亿": 10**8,
}
_UNITS: dict[str, tuple[str, Fraction]] = {
    unit: (kind, Fraction(size))
    for kind, sizes in {
        "time": {"ms": "1/1000", "second": "1", "minute": "60", "hour": "3600", "day": "86400", "week": "604800"}
        | {"month": "2629800", "year": "31557600", "decade": "315576000", "century": "3155760000"}
        | {
            "秒": "1",
            "分钟": "60",
            "小时": "3600",
            "天": "86400",
            "周": "604800",
            "个月": "2629800",
            "年": "31557600",
        },
        "length": {
            "nm": "1/1000000000",
            "μm": "1/1000000",
            "µm": "1/1000000",
            "mm": "1/1000",
            "cm": "1/100",
            "m": "1",
            "km": "1000",
        },
        "mass": {"mg": "1/1000000", "g": "1/1000", "kg": "1"},
        "volume": {"ml": "1/1000", "l": "1"},
    }.items()
    for unit, size in sizes.items()
}
_NUMBER = re.compile(r"[-−–]?\d+(?:,\d{3})+(?:\.\d+)?|[-−–]?\d*\.?\d+")
_SIGN_BEFORE_CURRENCY = re.compile(r"[-−–]\s*([$£€¥])")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}")
_TOKEN = re.compile(rf"{_NUMBER.pattern}|[^\W\d_一-鿿]+|\S")  # a word, or one sign of Chinese

_COUNTING = (_WORDS, _ORDINALS, _MONTHS, _DAYS, _NUMERALS, _ROMAN)
_COUNTED = {word: Fraction(number) for words in _COUNTING for number, word in enumerate(words)}
_JOINING = {"and", "or", ",", ";", ".", "the", "a", "an", "和", "、", "，", "。"}

Reading = tuple[tuple[str, ...], tuple[Fraction, ...]]  # the text around the numbers, and the numbers


def is_sorted(options: Options) -> bool:
    """Whether numbers, dates, quantities or counting words rise or fall from the first option to the last."""
    plain = list(options)
    for first in plain[:1]:  # a week may begin with Sunday
        plain[0] = re.sub(r"\bsunday\b", "zeroth", first, flags=re.IGNORECASE)
    values = quantities(plain)
    if len(values) < 2:
        return False
    return all(a < b for a, b in pairwise(values)) or all(a > b for a, b in pairwise(values))


def quantities(options: Options) -> list[tuple[Fraction, ...]]:
    """What the options are sorted by if each is a number, date, quantity or counting word, in the same words; empty if
    they are not. Each option is read on its own, so that reading and reordering commute."""
    plain = [option.strip(" .。;") for option in options]
    if not plain or max(map(len, plain)) > LONGEST_QUANTITY:
        return []
    for read in (_dated, _quantity, _numbers):
        readings = list(takewhile(bool, map(read, plain)))
        known = [reading for reading in readings if reading]
        if len(known) == len(plain) and len({around for around, _ in known}) == 1:
            return [numbers for _, numbers in known]
    return []


def is_growing(options: Options) -> bool:
    """Each option repeats the previous one and adds to it: the ribs; the ribs and sternum; ..."""
    if len(options) < 3 or max(map(len, options)) > LONGEST_SUM:
        return False
    plain = [set(_TOKEN.findall(option.casefold())) - _JOINING for option in options]
    grows = all(a < b for a, b in pairwise(plain))
    return all(plain) and (grows or all(a > b for a, b in pairwise(plain)))


@lru_cache(maxsize=64)  # each option is read as a quantity, and then as numbers
def _numbers(option: str) -> Reading | None:
    """The numbers in an option, as digits or words, and the text around them; a slash between two makes a fraction."""
    around: list[str] = []
    numbers: list[Fraction] = []
    plain = _LATEX_FRACTION.sub(r"\1/\2", _SIGN_BEFORE_CURRENCY.sub(r"\1-", option.casefold()))
    for token in _TOKEN.findall(plain):
        value = _value(token)
        if value is None and token in _SCALES and numbers and around[-1:] == ["#"]:
            numbers[-1] *= _SCALES[token]
        elif value is None:
            around.append(token)
        elif around[-2:] == ["#", "/"] and value:
            around.pop()
            numbers[-1] /= value
        else:
            around.append("#")
            numbers.append(value)
    return (tuple(around), tuple(numbers)) if numbers else None


def _value(token: str) -> Fraction | None:
    if _NUMBER.fullmatch(token):
        digits = token.replace(",", "").replace("−", "-").replace("–", "-")
        return Fraction(digits)
    return _COUNTED.get(token)


def _quantity(option: str) -> Reading | None:
    """One number with a unit, converted so that units of the same kind compare: 90 minutes, 2 hours."""
    reading = _numbers(option)
    if reading is None or len(reading[1]) != 1:
        return None
    around, (number,) = reading
    place = around.index("#")
    unit = "".join(around[place + 1 :])
    kind = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s")) or _UNITS.get(unit.replace("ies", "y"))
    return ((*around[:place], kind[0]), (number * kind[1],)) if kind else None


def _dated(option: str) -> Reading | None:
    """A day, month or season of a year, as (year, month, day)."""
    tokens = _TOKEN.findall(option.casefold())
    years = [token for token in tokens if re.fullmatch(r"[12]\d{3}", token)]
    months = [_MONTHS.index(token) + 1 for token in tokens if token in _MONTHS]
    days = [token for token in tokens if re.fullmatch(r"\d{1,2}", token)]
    words = [token for token in tokens if token.isalpha() and token not in _MONTHS and token not in ("st", "nd", "th")]
    if len(years) != 1 or len(months) != 1 or len(days) > 1 or words:
        return None
    return ("date",), (Fraction(years[0]), Fraction(months[0]), Fraction(days[0] if days else 0))
