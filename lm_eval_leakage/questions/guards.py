"""Guards: properties of a question's options that make one order natural, so that it stands out without any leakage.

A guard is a reason to doubt a flag on the question. Each is a function of the options alone, except `mentioned` and
`passage`, which need the question's text, and `templated`, which needs the other questions. Guards are recognised by
wording: "all of the above" and "cannot be determined" in thirteen languages (`sayings.yaml`), the others in English
and Chinese.

Limits: a question without a guard may still have a natural order.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

import yaml

from lm_eval_leakage.questions.natural_orders import Options, in_order_of_mention, is_growing, is_sorted
from lm_eval_leakage.records import QUESTIONS_KEPT, Question

MANY = 5  # a set of options that so many questions share is a template
OPTIONS_AT_ONCE = 64  # cached, since several guards of one question test the same of each option
LONGEST_SAYING = 1000  # characters; longer options are not matched as a whole

_SAYINGS = yaml.safe_load(Path(__file__).with_name("sayings.yaml").read_text(encoding="utf-8")).values()
_OTHERS = re.compile(rf"^\W*(?:{'|'.join(saying['others'] for saying in _SAYINGS)})\W*$", re.VERBOSE)
_NO_ANSWER = [re.compile(saying["no_answer"], re.VERBOSE) for saying in _SAYINGS]  # quicker than one pattern
# Unambiguous: with two ways to match, the time would double with every letter of a list. Not a part of a word: "Core".
_LETTER = r"\(?(?<![A-Z])[A-J](?![A-Z])\)?"
_LETTERS = re.compile(
    rf"""^\W*(?:(?:both|either|neither|only|options?|choices?|answers?|选项)\s*)*
        (?P<letters>{_LETTER}(?:\s*(?:,|;|/|&|、|，|and|or|nor|plus|和|与|及|或)+\s*{_LETTER})+)
        (?:\s*(?:above|only|both|together|are|is|correct|true|都|均|皆|全|不?是|不?对|不?正确|错误|错|项))*\W*$""",
    re.VERBOSE | re.IGNORECASE,
)
_ONE_LETTER = re.compile(r"(?<![A-Z])[A-J](?![A-Z])")
_BY_A_WORD = re.compile(r"(?<![a-z])(?:and|or|nor|plus)(?![a-z])|[&和与及或]")
_WITHIN = re.compile(
    r"\b(?:all|none|both|neither|any|either|some|each) of (?:the above|these\W*$|those\W*$)", re.IGNORECASE
)
_VERDICT = re.compile(
    r"(?:true|false|yes|no|correct|incorrect|right|wrong|not wrong|正确|错误|对|错|是|否)"
    r"(?:\W+(?:and |or )?(?:true|false|yes|no|correct|incorrect|right|wrong|not wrong|正确|错误|对|错|是|否))*",
    re.IGNORECASE,
)
# These patterns are unambiguous: if a bracket could match in two places, the time would double with each bracket.
_STATEMENT = r"(?:[①-⑩]|[1-9]\)|\b(?:I{1,3}|IV|VI{0,3}|IX)\b)"
_JOINED = rf"\(?{_STATEMENT}(?:(?:\W*(?:and |or |和|与)\(?|\W*){_STATEMENT})*\)?"
_STATEMENTS = re.compile(rf"(?:both |only )?{_JOINED}(?: only|都?正确)?|none|neither|[a-e]{{2,5}}", re.IGNORECASE)

TEMPLATED = "templated"
MENTIONED = "mentioned"  # the question's text names options in the order in which they are published
PASSAGE = "passage"  # a text with as many parts as there are options, which they may follow in other words
_SENTENCE_END = r"[.!?…؟][\"'”’)\]]*(?=\s|$)|[。！？।]"
_SENTENCES = re.compile(_SENTENCE_END)
_JOINS = [saying["signs"] if "signs" in saying else rf"(?<!\S)(?:{saying['words']})(?!\S)" for saying in _SAYINGS]
_PARTS = re.compile("|".join([_SENTENCE_END, r"[,;:](?=\s)|[，、；：،؛]", *_JOINS]))


@lru_cache(maxsize=OPTIONS_AT_ONCE)
def speaks_of_others(option: str) -> bool:
    """Return whether an option refers to others by their place, such as "all of the above"."""
    return bool((len(option) <= LONGEST_SAYING and _OTHERS.match(_plain(option))) or _WITHIN.search(option))


def letters_meant(option: str) -> set[int]:
    """Return the places of the options that this one refers to by letter ("both A and C", "a & b"); empty if none.

    Small letters count if they are joined by a word or "&": "a/b" is a fraction, "{a, b}" a set.
    """
    match = _LETTERS.match(option) if len(option) <= LONGEST_SAYING else None
    if not match or (option.islower() and not _BY_A_WORD.search(option)):
        return set()
    return {ord(letter) - ord("A") for letter in _ONE_LETTER.findall(match["letters"].upper())}


def anchored(options: Options) -> set[int]:
    """Return the places of options that must not move, since their meaning would change.

    They are the options that refer to others, and those that others refer to by letter.
    """
    held = {place for place, option in enumerate(options) if speaks_of_others(option)}
    for place, option in enumerate(options):
        meant = {letter for letter in letters_meant(option) if letter < len(options)}
        if meant:
            held |= meant | {place}
    return held


def combining(options: Options) -> bool:
    """Return whether an option combines or rejects others by their content ("both X and Y").

    The natural place of such an option is after the others.
    """
    return any(re.match(r"\W*(?:both\b.+\band\b|neither\b.+\bnor\b)", option, re.IGNORECASE) for option in options)


@lru_cache(maxsize=OPTIONS_AT_ONCE)
def gives_up(option: str) -> bool:
    """Return whether an option says that the question cannot be answered; its natural place is after the answers."""
    text = _plain(option)
    return any(pattern.search(text) for pattern in _NO_ANSWER)


def _plain(option: str) -> str:
    """Return an option in small letters, one Unicode form, and one kind of apostrophe and of space."""
    text = option if option.isascii() else unicodedata.normalize("NFC", option).replace("’", "'")
    return " ".join(text.lower().split())


def true_or_false(options: Options) -> bool:
    """Return whether every option calls statements of the question true or false: "True", "False, True"."""
    return len(options) > 1 and all(_VERDICT.fullmatch(option.strip(" .。")) for option in options)


def of_statements(options: Options) -> bool:
    """Return whether every option lists statements of the question by number: I only, I and II; ①②."""
    return len(options) > 1 and all(_STATEMENTS.fullmatch(option.strip(" .。")) for option in options)


def repeated(options: Options) -> bool:
    """Return whether two options are the same."""
    return len({option.strip() for option in options}) < len(options)


# ---------------------------------------------------------------------- all guards


def in_order(options: Options) -> bool:
    """Return whether numbers, dates, quantities or counting words rise or fall from the first option to the last.

    Options that refer to others, or say that there is no answer, are left out.
    """
    return is_sorted([option for option in options if not speaks_of_others(option) and not gives_up(option)])


def cumulative(options: Options) -> bool:
    """Return whether each option repeats the previous one and adds to it: the ribs; the ribs and sternum; ..."""
    return is_growing([option for option in options if not speaks_of_others(option)])


def initials(options: Options) -> bool:
    """Return whether each option begins with the letter by which it is shown: Adams, Baker, Clark, Davis."""
    first = [option.strip()[:1].upper() for option in options]
    return first == [chr(ord("A") + place) for place in range(len(first))]


def unlike(options: Options) -> bool:
    """Return whether some options begin with a number and some do not, so that the place of a kind may be natural."""
    return len({option.strip()[:1].isdigit() for option in options if not speaks_of_others(option)}) > 1


OF_ONE_QUESTION: dict[str, Callable[[Options], bool]] = {
    "anchored": lambda options: any(speaks_of_others(option) for option in options),
    "letters": lambda options: any(letters_meant(option) for option in options),
    "combining": combining,
    "no_answer": lambda options: any(gives_up(option) for option in options),
    "in_order": in_order,
    "cumulative": cumulative,
    "initials": initials,
    "unlike": unlike,
    "true_or_false": true_or_false,
    "of_statements": of_statements,
    "repeated": repeated,
}


def guards_of(question: Question, templates: frozenset[frozenset[str]] = frozenset()) -> tuple[str, ...]:
    """Return the names of the guards of `question`.

    templates: sets of options that many questions share, as returned by `shared_option_sets`
    """
    of_template = [TEMPLATED] if _as_set(question) in templates else []
    return (*_guards_of_options(question.options), *_guards_of_text(question.stem, question.options), *of_template)


@lru_cache(maxsize=QUESTIONS_KEPT)
def _guards_of_text(stem: str, options: tuple[str, ...]) -> tuple[str, ...]:
    mentioned = [MENTIONED] if in_order_of_mention(stem, options) else []
    return (*mentioned, *([PASSAGE] if has_passage(stem, len(options)) else []))


def has_passage(stem: str, n_options: int) -> bool:
    """Return whether the stem is a passage whose order the options may follow in other words.

    A passage has at least as many sentences as there are options, and three at least; or it has more parts than that,
    between commas, "and" and the like.
    """
    fewest = max(3, n_options)
    if len(_SENTENCES.findall(stem)) >= fewest:
        return True
    return sum(any(map(str.isalnum, part)) for part in _PARTS.split(stem)) > fewest


@lru_cache(maxsize=QUESTIONS_KEPT)
def _guards_of_options(options: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the guards that the options alone show.

    They are cached, since an audit needs them when it builds a question's requests and when it judges the question.
    """
    return tuple([name for name, holds in OF_ONE_QUESTION.items() if holds(options)])


def shared_option_sets(questions: Iterable[Question]) -> frozenset[frozenset[str]]:
    """Return the sets of options that at least `MANY` of the questions share, whatever their order."""
    counts = Counter(map(_as_set, questions))
    return frozenset(options for options, count in counts.items() if count >= MANY)


def _as_set(question: Question) -> frozenset[str]:
    return frozenset(option.strip().casefold() for option in question.options)
