"""Finds options in a rendered prompt by their values in the data row, whatever text is around and between them.

A listing is a list of options in a prompt: places that hold all values, with a marker of one shape before each
(`questions.list_markers`). What is the same before every option belongs to the marker, white space too, so that any
order of the options looks like the published one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from lm_eval_leakage.questions.fields import MOST_OPTIONS
from lm_eval_leakage.questions.list_markers import (
    COMMAND,
    CONJUNCTION,
    MarkerShape,
    are_alike,
    first_marker,
    is_alphabet,
    is_separator,
    shapes_of,
)
from lm_eval_leakage.questions.prompt_parser import ShownOptions, listed_texts
from lm_eval_leakage.records import Frame

LONGEST_MARKER = 60  # characters between two options
_MOST_STARTS = 50  # places, the last ones, where a listing may begin
MOST_SECOND = 4  # places where the next option of a listing may be
MOST_LISTS = 50  # of a row
SHORTEST_PART = 3  # characters of a value that counts as a part of a word, too
NEAR = 30  # characters between options that look like a list, with one word on a line at most: ", or a "
_WORD = re.compile(r"[^\W\d_]{2,}")
ESCAPES = ("\\n", "\\t")  # as some templates have them instead of a new line
_WITHOUT_SPACES = "\u0e00"  # from Thai on, most scripts write no spaces between words
BLANKS = " \t\u00a0\u3000"

Span = tuple[int, int]


class Listing(NamedTuple):
    """A list of options as a prompt shows them; `labels` is empty if they have none."""

    shown: ShownOptions
    labels: tuple[str, ...]


def listings_of(prompt: str, values: Sequence[str]) -> Iterator[Listing]:
    """Yield the listings in `prompt` of all the values in their order, the last one first."""
    texts = [value.strip() for value in values]
    if len(values) < 2 or not all(texts):
        return
    if list(values) != texts:  # first with the white space around them
        for spans in _chains(prompt, values):
            listing = _as_listing(prompt, spans)
            if listing is not None and _ends_alike(listing):
                yield listing
    for spans in _chains(prompt, texts):
        listing = _without_space(prompt, _with_space_of_values(prompt, spans, values))
        if listing is not None:
            yield listing


def listings_among(prompt: str, values: Iterable[str], n_options: int) -> Iterator[Listing]:
    """Yield the listings in `prompt` of `n_options` different values, in any order, the last one first."""
    texts = sorted({value.strip() for value in values} - {""}, key=len, reverse=True)
    ends: dict[int, int] = {}  # of the longest value at each place
    for text in texts:
        for start, end in _places(prompt, text):
            ends.setdefault(start, end)
    places = sorted(ends.items())
    for start in reversed([*range(len(places))][-_MOST_STARTS:]):
        for spans in _following(prompt, places, start, n_options):
            listing = _without_space(prompt, spans)
            if listing is not None and len({*listing.shown.options}) == n_options:
                yield listing


def is_listed(prompt: str, values: Sequence[str]) -> bool:
    """Return whether all the values stand in `prompt` close to each other, in any order, as in a list."""
    texts = {value.strip() for value in values}
    if "" in texts:
        return False
    places = [(*span, text) for text in texts for span in _places(prompt, text, are_whole=len(text) < SHORTEST_PART)]
    seen, last = set[str](), 0
    for start, end, text in sorted(places, key=lambda place: (place[0], -place[1])):
        if start < last:
            continue
        between = COMMAND.sub("\n", prompt[last:start])
        is_sentence = "\n" not in between and len(_WORD.findall(between)) > 1
        if len(between) > NEAR or is_sentence:
            seen.clear()
        seen.add(text)
        last = end
        if seen == texts:
            return bool(texts)
    return False


def lists_in(row: object) -> Iterator[list[str]]:
    """Yield the lists of at least two texts or numbers in a data row that may be options.

    They are lists, values of a mapping, each field of a list of mappings, and lists that are written as text. Lists
    of labels (A, B, C) are left out.
    """
    for n_lists, values in enumerate(_all_lists(row)):
        if n_lists == MOST_LISTS:
            return
        if not is_alphabet(values):
            yield values


def _all_lists(value: object) -> Iterator[list[str]]:
    """Yield the lists in a part of a row, those of labels too."""
    if isinstance(value, str):
        if len(listed := listed_texts(value)) > 1:
            yield listed
        return
    if not isinstance(value, (Mapping, list, tuple)) or not value:
        return
    parts = [*value.values()] if isinstance(value, Mapping) else [*value]
    are_values = all(isinstance(part, (str, int, float)) and not isinstance(part, bool) for part in parts)
    if are_values and 1 < len(parts) <= MOST_OPTIONS:
        yield [str(part) for part in parts]
    if len(parts) > 1 and all(isinstance(part, Mapping) for part in parts):
        parts = [[part.get(name) for part in parts] for name in parts[0]]
    for part in parts:
        yield from _all_lists(part)


# ---------------------------------------------------------------------- places of values


def _chains(prompt: str, values: Sequence[str]) -> Iterator[list[Span]]:
    """Yield the places of the values, one after the other, with markers of one shape; the last such places first."""
    for start in _places(prompt, values[0]):
        for second in _near(prompt, values[1], start[1]):
            if (spans := _rest_of_chain(prompt, values, [start, second])) is not None:
                yield spans


def _rest_of_chain(prompt: str, values: Sequence[str], spans: list[Span]) -> list[Span] | None:
    """Return the places of all values, of which those of the first two are given; None if the markers differ."""
    for value in values[2:]:
        first = prompt[spans[0][1] : spans[1][0]]
        last = spans[-1][1]
        alike = (span for span in _near(prompt, value, last) if are_alike(first, prompt[last : span[0]]))
        span = next(alike, None)
        if span is None and len(spans) == len(values) - 1:  # "a, b or c"
            near = _near(prompt, value, last)
            span = next((place for place in near if CONJUNCTION.fullmatch(prompt[last : place[0]])), None)
        if span is None:
            return None
        spans = [*spans, span]
    return spans if any(_shapes(prompt, spans)) else None


def _following(prompt: str, places: Sequence[Span], start: int, n_options: int) -> Iterator[list[Span]]:
    """Yield `n_options` places of values, from the place number `start` on, with markers of one shape."""
    seconds = [place for place in places[start + 1 :] if 0 < place[0] - places[start][1] <= LONGEST_MARKER]
    for second in seconds[:MOST_SECOND]:
        spans = [places[start], second]
        marker = prompt[spans[0][1] : spans[1][0]]
        for place in places[start + 2 :]:
            if len(spans) == n_options or place[0] - spans[-1][1] > LONGEST_MARKER:
                break
            if place[0] > spans[-1][1] and are_alike(marker, prompt[spans[-1][1] : place[0]]):
                spans.append(place)
        if len(spans) == n_options and any(_shapes(prompt, spans)):
            yield spans


def _places(prompt: str, value: str, *, are_whole: bool = True) -> list[Span]:
    """Return where `value` stands in `prompt`, the last place first.

    are_whole: whether places in the middle of a word are left out
    """
    spans: list[Span] = []
    start = prompt.rfind(value)
    while start >= 0 and len(spans) < _MOST_STARTS:
        if not are_whole or _is_whole(prompt, start, start + len(value)):
            spans.append((start, start + len(value)))
        start = prompt.rfind(value, 0, start + len(value) - 1) if start else -1
    return spans or _places_of_words(prompt, value)


def _places_of_words(prompt: str, value: str) -> list[Span]:
    """Return where a value stands in a prompt that changes its white space."""
    words = value.split()
    if len(words) < 2 or not all(word in prompt for word in words):
        return []
    return [match.span() for match in re.finditer(r"\s+".join(map(re.escape, words)), prompt)][::-1][:_MOST_STARTS]


def has_words(text: str, words: str) -> bool:
    """Return whether `words` stand in `text` as whole words."""
    return bool(_places(text, words))


def _near(prompt: str, value: str, end: int) -> Iterator[Span]:
    """Yield where `value` stands within the length of a marker after `end`."""
    limit = end + LONGEST_MARKER + len(value)
    start, n_places = prompt.find(value, end + 1, limit), 0
    while start >= 0 and n_places < MOST_SECOND:
        if _is_whole(prompt, start, start + len(value)):
            n_places += 1
            yield start, start + len(value)
        start = prompt.find(value, start + 1, limit)
    words = value.split()
    if not n_places and len(words) > 1:
        pattern = re.compile(r"\s+".join(map(re.escape, words)))
        match = pattern.search(prompt, end + 1, limit + len(value))
        if match and match.start() <= end + LONGEST_MARKER:
            yield match.span()


def _is_whole(prompt: str, start: int, end: int) -> bool:
    """Return whether no word or number goes on before or after this place."""
    is_escape = prompt.endswith(ESCAPES, 0, start)
    return not (
        (start and not is_escape and _is_inside(prompt[start - 1], prompt[start]))
        or (end < len(prompt) and _is_inside(prompt[end - 1], prompt[end]))
    )


def _is_inside(left: str, right: str) -> bool:
    """Return whether two neighbouring characters belong to one word or number."""
    if left.isdecimal() and right.isdecimal():
        return True
    is_new_word = left.islower() and right.isupper()  # "OptionYes"
    return left.isalpha() and right.isalpha() and max(left, right) < _WITHOUT_SPACES and not is_new_word


# ---------------------------------------------------------------------- the listing


def _ends_alike(listing: Listing) -> bool:
    """Return whether the same blanks follow the last option as the others, so that they are no part of it."""
    marker = listing.shown.frame.markers[1]
    return listing.shown.frame.after.startswith(marker[: len(marker) - len(marker.lstrip(" \t"))])


def _without_space(prompt: str, spans: Sequence[Span]) -> Listing | None:
    """Return the options at these places, which include no white space, so that the marker of the first may have less
    of it than others; None if they are no list."""
    return _as_listing(prompt, spans) or _as_listing(prompt, spans, has_space=False)


def _as_listing(prompt: str, spans: Sequence[Span], *, has_space: bool = True) -> Listing | None:
    """Return the options at these places; None if they are no list.

    has_space: whether the marker of the first option has the same white space after its label as the others
    """
    markers = _between(prompt, spans)
    before = prompt[: spans[0][0]]
    for shape in _shapes(prompt, spans):
        first = first_marker(before, shape if has_space else shape.without_space())
        if first is None:
            continue
        marker, label = first
        frame = Frame(before[: len(before) - len(marker)], (marker, *markers), prompt[spans[-1][1] :])
        options = tuple(prompt[start:end] for start, end in spans)
        return Listing(ShownOptions(frame, options), (label, *shape.labels) if shape.labels else ())
    return None


def _with_space_of_values(prompt: str, spans: Sequence[Span], values: Sequence[str]) -> Sequence[Span]:
    """Return the places with the white space before an option that its value has and not all options have."""
    if is_separator(prompt[spans[0][1] : spans[1][0]]):  # the first option has no marker to compare with
        return spans
    leads = [_space_before(prompt, start) for start, _ in spans]
    shared = min(map(len, leads))
    widened = []
    for (start, end), lead, value in zip(spans, leads, values, strict=True):
        n_leading = len(value) - len(value.lstrip())
        extra = lead[: len(lead) - shared] if shared else lead
        widened.append((start - len(extra) if extra and value[:n_leading].endswith(extra) else start, end))
    return widened


def _space_before(prompt: str, start: int) -> str:
    """Return the blanks before a place on its line."""
    end = start
    while start and prompt[start - 1] in BLANKS:
        start -= 1
    return prompt[start:end]


def _shapes(prompt: str, spans: Sequence[Span]) -> Iterator[MarkerShape]:
    """Yield the shapes that the markers between these places may have."""
    return shapes_of(_between(prompt, spans), prompt[spans[-1][1] :])


def _between(prompt: str, spans: Sequence[Span]) -> list[str]:
    """Return the texts between these places."""
    return [prompt[end:start] for (_, end), (start, _) in pairwise(spans)]
