"""Finds near copies, which are questions whose stem and options differ in a few words at most.

Two questions are near copies if two things hold. At least half of the pairs of neighbouring words that either has are
in both, for the stems and, if there are any, for the options. And their options have the same numbers.

Case, punctuation, articles, white space, labels of options and numbers in the stem do not count. Numbers in options
do, since often nothing else differs between questions made from one template. In scripts without spaces each character
is a word.

Digests of the pairs are compared, not texts, so that a line of a log has all that is needed.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np

from lm_eval_leakage.questions.prompt_parser import without_labels

LEAST_SHARED = 0.5  # of the pairs of words that either has; measured on six benchmarks: docs/validity.md
# Pairs of a stem, or of all options. Of more, those with the smallest digests stay, a sample that near copies share.
MOST_PAIRS = 64
DIGEST = 4  # characters of base64 for 24 bits
WORD_PAIRS = re.compile(r"([\w+/]{4})+\.([\w+/]{4})*\.([\w+/]{4})?", re.ASCII)
MOST_LINKED = 20  # questions with a pair in common that stand for all that are linked with them
NO_PAIRS = 2**40  # stands for the pairs of options that have none, only numbers
NO_OPTIONS = frozenset([""])  # instead of their pairs: questions without options have these alike
ARTICLES = frozenset(("a", "an", "the"))
APOSTROPHES = re.compile("['\u2019]")
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")
_WITHOUT_SPACES = re.compile(  # Thai to Burmese, Khmer, kana and ideographs
    "[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def word_pairs(stem: str, options: Sequence[str]) -> str:
    """Return the digests of the pairs of words of the stem, of those of the options and of the options' numbers,
    separated by points; an empty text for a question without words in its stem, which has no near copies."""
    words_of_stem, _ = _words_and_numbers(stem)
    read = [_words_and_numbers(option) for option in without_labels(options)]
    numbers = sorted({number for _, numbers in read for number in numbers})
    pairs = {pair for words, _ in read for pair in _pairs(words)} if read else NO_OPTIONS
    if not words_of_stem or not (pairs or numbers):
        return ""
    return ".".join(map(_digests, (_pairs(words_of_stem), pairs, {" ".join(numbers)} if numbers else ())))


def is_word_pairs(digest: str) -> bool:
    """Return whether a digest was made by `word_pairs`; digests of other kinds have no points."""
    return bool(WORD_PAIRS.fullmatch(digest))


def _words_and_numbers(text: str) -> tuple[list[str], list[str]]:
    """Return the words and the numbers of a text, without articles if it has other words."""
    words, numbers = list[str](), list[str]()
    for word in _WORD.findall(APOSTROPHES.sub("", _plain(text))):
        if word[0].isdecimal():
            numbers.append(word.replace(",", ""))
        elif _WITHOUT_SPACES.search(word):
            words += word
        else:
            words.append(word)
    return [word for word in words if word not in ARTICLES] or words, numbers


def _plain(text: str) -> str:
    """Return a text in lower case in one Unicode form, without marks on letters and invisible characters."""
    if text.isascii():
        return text.casefold()
    parts = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in parts if unicodedata.category(character) not in ("Mn", "Mc", "Cf"))


def _pairs(words: Sequence[str]) -> set[str]:
    """Return the pairs of neighbouring words; the first word has no left neighbour."""
    return {f"{left} {right}" for left, right in pairwise(["", *words])}


def _digests(texts: Collection[str]) -> str:
    """Return the smallest digests of texts, at most MOST_PAIRS, in rising order."""
    digests = {zlib.crc32(text.encode("utf-8", "surrogatepass")) >> 8 for text in texts}
    return b64encode(b"".join(digest.to_bytes(3, "big") for digest in sorted(digests)[:MOST_PAIRS])).decode("ascii")


def near_copies(questions: Sequence[str], are_linked: Callable[[int, int], bool]) -> Iterator[tuple[int, int]]:
    """Yield places of near copies, until all that are linked by others are linked.

    Both of two near copies have one of their rarest pairs in common, so that only questions that do are compared
    (prefix filtering: Chaudhuri, Ganti and Kaushik 2006, "A primitive operator for similarity joins").

    questions: the `word_pairs` of each
    are_linked: whether two places are known to be linked; it is called again after each pair that was yielded
    """
    parts = [(*pairs.split("."), "", "")[:3] for pairs in questions]
    stems = _rarest_first([stem for stem, _, _ in parts])
    options = _rarest_first([pairs for _, pairs, _ in parts])
    numbers = [digest for _, _, digest in parts]
    by_stem, by_options = _Postings(stems, numbers), _Postings(options, numbers)
    for place, stem in enumerate(stems):
        if not stem:
            continue
        fewer, more = sorted((by_stem, by_options), key=lambda postings: postings.n_sharing(place))
        for other in fewer.sharing(place):
            if (
                more.may_be_alike(place, other)
                and not are_linked(place, other)
                and _are_alike(options[place], options[other])
                and _are_alike(stem, stems[other])
            ):
                yield place, other
        by_stem.add(place, are_linked)
        by_options.add(place, are_linked)


def _are_alike(pairs: Collection[int], others: Collection[int]) -> bool:
    shared = len(set(pairs).intersection(others))
    return shared >= LEAST_SHARED * (len(pairs) + len(others) - shared)


def _rarest_first(texts: Sequence[str]) -> list[list[int]]:
    """Return the pairs of each text as ranks, which rise with the number of texts that have a pair; below 0 for one
    text."""
    digests = np.frombuffer("".join(texts).encode("ascii"), dtype=f"S{DIGEST}")
    _, pairs, counts = np.unique(digests, return_inverse=True, return_counts=True)
    ranks = np.empty(len(counts), dtype=int)
    ranks[np.argsort(counts, kind="stable")] = np.arange(len(counts)) - (counts == 1).sum()
    lengths = np.array([len(text) // DIGEST for text in texts], dtype=int)
    all_ranks = ranks[pairs]
    by_rank = all_ranks[np.lexsort((all_ranks, np.repeat(np.arange(len(texts)), lengths)))].tolist()
    return [by_rank[begin:end] for begin, end in pairwise([0, *np.cumsum(lengths).tolist()])]


def _shortest_prefix(ranks: Sequence[int]) -> Sequence[int]:
    """Return so many of the rarest pairs that two texts without any of them in common are no near copies."""
    return ranks[: len(ranks) - math.ceil(LEAST_SHARED * len(ranks)) + 1]


class _Postings:
    """An index that finds questions with one of the rarest pairs, and all the numbers, of another question."""

    def __init__(self, pairs: Sequence[Sequence[int]], numbers: Sequence[str]) -> None:
        self._rarest = [_shortest_prefix(ranks) or [NO_PAIRS] for ranks in pairs]
        self._keys = [
            [(pair, digest) for pair in rarest if pair >= 0]
            for rarest, digest in zip(self._rarest, numbers, strict=True)
        ]
        self._added: dict[tuple[int, str], list[int]] = defaultdict(list)

    def n_sharing(self, place: int) -> int:
        return sum(len(self._added[key]) for key in self._keys[place])

    def sharing(self, place: int) -> set[int]:
        return {other for key in self._keys[place] for other in self._added[key]}

    def may_be_alike(self, place: int, other: int) -> bool:
        return not set(self._rarest[place]).isdisjoint(self._rarest[other])

    def add(self, place: int, are_linked: Callable[[int, int], bool]) -> None:
        """Add a question, except where the last ones are all linked with it: comparing thousands of copies of one
        question with each other would take minutes."""
        for key in self._keys[place]:
            last = self._added[key][-MOST_LINKED:]
            if len(last) < MOST_LINKED or not all(are_linked(place, other) for other in last):
                self._added[key].append(place)
