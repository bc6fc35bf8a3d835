"""The words of a task that are the same before and after every question, such as an instruction or "Question:".

They are part of the prompt and not of the question, so that guards and families are made from stems without them.
A text that varies between the rows of the data belongs to the question, even if all questions of a file begin alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from lm_eval_leakage.questions.fields import Doc
from lm_eval_leakage.questions.prompt_parser import named_texts, shared_beginning

_ENOUGH = 20  # stems; the same words around so many are the task's, even if no field of the rows is in the stems
SHORTEST = 4  # characters of a field that is looked for in a stem
PUNCTUATION = "?？!！.。…:："


class ConstantWords(NamedTuple):
    """The words that all stems of a task share: each begins with `before` and ends with `after`."""

    before: str = ""
    after: str = ""

    def removed_from(self, stem: str) -> str:
        """Return the stem without these words; the stem itself if it does not have both, or nothing else."""
        if not (stem.startswith(self.before) and stem.endswith(self.after)):
            return stem
        rest = stem[len(self.before) : len(stem) - len(self.after)]
        return rest if rest.strip() and len(self.before) + len(self.after) <= len(stem) else stem


def constant_words(rows: Sequence[tuple[Doc, str]]) -> ConstantWords:
    """Return the words that all stems of a task share at both ends.

    rows: data rows with the stems that were read from them
    """
    stems = [stem for _, stem in rows]
    if len(set(stems)) < 2:
        return ConstantWords()
    names = _varying([doc for doc, _ in rows])
    spans = [_span_of_fields(stem, doc, names) for doc, stem in rows]
    if None in spans and len(set(stems)) < _ENOUGH:
        return ConstantWords()
    starts = [len(stem) if span is None else span[0] for stem, span in zip(stems, spans, strict=True)]
    ends = [0 if span is None else span[1] for span in spans]
    shared = len(shared_beginning(stems))
    start = min(shared, *starts)
    before = stems[0][:start]
    if start < min(starts):
        before = _up_to_word(before)
    rests = [stem[max(len(before), end) :] for stem, end in zip(stems, ends, strict=True)]
    after = shared_beginning([rest[::-1] for rest in rests])[::-1]
    if len(after) < max(map(len, rests)):
        after = _up_to_word(after[::-1])[::-1]
    return ConstantWords(before, after.lstrip(PUNCTUATION) if after.strip(PUNCTUATION).strip() else "")


def _up_to_word(text: str) -> str:
    """Return the text without the part of a word at its end."""
    end = len(text)
    while end and not (text[end - 1].isspace() or text[end - 1] in PUNCTUATION):
        end -= 1
    return text[:end]


def _varying(docs: Sequence[Doc]) -> set[str]:
    """Return the names of the fields, also of nested ones, whose texts differ between rows."""
    values: dict[str, set[str]] = defaultdict(set)
    for doc in docs:
        for name, text in named_texts(doc):
            values[name].add(text)
    return {name for name, texts in values.items() if len(texts) > 1}


def _span_of_fields(stem: str, doc: Doc, names: Collection[str]) -> tuple[int, int] | None:
    """Return where the texts of these fields begin and end in the stem; None if it holds none of them."""
    spans = []
    for name, whole in named_texts(doc):
        text = whole.strip()
        if name not in names or len(text) < SHORTEST:
            continue
        start = stem.find(text)
        if start >= 0:
            spans.append((start, stem.rfind(text) + len(text)))
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None
