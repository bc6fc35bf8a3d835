"""Options whose words tell their place: they speak of other options, have no answer, or are verdicts and lists that
many questions share."""

from __future__ import annotations

import re
from collections.abc import Sequence

Options = Sequence[str]
LONGEST = 1000  # characters of an option that as a whole says one such thing

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
_LETTER = r"\(?[A-J]\)?"  # one way of reading each: two would double with every letter of a list
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
    return bool((len(option) <= LONGEST and _ABOVE.match(option)) or _WITHIN.search(option))


def letters_meant(option: str) -> set[int]:
    """The places of the options that this one names by their letters ("both A and C"), empty if none."""
    found = _LETTERS.match(option) if len(option) <= LONGEST else None
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


def combining(options: Options) -> bool:
    """An option that joins or rejects others by what they say ("both X and Y") has its natural place after them."""
    return any(re.match(r"\W*(?:both\b.+\band\b|neither\b.+\bnor\b)", option, re.IGNORECASE) for option in options)


_GIVES_UP = re.compile(
    r"\b(?:cannot|can(?:no|')t|could not|not possible to|impossible to) "
    r"(?:be )?(?:determined?|inferred|known|decided?|say|tell)\b"
    r"|\b(?:not enough|insufficient|need more|more) information\b|无法(?:确定|判断)|不能(?:确定|判断)|不确定",
    re.IGNORECASE,
)


def gives_up(option: str) -> bool:
    """It says that the question cannot be answered, which is said after the answers."""
    return bool(_GIVES_UP.search(option))


_VERDICT = re.compile(
    r"(?:true|false|yes|no|correct|incorrect|right|wrong|not wrong|正确|错误|对|错|是|否)"
    r"(?:\W+(?:and |or )?(?:true|false|yes|no|correct|incorrect|right|wrong|not wrong|正确|错误|对|错|是|否))*",
    re.IGNORECASE,
)


def true_or_false(options: Options) -> bool:
    """Every option is a verdict, or a row of verdicts, on statements of the question: True, False."""
    return len(options) > 1 and all(_VERDICT.fullmatch(option.strip(" .。")) for option in options)


# Every sign has one place in these patterns: where two could take a bracket, reading would double with each bracket.
_STATEMENT = r"(?:[①-⑩]|[1-9]\)|\b(?:I{1,3}|IV|VI{0,3}|IX)\b)"
_JOINED = rf"\(?{_STATEMENT}(?:(?:\W*(?:and |or |和|与)\(?|\W*){_STATEMENT})*\)?"
_STATEMENTS = re.compile(rf"(?:both |only )?{_JOINED}(?: only|都?正确)?|none|neither|[a-e]{{2,5}}", re.IGNORECASE)


def of_statements(options: Options) -> bool:
    """Every option is a list of statements of the question by their numbers: I only, I and II; ①②."""
    return len(options) > 1 and all(_STATEMENTS.fullmatch(option.strip(" .。")) for option in options)


def repeated(options: Options) -> bool:
    """Two options read alike."""
    return len({option.strip() for option in options}) < len(options)
