"""Recognises natural orders of options, which a reader, and a model, prefers.

They are rising or falling numbers, dates and quantities, options that extend each other, and the order in which the
question's text names the options.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, takewhile

from lm_eval_leakage.texts import canonical

Options = Sequence[str]  # the caller leaves out options that refer to others or say that there is no answer
LONGEST_QUANTITY = 1000  # characters of an option that is a quantity; arithmetic on longer numbers takes too long
LONGEST_SUM = 5000  # characters of an option that extends the previous one

_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_ORDINALS = ["zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_MONTHS = ["january", "february", "march", "april", "may", "june"]
_MONTHS += ["july", "august", "september", "october", "november", "december"]
_ORDINAL_ENDINGS = ("st", "nd", "th")
_DAYS = ["", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NUMERALS = "零一二三四五六七八九十"
_ROMAN = ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"]
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES |= {"百": 10**2, "千": 10**3, "万": 10**4, "亿": 10**8}
_SIZES = {  # of units, in one of the same kind
    "time": "ms 1/1000, second 1, minute 60, hour 3600, day 86400, week 604800, month 2629800, year 31557600, "
    "decade 315576000, century 3155760000, 秒 1, 分钟 60, 小时 3600, 天 86400, 周 604800, 个月 2629800, 年 31557600",
    "length": "nm 1/1000000000, μm 1/1000000, µm 1/1000000, mm 1/1000, cm 1/100, m 1, km 1000",
    "mass": "mg 1/1000000, g 1/1000, kg 1",
    "volume": "ml 1/1000, l 1",
}
_UNITS = {
    unit: (kind, Fraction(size))
    for kind, sizes in _SIZES.items()
    for unit, size in (entry.split() for entry in sizes.split(", "))
}
_NUMBER = re.compile(r"[-−–]?\d+(?:,\d{3})+(?:\.\d+)?|[-−–]?\d*\.?\d+")
_SIGN_BEFORE_CURRENCY = re.compile(r"[-−–]\s*([$£€¥])")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}")
_TOKEN = re.compile(rf"{_NUMBER.pattern}|[^\W\d_一-鿿]+|\S")  # a word, or one sign of Chinese

_COUNTING = (_WORDS, _ORDINALS, _MONTHS, _DAYS, _NUMERALS, _ROMAN)
_COUNTED = {word: Fraction(number) for words in _COUNTING for number, word in enumerate(words)}
_JOINING = {"and", "or", ",", ";", ".", "the", "a", "an", "和", "、", "，", "。"}

Reading = tuple[tuple[str, ...], tuple[Fraction, ...]]  # the text around the numbers, and the numbers
LONGEST_MENTION = 200  # characters of an option; longer ones are not looked for
FEWEST_CHARACTERS = 2  # of an option in letters: "a" is in every text
_ARTICLE = re.compile(r"^(?:the|a|an|der|die|das|ein|eine|le|la|les|l'|un|une|el|los|las|una|il|lo|gli|i|o|os|as) ")
_WORD = re.compile(r"\w")
_WORDS_OF_TEXT = re.compile(r"\w{3,}")
FEWEST_BY_WORD = 3  # options of which the text has a word that no other option has


def is_sorted(options: Options) -> bool:
    """Return whether numbers, dates, quantities or counting words rise or fall from the first option to the last."""
    plain = list(options)
    for first in plain[:1]:  # a week may begin with Sunday
        plain[0] = re.sub(r"\bsunday\b", "zeroth", first, flags=re.IGNORECASE)
    values = quantities(plain)
    if len(values) < 2:
        return False
    return all(a < b for a, b in pairwise(values)) or all(a > b for a, b in pairwise(values))


def quantities(options: Options) -> list[tuple[Fraction, ...]]:
    """Return the values of the options if each is a number, date, quantity or counting word, in the same words; empty
    if they are not.

    Options can be sorted by these values. Each option is read by itself, so that reading and reordering commute.
    """
    plain = [option.strip(" .。;") for option in options]
    if not plain or max(map(len, plain)) > LONGEST_QUANTITY:
        return []
    for read in (_dated, _quantity, _numbers):
        readings = [reading for reading in takewhile(bool, map(read, plain)) if reading]
        if len(readings) == len(plain) and len({around for around, _ in readings}) == 1:
            return [numbers for _, numbers in readings]
    return []


def is_growing(options: Options) -> bool:
    """Return whether each option repeats the previous one and adds to it: the ribs; the ribs and sternum; ..."""
    if len(options) < 3 or max(map(len, options)) > LONGEST_SUM:
        return False
    plain = [set(_TOKEN.findall(option.casefold())) - _JOINING for option in options]
    grows = all(a < b for a, b in pairwise(plain))
    return all(plain) and (grows or all(a > b for a, b in pairwise(plain)))


@lru_cache(maxsize=64)  # each option is read as a quantity, and then as numbers
def _numbers(option: str) -> Reading | None:
    """Return the numbers in an option, as digits or words, and the text around them; None if there are none.

    A slash between two numbers makes a fraction.
    """
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
    """Return one number with its unit, converted so that units of the same kind compare (90 minutes, 2 hours); None if
    the option is anything else."""
    reading = _numbers(option)
    if reading is None or len(reading[1]) != 1:
        return None
    around, (number,) = reading
    place = around.index("#")
    unit = "".join(around[place + 1 :])
    kind = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s")) or _UNITS.get(unit.replace("ies", "y"))
    return ((*around[:place], kind[0]), (number * kind[1],)) if kind else None


def _dated(option: str) -> Reading | None:
    """Return a day or month of a year as (year, month, day); None if the option is anything else."""
    tokens = _TOKEN.findall(option.casefold())
    years = [token for token in tokens if re.fullmatch(r"[12]\d{3}", token)]
    months = [_MONTHS.index(token) + 1 for token in tokens if token in _MONTHS]
    days = [token for token in tokens if re.fullmatch(r"\d{1,2}", token)]
    words = [token for token in tokens if token.isalpha() and token not in _MONTHS and token not in _ORDINAL_ENDINGS]
    if len(years) != 1 or len(months) != 1 or len(days) > 1 or words:
        return None
    return ("date",), (Fraction(years[0]), Fraction(months[0]), Fraction(days[0] if days else 0))


@lru_cache(maxsize=1 << 15)
def mentions(stem: str, options: tuple[str, ...]) -> tuple[int | None, ...]:
    """Return, for each option, the place where the text names it first; None if it does not.

    Case, articles and punctuation at the ends of an option do not count. An option is named by whole words, or by any
    piece of the text where words are not separated by spaces. If one option is a part of another, only the longer one
    may be named there. Limits: a synonym or another inflection is not recognised.
    """
    text = canonical(stem).casefold()
    wanted = [_ARTICLE.sub("", canonical(option).casefold().strip(" .。,;:!?\"'()")) for option in options]
    places = []
    for option in wanted:
        longer = [other for other in wanted if option in other and other != option]
        places.append(_first_place(text, option, longer))
    return tuple(places)


def _first_place(text: str, wanted: str, longer: Sequence[str]) -> int | None:
    if not FEWEST_CHARACTERS <= len(wanted) <= LONGEST_MENTION or wanted not in text:
        return None
    taken = [(start, start + len(option)) for option in longer for start in _places(text, option)]
    free = (start for start in _places(text, wanted) if not any(a <= start < b for a, b in taken))
    return next(free, None)


def _places(text: str, wanted: str) -> list[int]:
    """Return all places where whole words of the text are those of an option."""
    places, start = [], text.find(wanted)
    while start >= 0:
        if _is_whole(text, start, start + len(wanted)):
            places.append(start)
        start = text.find(wanted, start + 1)
    return places


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return whether no letter of the same word stands beside this part of the text."""
    return not (_continues(text[start - 1 : start], text[start]) or _continues(text[end : end + 1], text[end - 1]))


def _continues(outside: str, inside: str) -> bool:
    spaced = outside < "\u0e00" and inside < "\u0e00"  # scripts up to Hindi separate words; so does Korean
    korean = "가" <= inside <= "힣" and "가" <= outside <= "힣"
    return bool(outside) and (spaced or korean) and bool(_WORD.match(outside) and _WORD.match(inside))


def in_order_of_mention(stem: str, options: tuple[str, ...]) -> bool:
    """Return whether the options stand in the order in which the text first names them.

    This needs a text that names at least two options, or that has, of at least three options, a word that no other
    option has. Three are in order in a sixth of all questions by chance.
    """
    places = [place for place in mentions(stem, options) if place is not None]
    if len(places) > 1 and places == sorted(places):
        return True
    places = _first_distinctive_words(stem, options)
    return len(places) >= FEWEST_BY_WORD and places == sorted(places)


def _first_distinctive_words(stem: str, options: tuple[str, ...]) -> list[int]:
    """Return, for each option that has any, where the text first has a word that no other option has."""
    first: dict[str, int] = {}
    for place, word in enumerate(_WORDS_OF_TEXT.findall(canonical(stem).casefold())):
        first.setdefault(word, place)
    words = [{*_WORDS_OF_TEXT.findall(canonical(option).casefold())} for option in options]
    counts = Counter(word for words_of_option in words for word in words_of_option)
    places = []
    for words_of_option in words:
        distinctive = [word for word in words_of_option if counts[word] == 1 and word in first]
        if distinctive:
            places.append(min(first[word] for word in distinctive))
    return places
