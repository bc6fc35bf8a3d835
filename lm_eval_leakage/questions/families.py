"""Which questions are no independent evidence, since they ask the same or share a text; and what questions are like,
in numbers and digests, by which they can be compared without their texts, which may be private.

Copies are rows that ask the same question: what a model remembers of one it remembers of all, so verdicts, power and
rates count each question once. Families are questions with the same options, the same passage or the same stem, and
near copies (`questions.near_copies`): their orders may have been drawn once for all of them, and what a model knows
of one it knows of all, so they are one unit of evidence. Properties of questions are numbers that do not depend on
whether a model has seen them. Questions are found in prompts of any wording, too, by which runs that record no data
rows are joined with audits.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from statistics import fmean
from typing import Any, Generic, TypeVar

from lm_eval_leakage.questions.near_copies import is_word_pairs, near_copies, word_pairs
from lm_eval_leakage.records import QUESTIONS_KEPT, Described, Question, Shard
from lm_eval_leakage.texts import canonical

T = TypeVar("T")


def question_key(question: Question) -> str:
    """Equal for copies: the same stem with the same options in any order, up to case, white space, Unicode form and
    invisible characters. Empty, so that it has no copies, for a shard."""
    if isinstance(question, Shard):
        return ""
    return _key_of(question.stem, question.options)


@lru_cache(maxsize=QUESTIONS_KEPT)
def _key_of(stem: str, options: tuple[str, ...]) -> str:
    return hashlib.sha256(_joined(stem, options, comparable)).hexdigest()[:16]


def _joined(stem: str, options: Sequence[str], read: Callable[[str], str]) -> bytes:
    """Return stem and options, in an order that does not depend on the published one."""
    return "\x1f".join([read(stem), *sorted(map(read, options))]).encode("utf-8", "surrogatepass")


def comparable(text: str) -> str:
    """The same for texts that differ only in case, white space, Unicode form and invisible characters."""
    return canonical(canonical(text).casefold())


def each_once(items: Iterable[T], key: Callable[[T], str], place: Callable[[T], Any] = lambda item: 0) -> list[T]:
    """The items without copies, in their order: of those with the same key the one with the lowest place, the first
    of equals. An item with an empty key has no copies."""
    given = list(items)
    keys = [key(item) or number for number, item in enumerate(given)]
    first: dict[str | int, int] = {}
    for number, own in enumerate(keys):
        if own not in first or place(given[number]) < place(given[first[own]]):
            first[own] = number
    return [item for number, item in enumerate(given) if first[keys[number]] == number]


def distinct(questions: Iterable[Question]) -> list[Question]:
    """Questions without copies, in their order."""
    return each_once(questions, question_key)


def left_out_in_words(n_copies: int) -> str:
    """`12 copies of questions were left out`; empty for none."""
    if not n_copies:
        return ""
    return f"{n_copies:,} {'copy of a question was' if n_copies == 1 else 'copies of questions were'} left out"


PASSAGE_BYTES = 150  # of UTF-8, about 25 English words or 50 Chinese characters, with which no two questions begin or
# end by chance
KEY_DIGITS = 12  # 48 bits: of 14,042 questions, two different texts have the same key with a probability of 1e-6


def shared_texts(question: Question) -> tuple[str, ...]:
    """Return digests of what a question may share with others, by which `families` compares them: its set of options,
    its stem, the beginning and the end of a long stem, where a passage stands, and last its `word_pairs`."""
    pairs = word_pairs(question.stem, question.options)
    stem = canonical(question.stem).casefold()
    parts = set[str]()
    if question.options:
        parts.add("options\x1f" + "\x1f".join(sorted(canonical(one).casefold() for one in question.options)))
    if stem:
        parts.add(f"stem\x1f{stem}")
    encoded = stem.encode("utf-8", "surrogatepass")
    if len(encoded) > PASSAGE_BYTES:
        parts |= {f"begin\x1f{encoded[:PASSAGE_BYTES]!r}", f"end\x1f{encoded[-PASSAGE_BYTES:]!r}"}
    keys = sorted(hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:KEY_DIGITS] for part in parts)
    return (*keys, pairs) if pairs else tuple(keys)


def families(shared: Sequence[Sequence[str]]) -> list[int]:
    """For each question, the number of its family: the place of the family's first question. Questions that share a
    key or are near copies are of one family, and so are those that are linked by others.

    shared: of each question, its `shared_texts`; without any it is a family of its own
    """
    root = list(range(len(shared)))

    def found(place: int) -> int:
        while root[place] != place:
            root[place] = root[root[place]]
            place = root[place]
        return place

    def link(place: int, other: int) -> None:
        one, two = found(place), found(other)
        root[max(one, two)] = min(one, two)

    first: dict[str, int] = {}
    for place, keys in enumerate(shared):
        for key in keys:
            link(first.setdefault(key, place), place)
    pairs = [next(filter(is_word_pairs, keys), "") for keys in shared]
    for place, other in near_copies(pairs, lambda place, other: found(place) == found(other)):
        link(place, other)
    return [found(place) for place in range(len(shared))]


STEM = "characters of the question"
OPTION = "characters of an option"
N_OPTIONS = "number of options"
GUARDED = "share with a natural order of options"
SCRIPT = "share of letters that are not Latin"
LAST_LATIN_LETTER = "\u024f"


def described(questions: Iterable[tuple[Question, bool]]) -> Described:
    """Of questions, each with whether it has a guard."""
    asked = list(questions)
    lengths = [[len(option.strip()) for option in question.options] for question, _ in asked]
    return Described(
        {
            STEM: tuple(float(len(question.stem.strip())) for question, _ in asked),
            OPTION: tuple(fmean(of_options or [0]) for of_options in lengths),
            N_OPTIONS: tuple(float(len(of_options)) for of_options in lengths),
            GUARDED: tuple(float(guarded) for _, guarded in asked),
            SCRIPT: tuple(_not_latin(f"{question.stem} {' '.join(question.options)}") for question, _ in asked),
        },
        {text_digest(question): question.stem for question, _ in asked},
    )


def text_digest(question: Question) -> str:
    """Equal for questions that differ only in case, punctuation, white space or the order of their options."""
    return hashlib.blake2b(_joined(question.stem, question.options, _normalised), digest_size=12).hexdigest()


def _normalised(text: str) -> str:
    """Letters and digits in lower case; the text itself if it has none."""
    return "".join(character for character in text.casefold() if character.isalnum()) or text.strip()


def _not_latin(text: str) -> float:
    letters = [character for character in text if character.isalpha()]
    return sum(letter > LAST_LATIN_LETTER for letter in letters) / len(letters) if letters else 0.0


class QuestionsInPrompts(Generic[T]):
    """The questions to be found, each as its stem, its options and what `find` returns for it."""

    def __init__(self, known: Iterable[tuple[str, Sequence[str], T]]) -> None:
        self._by_options: dict[tuple[str, ...], list[tuple[str, T]]] = defaultdict(list)
        for stem, options, one in known:
            if (text := comparable(stem)) and options:
                self._by_options[_set_of(options)].append((text, one))

    def find(self, prompt: str, options: Sequence[str]) -> T | None:
        """The question with these options, in any order, that the prompt asks: its stem begins a line, or follows a
        colon, and ends a line. Of several the one that ends last, since examples come first; of those the longest."""
        text = "\n".join(map(comparable, prompt.splitlines()))
        known = self._by_options.get(_set_of(options), [])
        places = [
            (found.end(), len(stem), number)
            for number, (stem, _) in enumerate(known)
            for found in re.finditer(rf"(?:\A|\n|[:：] ?){_anywhere(stem)}(?=\n|\Z)", text)
        ]
        return known[max(places)[2]][1] if places else None


def _set_of(options: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(map(comparable, options)))


def _anywhere(stem: str) -> str:
    """A pattern of the stem, whose lines the prompt may break elsewhere."""
    return r"\s+".join(map(re.escape, stem.split(" ")))
