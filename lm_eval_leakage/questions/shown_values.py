"""Finds options in a rendered prompt by their values in the data row, whatever stands before, between and after them.

A list of options is a run of places that hold all values, with a marker before each. All markers of a run have one
shape: the same text around a label that is different in each ("- A. ", "**B** ", "③ "), or no label at all (", ").
What is the same before every option belongs to the marker, white space too, so that any order of the options looks
like the published one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import NamedTuple

from lm_eval_leakage.questions.fields import MOST_OPTIONS
from lm_eval_leakage.questions.prompt_parser import (
    LABEL_SEQUENCES,
    LONGEST_LABEL,
    ShownOptions,
    labels_among,
    listed_texts,
    shared_beginning,
)
from lm_eval_leakage.records import Frame

LONGEST_MARKER = 60  # characters between two options
LONGEST_BARE_LABEL = 4  # of a label in no known alphabet
LONGEST_SEPARATOR = 8  # characters between two options without labels
MOST_STARTS = 50  # places, the last ones, where a run may begin
MOST_SECOND = 4  # places where the second option of a run may be
MOST_LISTS = 50  # of a row
SHORT = 3  # characters of a value that only counts as a whole word
ESCAPES = ("\\n", "\\t")
NEAR = 30  # characters between options that look like a list, with one word on a line at most: ", or a "
WORD = re.compile(r"[^\W\d_]{2,}")
WITHOUT_SPACES = "\u0e00"  # from Thai on, most scripts write no spaces between words
SEQUENCES = [[*sequence] for sequence in LABEL_SEQUENCES]
KNOWN_LABELS = {label for sequence in SEQUENCES for label in sequence}
CLOSING = ",;."
COMMAND = re.compile(r"</?(?:br|div|li|ol|option|p|span|td|tr|ul)>|\\item\b")  # of HTML or LaTeX
CONJUNCTION = re.compile(r"[ ,，、]+[^\W\d_]{1,4} ")  # before the last of some options in a sentence
REST_OF_LINE = re.compile(r"[^\S\n]+\w")
END_OF_SENTENCE = re.compile(r"[?？.。:：]?\s*(?:\n|\Z)")

Span = tuple[int, int]


class Marked(NamedTuple):
    """The common shape of some markers: the text before and after their labels, and the labels; empty labels for
    markers that are the same, or that differ only before the last option of a sentence."""

    before_label: str
    after_label: str
    labels: tuple[str, ...]

    def without_space(self) -> Marked:
        """The shape of a marker that is the same but for the white space after its label: "A:" beside " B: "."""
        return self._replace(after_label=self.after_label.rstrip())


class Run(NamedTuple):
    """Options as a prompt shows them, with their labels, which are empty if they have none."""

    shown: ShownOptions
    labels: tuple[str, ...]


def runs_of(prompt: str, values: Sequence[str]) -> Iterator[Run]:
    """Yield the runs in `prompt` of all the values in their order, the last one first."""
    texts = [value.strip() for value in values]
    if len(values) < 2 or not all(texts):
        return
    exact = _chains(prompt, values) if list(values) != texts else ()  # with the white space around them
    yield from (run for run in (_as_run(prompt, spans) for spans in exact) if run is not None and _ends_alike(run))
    chains = _chains(prompt, texts)
    yield from filter(None, (_without_space(prompt, _with_own_space(prompt, spans, values)) for spans in chains))


def runs_among(prompt: str, values: Iterable[str], n_options: int) -> Iterator[Run]:
    """Yield the runs in `prompt` of `n_options` different values, in any order, the last one first."""
    texts = sorted({value.strip() for value in values} - {""}, key=len, reverse=True)
    ends: dict[int, int] = {}  # of the longest value at each place
    for text in texts:
        for start, end in _places(prompt, text):
            ends.setdefault(start, end)
    places = sorted(ends.items())
    for start in reversed([*range(len(places))][-MOST_STARTS:]):
        for spans in _following(prompt, places, start, n_options):
            run = _without_space(prompt, spans)
            if run is not None and len({*run.shown.options}) == n_options:
                yield run


def is_listed(prompt: str, values: Sequence[str]) -> bool:
    """Return whether all the values stand in `prompt` close to each other, in any order, as in a list."""
    texts = {value.strip() for value in values}
    if "" in texts:
        return False
    places = [(*span, text) for text in texts for span in _places(prompt, text, are_whole=len(text) < SHORT)]
    seen, last = set[str](), 0
    for start, end, text in sorted(places, key=lambda place: (place[0], -place[1])):
        if start < last:
            continue
        between = COMMAND.sub("\n", prompt[last:start])
        is_sentence = "\n" not in between and len(WORD.findall(between)) > 1
        if len(between) > NEAR or is_sentence:
            seen.clear()
        seen.add(text)
        last = end
        if seen == texts:
            return bool(texts)
    return False


def lists_in(row: object) -> Iterator[list[str]]:
    """Yield the lists of at least two texts or numbers in a data row that may be options: of a mapping its values, of
    a list of mappings each field, and lists that are written as text; those of labels (A, B, C) are left out."""
    for n_lists, values in enumerate(_all_lists(row)):
        if n_lists == MOST_LISTS:
            return
        if not is_alphabet(values):
            yield values


def _all_lists(value: object) -> Iterator[list[str]]:
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


def is_alphabet(values: Sequence[str]) -> bool:
    """Return whether the values are the first labels of a known alphabet."""
    labels = labels_among(values)
    return labels is not None and any(labels == sequence[: len(labels)] for sequence in SEQUENCES)


# ---------------------------------------------------------------------- places of values


def _chains(prompt: str, values: Sequence[str]) -> Iterator[list[Span]]:
    """The places of the values, one after the other, with markers of one shape; the last such places first."""
    for start in _places(prompt, values[0]):
        for second in _near(prompt, values[1], start[1]):
            if (spans := _rest_of_chain(prompt, values, [start, second])) is not None:
                yield spans


def _rest_of_chain(prompt: str, values: Sequence[str], spans: list[Span]) -> list[Span] | None:
    for value in values[2:]:
        first = prompt[spans[0][1] : spans[1][0]]
        last = spans[-1][1]
        alike = (span for span in _near(prompt, value, last) if _alike(first, prompt[last : span[0]]))
        span = next(alike, None)
        if span is None and len(spans) == len(values) - 1:  # "a, b or c"
            near = _near(prompt, value, last)
            span = next((one for one in near if CONJUNCTION.fullmatch(prompt[last : one[0]])), None)
        if span is None:
            return None
        spans = [*spans, span]
    return spans if any(_shapes(prompt, spans)) else None


def _following(prompt: str, places: Sequence[Span], start: int, n_options: int) -> Iterator[list[Span]]:
    """From the place with this number on, as many places of values with markers of one shape."""
    seconds = [place for place in places[start + 1 :] if 0 < place[0] - places[start][1] <= LONGEST_MARKER]
    for second in seconds[:MOST_SECOND]:
        spans = [places[start], second]
        marker = prompt[spans[0][1] : spans[1][0]]
        for place in places[start + 2 :]:
            if len(spans) == n_options or place[0] - spans[-1][1] > LONGEST_MARKER:
                break
            if place[0] > spans[-1][1] and _alike(marker, prompt[spans[-1][1] : place[0]]):
                spans.append(place)
        if len(spans) == n_options and any(_shapes(prompt, spans)):
            yield spans


def _places(prompt: str, value: str, *, are_whole: bool = True) -> list[Span]:
    """Where `value` stands in `prompt`, as whole words unless told otherwise, the last place first."""
    found: list[Span] = []
    start = prompt.rfind(value)
    while start >= 0 and len(found) < MOST_STARTS:
        if not are_whole or _is_whole(prompt, start, start + len(value)):
            found.append((start, start + len(value)))
        start = prompt.rfind(value, 0, start + len(value) - 1) if start else -1
    return found or _places_of_words(prompt, value)


def _places_of_words(prompt: str, value: str) -> list[Span]:
    """The same for a value of which the prompt changes the white space."""
    words = value.split()
    if len(words) < 2 or not all(word in prompt for word in words):
        return []
    return [found.span() for found in re.finditer(r"\s+".join(map(re.escape, words)), prompt)][::-1][:MOST_STARTS]


def has_words(text: str, words: str) -> bool:
    """Return whether `words` stand in `text` as whole words."""
    return bool(_places(text, words))


def _near(prompt: str, value: str, end: int) -> Iterator[Span]:
    """Where `value` stands within the length of a marker after `end`."""
    limit = end + LONGEST_MARKER + len(value)
    start, n_found = prompt.find(value, end + 1, limit), 0
    while start >= 0 and n_found < MOST_SECOND:
        if _is_whole(prompt, start, start + len(value)):
            n_found += 1
            yield start, start + len(value)
        start = prompt.find(value, start + 1, limit)
    words = value.split()
    if not n_found and len(words) > 1:
        pattern = re.compile(r"\s+".join(map(re.escape, words)))
        if (found := pattern.search(prompt, end + 1, limit + len(value))) and found.start() <= end + LONGEST_MARKER:
            yield found.span()


def _is_whole(prompt: str, start: int, end: int) -> bool:
    """Whether no word or number goes on before or after this place."""
    is_escape = prompt.endswith(ESCAPES, 0, start)  # as some templates have it instead of a new line
    return not (
        (start and not is_escape and _is_inside(prompt[start - 1], prompt[start]))
        or (end < len(prompt) and _is_inside(prompt[end - 1], prompt[end]))
    )


def _is_inside(left: str, right: str) -> bool:
    if left.isdecimal() and right.isdecimal():
        return True
    is_new_word = left.islower() and right.isupper()  # "OptionYes"
    return left.isalpha() and right.isalpha() and max(left, right) < WITHOUT_SPACES and not is_new_word


# ---------------------------------------------------------------------- markers


def _shapes(prompt: str, spans: Sequence[Span]) -> Iterator[Marked]:
    """The shapes that the markers between the places may have in common, unless another option stands after them."""
    markers = [prompt[end:start] for (_, end), (start, _) in pairwise(spans)]
    after = prompt[spans[-1][1] :]
    for shape in _shapes_of(markers):
        if not shape.labels:
            is_whole = _is_separator(markers[-1]) or bool(END_OF_SENTENCE.match(after))
        else:
            is_whole = not ("\n" in shape.before_label and REST_OF_LINE.match(after)) and not _goes_on(after, shape)
        if is_whole:
            yield shape


def _goes_on(after: str, shape: Marked) -> bool:
    """Whether the text after the last option begins with the marker of another one."""
    if not after.startswith(shape.before_label):
        return False
    rest = after[len(shape.before_label) :]
    end = rest.find(shape.after_label) if shape.after_label else 1
    return 0 < end <= LONGEST_LABEL and _follows(shape.labels[-1], rest[:end])


def _shapes_of(markers: Sequence[str]) -> Iterator[Marked]:
    bare = {marker.lstrip(CLOSING) for marker in markers}  # a template may have a comma after one option only
    if all(map(_is_separator, markers)):
        if len(bare) == 1 and min(bare):
            yield Marked(min(bare), "", ())
    elif len(markers) == 1:
        yield from _shapes_of_one(markers[0])
    elif all(marker == markers[0] and _is_separator(marker) for marker in markers[:-1]):
        if CONJUNCTION.fullmatch(markers[-1]) and "\n" not in markers[0]:
            yield Marked(markers[0], "", ())
    elif (shape := _labelled(markers)) is not None:
        yield shape


def _labelled(markers: Sequence[str]) -> Marked | None:
    """The shape of markers that have different labels in the same text."""
    before = _without_part_of_word(commonprefix(markers))  # noqa: RUF071 (of texts, not of paths)
    after = _without_part_of_word(shared_beginning([marker[len(before) :][::-1] for marker in markers]))[::-1]
    labels = tuple(marker[len(before) : len(marker) - len(after)] for marker in markers)
    return Marked(before, after, labels) if _are_labels(labels) else None


def _shapes_of_one(marker: str) -> Iterator[Marked]:
    """Of the marker of the second of two options, any word of which may be its label."""
    for word in re.finditer(r"[^\W_]+", marker):
        if _are_labels([word[0]]):
            yield Marked(marker[: word.start()], marker[word.end() :], (word[0],))
    if CONJUNCTION.fullmatch(marker):
        yield Marked(marker, "", ())


def _is_separator(marker: str) -> bool:
    bare = COMMAND.sub("<>", marker)
    is_short = 0 < len(bare) <= LONGEST_SEPARATOR and not any(map(str.isalnum, bare))
    return is_short and (bool(marker.strip()) or "\n" in marker or "\t" in marker)


def _alike(one: str, other: str) -> bool:
    """Whether two markers are the same but for their labels."""
    return one == other or any(_shapes_of([one, other]))


def _without_part_of_word(text: str) -> str:
    """The text without the letters and digits at its end."""
    end = len(text)
    while end and text[end - 1].isalnum():
        end -= 1
    return text[:end]


def _are_labels(labels: Sequence[str]) -> bool:
    """Whether some texts may be different labels of one list."""
    if not all(labels) or len(set(labels)) < len(labels) or any(map(str.isspace, "".join(labels))):
        return False
    if max(map(len, labels)) <= LONGEST_BARE_LABEL:
        return True
    words = {label.removesuffix(_end_of_label(label)) for label in labels}  # "Option" of "Option12"
    return max(map(len, labels)) <= LONGEST_LABEL and len(words) == 1 and min(words).isalpha()


# ---------------------------------------------------------------------- the run


def _ends_alike(run: Run) -> bool:
    """Whether the same blanks follow the last option as the others, so that it has not taken them."""
    marker = run.shown.frame.markers[1]
    return run.shown.frame.after.startswith(marker[: len(marker) - len(marker.lstrip(" \t"))])


def _without_space(prompt: str, spans: Sequence[Span]) -> Run | None:
    """The options at these places, which include no white space, so that the marker of the first may have less of it
    than others."""
    return _as_run(prompt, spans) or _as_run(prompt, spans, has_space=False)


def _as_run(prompt: str, spans: Sequence[Span], *, has_space: bool = True) -> Run | None:
    """The options at these places.

    has_space: whether the marker of the first option has the same white space after its label as the others
    """
    markers = [prompt[end:start] for (_, end), (start, _) in pairwise(spans)]
    before = prompt[: spans[0][0]]
    for shape in _shapes(prompt, spans):
        first = _first_marker(before, shape if has_space else shape.without_space())
        if first is None or (shape.labels and not _is_first(first[1], shape.labels)):
            continue
        marker, label = first
        frame = Frame(before[: len(before) - len(marker)], (marker, *markers), prompt[spans[-1][1] :])
        options = tuple(prompt[start:end] for start, end in spans)
        return Run(ShownOptions(frame, options), (label, *shape.labels) if shape.labels else ())
    return None


def _with_own_space(prompt: str, spans: Sequence[Span], values: Sequence[str]) -> Sequence[Span]:
    """The places with the white space before an option that its value has and not all options have."""
    if _is_separator(prompt[spans[0][1] : spans[1][0]]):  # the first option has no marker to compare with
        return spans
    leads = [_space_before(prompt, start) for start, _ in spans]
    shared = min(map(len, leads))
    widened = []
    for (start, end), lead, value in zip(spans, leads, values, strict=True):
        own = len(value) - len(value.lstrip())
        extra = lead[: len(lead) - shared] if shared else lead
        widened.append((start - len(extra) if extra and value[:own].endswith(extra) else start, end))
    return widened


def _space_before(prompt: str, start: int) -> str:
    """The blanks before a place on its line."""
    end = start
    while start and prompt[start - 1] in " \t\u00a0\u3000":
        start -= 1
    return prompt[start:end]


def _first_marker(before: str, shape: Marked) -> tuple[str, str] | None:
    """The marker of the first option, with its label, at the end of the text before it: as much of the common shape
    as stands there."""
    if not shape.labels:
        shared = shared_beginning([before[::-1], shape.before_label[::-1]])[::-1]
        return (shared.removeprefix(">") if "<" in shared else shared), ""
    if not before.endswith(shape.after_label):
        return None
    ahead = before[: len(before) - len(shape.after_label)]
    for length in range(len(shape.before_label), -1, -1):
        opening = shape.before_label[len(shape.before_label) - length :]
        place = ahead.rfind(opening) if opening else _start_of_word(ahead)
        label = ahead[place + length :]
        if place >= 0 and _are_labels([label, *shape.labels]):
            return before[place:], label
    return None


def _start_of_word(text: str) -> int:
    start = len(text)
    while start and not text[start - 1].isspace() and len(text) - start < LONGEST_LABEL:
        start -= 1
    return start


def _follows(label: str, later: str) -> bool:
    """Whether a label is the next one after another in an alphabet, in counting or in Roman numbers."""
    one, two = bare_label(label), bare_label(later)
    if len(one) == len(two) == 1 and ord(two) == ord(one) + 1:
        return True
    return any([one, two] in map(list, pairwise(sequence)) for sequence in SEQUENCES if one in sequence)


def bare_label(label: str) -> str:
    """Return a label without its word, and a number in digits of any script as one of 0 to 9: `Option2` as `2`."""
    bare = _end_of_label(label)
    return str(int(bare)) if bare.isdecimal() else bare


def _end_of_label(label: str) -> str:
    """Its longest end that is a known label or a number, else its last letter; the label if it has signs."""
    if not label.isalnum():
        return label
    ends = (label[start:] for start in range(len(label)))
    return next((end for end in ends if end in KNOWN_LABELS or end.isdecimal()), label[-1])


def _is_first(label: str, others: Sequence[str]) -> bool:
    """Whether no label of the same alphabet comes before the first."""
    if not _follows(label, others[0]):
        return len(others) > 1  # of an alphabet that is not known
    bare = bare_label(label)
    holding = [sequence for sequence in SEQUENCES if bare in sequence]
    return not holding or any(bare == sequence[0] for sequence in holding)
