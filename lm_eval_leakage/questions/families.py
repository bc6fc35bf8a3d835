"""Groups questions that are no independent evidence, and describes questions without their texts.

Copies are rows that ask the same question. What a model remembers of one it remembers of all, so verdicts, power and
rates count each question once. Families are questions with the same options, the same passage or the same stem, and
near copies (`questions.near_copies`). Their orders may have been drawn once for all of them, and what a model knows
of one it knows of all, so a family is one unit of evidence.

Properties of questions are numbers that do not depend on whether a model has seen them. Digests of questions allow
comparisons without the texts, which may be private. `QuestionsInPrompts` finds questions in prompts of any wording,
so that runs that record no data rows can be joined with audits.
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
PASSAGE_BYTES = 150  # of UTF-8, about 25 English words or 50 Chinese characters, with which no two questions begin or
# end by chance
KEY_DIGITS = 12  # 48 bits: of 14,042 questions, two different texts have the same key with a probability of 1e-6
STEM = "characters of the question"
OPTION = "characters of an option"
N_OPTIONS = "number of options"
GUARDED = "share with a natural order of options"
SCRIPT = "share of letters that are not Latin"
LAST_LATIN_LETTER = "\u024f"


def question_key(question: Question) -> str:
    """Return a key that is equal for copies and empty for a shard, which has no copies.

    Copies have the same stem and the same options in any order, up to case, white space, Unicode form and invisible
    characters.
    """
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
    """Return a form that is equal for texts that differ only in case, white space, Unicode form and invisible
    signs."""
    return canonical(canonical(text).casefold())


def each_once(items: Iterable[T], key: Callable[[T], str], place: Callable[[T], Any] = lambda item: 0) -> list[T]:
    """Return the items without copies, in their order.

    Of items with the same key, the one with the lowest place stays, the first of equals. An item with an empty key has
    no copies.
    """
    all_items = list(items)
    keys = [key(item) or number for number, item in enumerate(all_items)]
    first: dict[str | int, int] = {}
    for number, item_key in enumerate(keys):
        if item_key not in first or place(all_items[number]) < place(all_items[first[item_key]]):
            first[item_key] = number
    return [item for number, item in enumerate(all_items) if first[keys[number]] == number]


def distinct(questions: Iterable[Question]) -> list[Question]:
    """Return the questions without copies, in their order."""
    return each_once(questions, question_key)


def left_out_in_words(n_copies: int) -> str:
    """Return a clause such as `12 copies of questions were left out`; an empty text for none."""
    if not n_copies:
        return ""
    return f"{n_copies:,} {'copy of a question was' if n_copies == 1 else 'copies of questions were'} left out"


def shared_texts(question: Question) -> tuple[str, ...]:
    """Return digests of the parts that a question may share with others; `families` compares them.

    The parts are its set of options, its stem, the beginning and the end of a long stem, where a passage stands, and
    last its `word_pairs`.
    """
    pairs = word_pairs(question.stem, question.options)
    stem = canonical(question.stem).casefold()
    parts = set[str]()
    if question.options:
        parts.add("options\x1f" + "\x1f".join(sorted(canonical(option).casefold() for option in question.options)))
    if stem:
        parts.add(f"stem\x1f{stem}")
    encoded = stem.encode("utf-8", "surrogatepass")
    if len(encoded) > PASSAGE_BYTES:
        parts |= {f"begin\x1f{encoded[:PASSAGE_BYTES]!r}", f"end\x1f{encoded[-PASSAGE_BYTES:]!r}"}
    keys = sorted(hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:KEY_DIGITS] for part in parts)
    return (*keys, pairs) if pairs else tuple(keys)


def families(shared: Sequence[Sequence[str]]) -> list[int]:
    """Return the number of each question's family, which is the place of the family's first question.

    Questions that share a key or are near copies belong to one family, and so do questions that are linked by others.

    shared: the `shared_texts` of each question; a question without any is a family by itself
    """
    root = list(range(len(shared)))

    def root_of(place: int) -> int:
        while root[place] != place:
            root[place] = root[root[place]]
            place = root[place]
        return place

    def link(place: int, other: int) -> None:
        first_root, other_root = root_of(place), root_of(other)
        root[max(first_root, other_root)] = min(first_root, other_root)

    first: dict[str, int] = {}
    for place, keys in enumerate(shared):
        for key in keys:
            link(first.setdefault(key, place), place)
    pairs = [next(filter(is_word_pairs, keys), "") for keys in shared]
    for place, other in near_copies(pairs, lambda place, other: root_of(place) == root_of(other)):
        link(place, other)
    return [root_of(place) for place in range(len(shared))]


def describe_families(questions: Iterable[tuple[Question, bool]]) -> Described:
    """Return the properties and the digests of questions.

    questions: each with a flag that says whether it has a guard
    """
    pairs = list(questions)
    lengths = [[len(option.strip()) for option in question.options] for question, _ in pairs]
    return Described(
        {
            STEM: tuple(float(len(question.stem.strip())) for question, _ in pairs),
            OPTION: tuple(fmean(of_options or [0]) for of_options in lengths),
            N_OPTIONS: tuple(float(len(of_options)) for of_options in lengths),
            GUARDED: tuple(float(guarded) for _, guarded in pairs),
            SCRIPT: tuple(_not_latin(f"{question.stem} {' '.join(question.options)}") for question, _ in pairs),
        },
        {text_digest(question): question.stem for question, _ in pairs},
    )


def text_digest(question: Question) -> str:
    """Return a digest that does not depend on case, punctuation, white space and the order of the options."""
    return hashlib.blake2b(_joined(question.stem, question.options, _normalised), digest_size=12).hexdigest()


def _normalised(text: str) -> str:
    """Return the letters and digits of a text in lower case; the text itself if it has none."""
    return "".join(character for character in text.casefold() if character.isalnum()) or text.strip()


def _not_latin(text: str) -> float:
    """Return the share of the letters of a text that are not Latin."""
    letters = [character for character in text if character.isalpha()]
    return sum(letter > LAST_LATIN_LETTER for letter in letters) / len(letters) if letters else 0.0


class QuestionsInPrompts(Generic[T]):
    """An index of questions that finds the one that a prompt asks.

    questions: each as its stem, its options and the value that `find` returns for it
    """

    def __init__(self, questions: Iterable[tuple[str, Sequence[str], T]]) -> None:
        self._by_options: dict[tuple[str, ...], list[tuple[str, T]]] = defaultdict(list)
        for stem, options, value in questions:
            text = comparable(stem)
            if text and options:
                self._by_options[_set_of(options)].append((text, value))

    def find(self, prompt: str, options: Sequence[str]) -> T | None:
        """Return the value of the question with these options, in any order, that the prompt asks; None without one.

        The stem of the question begins a line, or follows a colon, and ends a line. Of several questions, the one that
        ends last is returned, since examples come first; of those that end together, the longest.
        """
        text = "\n".join(map(comparable, prompt.splitlines()))
        candidates = self._by_options.get(_set_of(options), [])
        places = [
            (match.end(), len(stem), number)
            for number, (stem, _) in enumerate(candidates)
            for match in re.finditer(rf"(?:\A|\n|[:：] ?){_anywhere(stem)}(?=\n|\Z)", text)
        ]
        return candidates[max(places)[2]][1] if places else None


def _set_of(options: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(map(comparable, options)))


def _anywhere(stem: str) -> str:
    """Return a pattern that matches the stem wherever the prompt breaks its lines."""
    return r"\s+".join(map(re.escape, stem.split(" ")))
