"""What in a question's options gives one order a natural preference, so that it stands out without any leakage.

A guard is a reason to read a flag on the question with doubt. Each is a function of the options alone, except
`templated`, which needs the other questions. Found by their wording, in English and Chinese (the benchmarks'
languages) and, for "all of the above", some others; a guard that is not named is no proof that there is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise, takewhile

from lm_eval_leakage.records import Question

Options = Sequence[str]
MANY = 5  # questions with the same set of options make it a template

# ---------------------------------------------------------------------- options that speak of other options

_ABOVE = re.compile(
    r"""^\W*(?:
        (?:all|none|both|neither|any|either|some|each|two|three|more\ than\ one|one\ or\ more)\b
            (?:\ (?:of|the|these|those|are|is|listed|options?|choices?|answers?|statements?|mentioned|correct|true))*
            \ (?:(?:above|below|following|foregoing|preceding|options?|choices?|answers?|statements?
                |listed|mentioned)\b.{0,40}|these|those)
        | (?:the\ )?(?:above|foregoing|preceding)\ (?:all|both|none|are|options?|answers?)\b.{0,30}
        | (?:all|none|both|neither)
        | (?:以上|上述|前述|以下|上面).{0,14}
        | .{0,6}(?:都|均|皆|全)(?:不?是|不?对|不?正确|错误|错|不可以|可以|有)
        | (?:alle|keine)\ .{0,12}(?:oben|genannten|vorstehenden|antworten).{0,20}
        | (?:todas|ninguna)\ .{0,12}(?:anteriores|respuestas).{0,20}
        | (?:toutes|aucune)\ .{0,16}(?:réponses?|dessus|précédentes).{0,20}
    )\W*$""",
    re.IGNORECASE | re.VERBOSE,
)
_LETTER = r"(?:\(?\b[A-J]\b\)?|[A-J])"
_LETTERS = re.compile(
    rf"""^\W*(?:(?:both|either|neither|only|options?|choices?|answers?|选项)\s*)*
        (?P<letters>{_LETTER}(?:\s*(?:,|;|/|&|、|，|and|or|nor|plus|和|与|及|或)+\s*{_LETTER})+)
        (?:\s*(?:above|only|both|together|are|is|correct|true|都|均|皆|全|不?是|不?对|不?正确|错误|错|项))*\W*$""",
    re.VERBOSE | re.IGNORECASE,
)


_WITHIN = re.compile(
    r"\b(?:all|none|both|neither|any|either|some|each) of (?:the above|these\W*$|those\W*$)", re.IGNORECASE
)


def speaks_of_others(option: str) -> bool:
    """ "All of the above" and its kind: true of its place."""
    return bool(_ABOVE.match(option) or _WITHIN.search(option))


def letters_meant(option: str) -> set[int]:
    """The places of the options that this one names by their letters ("both A and C"), empty if none."""
    found = _LETTERS.match(option)
    return {ord(letter) - ord("A") for letter in re.findall(r"[A-J]", found["letters"])} if found else set()


def anchored(options: Options) -> set[int]:
    """Places that options must keep to mean what they say: those that speak of others, and those that are named
    by letter."""
    held = {place for place, option in enumerate(options) if speaks_of_others(option)}
    for place, option in enumerate(options):
        meant = {letter for letter in letters_meant(option) if letter < len(options)}
        if meant:
            held |= meant | {place}
    return held


# ---------------------------------------------------------------------- natural orders

_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_ORDINALS = ["zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NUMERALS = "零一二三四五六七八九十"
_ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6, "vii": 7, "viii": 8, "ix": 9, "x": 10}
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
        "length": {"nm": "1/1000000000", "mm": "1/1000", "cm": "1/100", "m": "1", "km": "1000"},
        "mass": {"mg": "1/1000000", "g": "1/1000", "kg": "1"},
        "volume": {"ml": "1/1000", "l": "1"},
    }.items()
    for unit, size in sizes.items()
}
_NUMBER = re.compile(r"[-−–]?\d+(?:,\d{3})+(?:\.\d+)?|[-−–]?\d*\.?\d+")
_SIGN_BEFORE_CURRENCY = re.compile(r"[-−–]\s*([$£€¥])")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}")
_TOKEN = re.compile(rf"{_NUMBER.pattern}|[^\W\d_一-鿿]+|\S")  # a word, or one sign of Chinese

_JOINING = {"and", "or", ",", ";", ".", "the", "a", "an", "和", "、", "，", "。"}

Reading = tuple[tuple[str, ...], tuple[Fraction, ...]]  # what stands around the numbers, and the numbers


def in_order(options: Options) -> bool:
    """Whether numbers, dates, quantities or counting words rise or fall from the first option to the last; those
    that speak of other options are left out."""
    plain = [option for option in options if not speaks_of_others(option)]
    if len(plain) < 2:
        return False
    for read in (_dated, _quantity, _numbers):
        readings = list(takewhile(bool, map(read, plain)))
        known = [reading for reading in readings if reading]
        if len(known) == len(plain) and len({around for around, _ in known}) == 1:
            values = [numbers for _, numbers in known]
            return all(a < b for a, b in pairwise(values)) or all(a > b for a, b in pairwise(values))
    return False


def alphabetical(options: Options) -> bool:
    """Three options or more that stand as in a dictionary, which one order in n! does by chance."""
    words = [option.strip().casefold() for option in options]
    spelled = all(re.match(r"[^\W\d_一-鿿]", word) for word in words)
    return len(words) > 2 and spelled and all(a < b for a, b in pairwise(words))


def cumulative(options: Options) -> bool:
    """Each option says what the one before it says, and more: the ribs; the ribs and sternum; ..."""
    plain = [set(_TOKEN.findall(option.casefold())) - _JOINING for option in options if not speaks_of_others(option)]
    grows = all(a < b for a, b in pairwise(plain))
    return len(plain) > 2 and all(plain) and (grows or all(a > b for a, b in pairwise(plain)))


def crossed(options: Options) -> bool:
    """Four options that combine two choices: the second differs from the first as the fourth from the third."""
    if len(options) != 4 or len(set(options)) < 4:
        return False
    first, second, third, fourth = (_TOKEN.findall(option.casefold().strip(" .;")) for option in options)
    return _difference(first, second) == _difference(third, fourth)


def _difference(a: list[str], b: list[str]) -> tuple[list[str], list[str]]:
    """What is left of two texts without their common beginning and end."""
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    a, b = a[same:], b[same:]
    end = 0
    while end < min(len(a), len(b)) and a[-1 - end] == b[-1 - end]:
        end += 1
    return a[: len(a) - end], b[: len(b) - end]


def _numbers(option: str) -> Reading | None:
    """Its numbers, digits or words, and the text around them; a slash between two makes a fraction."""
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
    for words in (_WORDS, _ORDINALS, _MONTHS, _DAYS):
        if token in words:
            return Fraction(words.index(token))
    if len(token) == 1 and token in _NUMERALS:
        return Fraction(_NUMERALS.index(token))
    return Fraction(_ROMAN[token]) if token in _ROMAN else None


def _quantity(option: str) -> Reading | None:
    """One number with a unit that others of its kind can be compared with: 90 minutes, 2 hours."""
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


# ---------------------------------------------------------------------- option sets that repeat themselves

_VERDICT = re.compile(
    r"(?:true|false|yes|no|correct|incorrect|right|wrong|not wrong|正确|错误|对|错|是|否)"
    r"(?:\W+(?:and |or )?(?:true|false|yes|no|correct|incorrect|right|wrong|not wrong|正确|错误|对|错|是|否))*",
    re.IGNORECASE,
)


def true_or_false(options: Options) -> bool:
    """Every option is a verdict, or a row of verdicts, on statements of the question: True, False."""
    return len(options) > 1 and all(_VERDICT.fullmatch(option.strip(" .。")) for option in options)


_STATEMENT = r"(?:[①-⑩]|\(?[1-9]\)|\(?\b(?:I{1,3}|IV|VI{0,3}|IX)\b\)?)"
_JOINED = rf"{_STATEMENT}(?:\W*(?:and |or |和|与)?{_STATEMENT})*"
_STATEMENTS = re.compile(rf"(?:both |only )?{_JOINED}(?: only|都?正确)?|none|neither|[a-e]{{2,5}}", re.IGNORECASE)


def of_statements(options: Options) -> bool:
    """Every option is a list of statements of the question by their numbers: I only, I and II; ①②."""
    return len(options) > 1 and all(_STATEMENTS.fullmatch(option.strip(" .。")) for option in options)


def combining(options: Options) -> bool:
    """An option that joins or rejects others by what they say ("both X and Y") has its natural place after them."""
    return any(re.match(r"\W*(?:both\b.+\band\b|neither\b.+\bnor\b)", option, re.IGNORECASE) for option in options)


def repeated(options: Options) -> bool:
    """Two options read alike."""
    return len({option.strip() for option in options}) < len(options)


OF_ONE_QUESTION: dict[str, Callable[[Options], bool]] = {
    "anchored": lambda options: any(speaks_of_others(option) for option in options),
    "letters": lambda options: any(letters_meant(option) for option in options),
    "combining": combining,
    "in_order": in_order,
    "alphabetical": alphabetical,
    "cumulative": cumulative,
    "crossed": crossed,
    "true_or_false": true_or_false,
    "of_statements": of_statements,
    "repeated": repeated,
}
TEMPLATED = "templated"


def guards_of(question: Question, templates: frozenset[frozenset[str]] = frozenset()) -> tuple[str, ...]:
    """The names of the guards on `question`; `templates` as `templates_of` finds them."""
    found = [name for name, holds in OF_ONE_QUESTION.items() if holds(question.options)]
    return (*found, *([TEMPLATED] if _as_set(question) in templates else []))


def templates_of(questions: Iterable[Question]) -> frozenset[frozenset[str]]:
    """Sets of options that at least `MANY` of the questions share, whatever their order."""
    counts = Counter(map(_as_set, questions))
    return frozenset(options for options, count in counts.items() if count >= MANY)


def _as_set(question: Question) -> frozenset[str]:
    return frozenset(option.strip().casefold() for option in question.options)
