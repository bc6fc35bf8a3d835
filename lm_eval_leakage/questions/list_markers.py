"""Recognises the markers of listed options, the text before each option of a list: "- A. ", "③ " or ", ".

All markers of one list have the same shape: the same text around a label that is different in each, or no label. The
marker of the first option may be shorter, since no separator stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import NamedTuple

from lm_eval_leakage.questions.prompt_parser import LABEL_SEQUENCES, LONGEST_LABEL, labels_among, shared_beginning

LONGEST_UNKNOWN_LABEL = 4  # characters of a label in no known alphabet
LONGEST_SEPARATOR = 8  # characters between two options without labels
SEQUENCES = [[*sequence] for sequence in LABEL_SEQUENCES]
KNOWN_LABELS = {label for sequence in SEQUENCES for label in sequence}
CLOSING = ",;."
COMMAND = re.compile(r"</?(?:br|div|li|ol|option|p|span|td|tr|ul)>|\\item\b")  # of HTML or LaTeX
CONJUNCTION = re.compile(r"[ ,，、]+[^\W\d_]{1,4} ")  # before the last of some options in a sentence
REST_OF_LINE = re.compile(r"[^\S\n]+\w")
END_OF_SENTENCE = re.compile(r"[?？.。:：]?\s*(?:\n|\Z)")


class MarkerShape(NamedTuple):
    """The shape that the markers of a list have in common, from the second marker on.

    before_label: the text before the labels; the whole marker if there are none
    after_label: the text after the labels
    labels: the labels of the second option and those after it; empty for markers that are the same, or that differ
        only before the last option of a sentence
    """

    before_label: str
    after_label: str = ""
    labels: tuple[str, ...] = ()

    def without_space(self) -> MarkerShape:
        """Return the shape without the white space after its labels, as "A:" beside " B: " has it."""
        return self._replace(after_label=self.after_label.rstrip())


def shapes_of(markers: Sequence[str], after: str = "") -> Iterator[MarkerShape]:
    """Yield the shapes that markers may have in common, the likeliest first.

    markers: of the second option and those after it
    after: the text after the last option; a shape is left out if another option of the list begins there
    """
    for shape in _possible_shapes(markers):
        if not shape.labels:
            is_whole = is_separator(markers[-1]) or bool(END_OF_SENTENCE.match(after))
        else:
            is_whole = not ("\n" in shape.before_label and REST_OF_LINE.match(after)) and not _goes_on(after, shape)
        if is_whole:
            yield shape


def are_alike(marker: str, other: str) -> bool:
    """Return whether two markers are the same but for their labels."""
    return marker == other or any(_possible_shapes([marker, other]))


def is_separator(marker: str) -> bool:
    """Return whether a marker has no label and is no part of a sentence: a comma, a new line, an HTML tag."""
    bare = COMMAND.sub("<>", marker)
    is_short = 0 < len(bare) <= LONGEST_SEPARATOR and not any(map(str.isalnum, bare))
    return is_short and (bool(marker.strip()) or "\n" in marker or "\t" in marker)


def first_marker(before: str, shape: MarkerShape) -> tuple[str, str] | None:
    """Return the marker of the first option and its label, which is empty for a shape without labels; None if there is
    no such marker.

    before: the text before the first option, which ends with as much of the shape as stands there
    """
    if not shape.labels:
        shared = shared_beginning([before[::-1], shape.before_label[::-1]])[::-1]
        return (shared.removeprefix(">") if "<" in shared else shared), ""
    if not before.endswith(shape.after_label):
        return None
    ahead = before[: len(before) - len(shape.after_label)]
    for length in range(len(shape.before_label), -1, -1):
        opening = shape.before_label[len(shape.before_label) - length :]
        start = ahead.rfind(opening) if opening else _start_of_word(ahead)
        label = ahead[start + length :]
        if start >= 0 and _are_labels([label, *shape.labels]):
            return (before[start:], label) if _is_first(label, shape.labels) else None
    return None


def bare_label(label: str) -> str:
    """Return a label without its word, and a number in digits of any script as one of 0 to 9: `Option2` as `2`."""
    end = _end_of_label(label)
    return str(int(end)) if end.isdecimal() else end


def is_alphabet(texts: Sequence[str]) -> bool:
    """Return whether the texts are the first labels of a known alphabet."""
    labels = labels_among(texts)
    return labels is not None and any(labels == sequence[: len(labels)] for sequence in SEQUENCES)


# ---------------------------------------------------------------------- shapes


def _possible_shapes(markers: Sequence[str]) -> Iterator[MarkerShape]:
    """Yield the shapes that all of the markers have, the likeliest first."""
    without_signs = {marker.lstrip(CLOSING) for marker in markers}  # a template may have a comma after one option only
    if all(map(is_separator, markers)):
        if len(without_signs) == 1 and min(without_signs):
            yield MarkerShape(min(without_signs))
    elif len(markers) == 1:
        yield from _shapes_of_one(markers[0])
    elif all(marker == markers[0] and is_separator(marker) for marker in markers[:-1]):
        if CONJUNCTION.fullmatch(markers[-1]) and "\n" not in markers[0]:
            yield MarkerShape(markers[0])
    elif (shape := _labelled(markers)) is not None:
        yield shape


def _shapes_of_one(marker: str) -> Iterator[MarkerShape]:
    """Yield the shapes of the marker of the second of two options, any word of which may be its label."""
    for word in re.finditer(r"[^\W_]+", marker):
        if _are_labels([word[0]]):
            yield MarkerShape(marker[: word.start()], marker[word.end() :], (word[0],))
    if CONJUNCTION.fullmatch(marker):
        yield MarkerShape(marker)


def _labelled(markers: Sequence[str]) -> MarkerShape | None:
    """Return the shape of markers that have different labels in the same text; None for others."""
    before = _without_part_of_word(commonprefix(markers))  # noqa: RUF071 (of texts, not of paths)
    after = _without_part_of_word(shared_beginning([marker[len(before) :][::-1] for marker in markers]))[::-1]
    labels = tuple(marker[len(before) : len(marker) - len(after)] for marker in markers)
    return MarkerShape(before, after, labels) if _are_labels(labels) else None


def _without_part_of_word(text: str) -> str:
    """Return the text without the letters and digits at its end."""
    end = len(text)
    while end and text[end - 1].isalnum():
        end -= 1
    return text[:end]


def _start_of_word(text: str) -> int:
    """Return where the last word of the text begins, which may be a label."""
    start = len(text)
    while start and not text[start - 1].isspace() and len(text) - start < LONGEST_LABEL:
        start -= 1
    return start


def _goes_on(after: str, shape: MarkerShape) -> bool:
    """Return whether the text after the last option begins with the marker of another one."""
    if not after.startswith(shape.before_label):
        return False
    rest = after[len(shape.before_label) :]
    end = rest.find(shape.after_label) if shape.after_label else 1
    return 0 < end <= LONGEST_LABEL and _follows(shape.labels[-1], rest[:end])


# ---------------------------------------------------------------------- labels


def _are_labels(labels: Sequence[str]) -> bool:
    """Return whether texts may be different labels of one list."""
    if not all(labels) or len(set(labels)) < len(labels) or any(map(str.isspace, "".join(labels))):
        return False
    longest = max(map(len, labels))
    words = {label.removesuffix(_end_of_label(label)) for label in labels}  # "Option" of "Option12"
    has_word = len(words) == 1 and min(words).isalpha()
    return longest <= LONGEST_UNKNOWN_LABEL or (longest <= LONGEST_LABEL and has_word)


def _end_of_label(label: str) -> str:
    """Return the longest end of a label that is a label of an alphabet or a number, or else its last letter; the label
    itself if it has signs."""
    if not label.isalnum():
        return label
    ends = (label[start:] for start in range(len(label)))
    return next((end for end in ends if end in KNOWN_LABELS or end.isdecimal()), label[-1])


def _follows(label: str, later: str) -> bool:
    """Return whether a label is the next one after another in an alphabet, in counting or in Roman numbers."""
    pair = [bare_label(label), bare_label(later)]
    if all(len(bare) == 1 for bare in pair) and ord(pair[1]) == ord(pair[0]) + 1:
        return True
    return any(pair in map(list, pairwise(sequence)) for sequence in SEQUENCES if pair[0] in sequence)


def _is_first(label: str, others: Sequence[str]) -> bool:
    """Return whether no label of the same alphabet comes before the first one of a list."""
    if not _follows(label, others[0]):
        return len(others) > 1  # of an alphabet that is not known
    bare = bare_label(label)
    sequences = [sequence for sequence in SEQUENCES if bare in sequence]
    return not sequences or any(bare == sequence[0] for sequence in sequences)
