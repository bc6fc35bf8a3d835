"""Reads the question that a task of lm_eval asks, from the prompt and the choices that the task renders.

The values of the data row decide: the prompt is searched for the texts of the options. Only where the row does not
hold them as values is the prompt parsed by its labels. Either way, rendering the question must reproduce the prompt
exactly. If the prompt shows no options (ARC, HellaSwag), the choices are the options, and the bare question ends with
the last field of the row that is in the prompt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from lm_eval_leakage.questions.fields import (
    Doc,
    content_id,
    question_if_any,
    refuse_beyond_limits,
    subject_of,
    well_formed,
)
from lm_eval_leakage.questions.list_markers import LONGEST_UNKNOWN_LABEL, bare_label, is_alphabet
from lm_eval_leakage.questions.prompt_parser import (
    LONGEST_LABEL,
    ShownOptions,
    labels_among,
    named_texts,
    options_after_labels,
    texts_in,
    without_labels,
)
from lm_eval_leakage.questions.shown_values import (
    Listing,
    has_words,
    is_listed,
    listings_among,
    listings_of,
    lists_in,
)
from lm_eval_leakage.records import NoOptions, Question, UntestableQuestion
from lm_eval_leakage.texts import brief

IN_CONTEXTS = "each option is inside a context of its own; there is no list of options"
IN_ANOTHER_WAY = "the options ({}) stand in the prompt, but not as a list that can be put into another order"
NO_CHANCE = 12  # characters that two rows do not share by chance
MOST_LISTINGS = 8  # of one list of values in a prompt
DECORATION = r"(?:\s[^\w\s]{1,4}|\s*<[^<>\s]{1,10}>)?$"  # may belong to the next option's line: "x\n-", "x<b>"


def read_question(
    doc: Doc, prompt: object, choices: Sequence[object] | None, target: object = None, *, shuffled: bool = False
) -> Question:
    """Return the question that a task asks about `doc`, with its options in the published order.

    prompt: the task's `doc_to_text`; not a text if the options are inside several contexts
    choices: its `doc_to_choice`; None if the model generates its answer
    target: its `doc_to_target`
    shuffled: whether the task itself puts the options into a random order

    Raises UntestableQuestion, with the reason, if the prompt shows no options or others than the data row holds.
    """
    if not isinstance(prompt, str):
        raise NoOptions(IN_CONTEXTS)
    prompt, choices = well_formed(prompt), _texts_of(choices)
    in_row = question_if_any(doc)
    question = _shown_by_values(prompt, choices, doc, in_row) or _by_layout(prompt, choices, doc, in_row)
    refuse_beyond_limits(question.options)
    if question.frame is not None and any(listings_of(question.frame.before, question.options)):
        raise UntestableQuestion(
            f"the options ({brief(list(question.options))}) stand in the prompt twice, and another order would change "
            "only one of the lists"
        )
    answer = _answer(target, choices, question.options)
    question = replace(question, answer=answer, subject=subject_of(doc))
    return _as_published(question, in_row, shuffled=shuffled)


def _by_layout(prompt: str, choices: Sequence[str] | None, doc: Doc, in_row: Question | None) -> Question:
    """Return the question in a prompt that shows no list of the row's values."""
    fields = frozenset(texts_in(doc))
    labels = _labels_of(choices, doc)
    if labels and in_row is not None and in_row.options == tuple(choices or ()):
        # letters instead of options, or options that look like letters
        in_row = None if options_after_labels(prompt, labels, fields) else in_row
        labels = None if in_row else labels
    if choices is None or labels:
        shown: ShownOptions | None = _shown_by_labels(prompt, labels, fields, in_row)
    else:
        shown = _shown_as_texts(prompt, choices, fields)
    if shown is None:
        assert choices is not None  # labels without options have raised
        return _not_shown(prompt, without_labels(choices), fields, in_row)
    if (text := shown.frame.text(shown.options)) != prompt:
        raise UntestableQuestion(
            f"the question is rendered as {brief(text)}, the task's prompt is {brief(prompt)}; they must be the same"
        )
    _refuse_uneven(shown, fields)
    return _as_shown(shown)


def _as_shown(shown: ShownOptions) -> Question:
    """Return the question with the options that its prompt shows; its id and answer are added later."""
    return Question("", shown.frame.before, shown.options, frame=shown.frame)


def _texts_of(choices: Sequence[object] | None) -> list[str] | None:
    """Return the choices as texts. Raise UntestableQuestion if they are no list, too many or too few."""
    if choices is None:
        return None
    if isinstance(choices, (str, bytes, Mapping)) or not hasattr(choices, "__getitem__"):  # an array may be one
        raise UntestableQuestion(f"the task's choices are {brief(choices)}; they must be a list")
    if len(choices) < 2:
        raise NoOptions(f"the task offers {len(choices)} choice(s); at least 2 are needed")
    refuse_beyond_limits(choices)
    return [well_formed(str(choice)) for choice in choices]


# ---------------------------------------------------------------------- options by their values


def _shown_by_values(prompt: str, choices: Sequence[str] | None, doc: Doc, in_row: Question | None) -> Question | None:
    """Return the question whose options are values of the row that the prompt lists; None if there are none."""
    labels = _labels_of(choices, doc)
    for values in _values_of_options(choices, labels, doc, in_row):
        unlabelled = None
        for listing in islice(listings_of(prompt, values), MOST_LISTINGS):
            if choices is None or _belongs(listing, choices, labels):
                if listing.labels:
                    return _as_shown(listing.shown)
                unlabelled = unlabelled or listing
        if unlabelled is not None:
            return _as_shown(unlabelled.shown)
    if choices is not None and (labels or max(len(choice.strip()) for choice in choices) <= LONGEST_UNKNOWN_LABEL):
        listings = listings_among(prompt, texts_in(doc), len(choices))
        return next(
            (_as_shown(listing.shown) for listing in listings if _has_labels(listing, labels or choices)), None
        )
    return None


def _labels_of(choices: Sequence[str] | None, doc: Doc) -> Sequence[str] | None:
    """Return the labels that the choices are; None if they are texts, such as options of one character."""
    labels = None if choices is None else labels_among(choices)
    if labels and choices and not is_alphabet(choices) and {*choices} <= {*texts_in(doc)}:
        return None
    return labels


def _values_of_options(
    choices: Sequence[str] | None, labels: Sequence[str] | None, doc: Doc, in_row: Question | None
) -> Iterator[Sequence[str]]:
    """Yield lists of values that may be the options, the most likely one first."""
    if choices is not None and labels is None:
        yield without_labels(choices)
        if max(map(len, choices)) > LONGEST_LABEL:
            return
    if in_row is not None and not is_alphabet(in_row.options):
        yield in_row.options
    if choices is None:  # a list of unknown meaning is not what a generated answer is chosen from
        return
    lists = [*lists_in(doc)]
    yield from (values for values in lists if values != choices)
    if choices in lists:  # options of one character
        yield choices


def _belongs(listing: Listing, choices: Sequence[str], labels: Sequence[str] | None) -> bool:
    """Return whether a listing shows the options of a task: its choices, or at most as many options as it has labels,
    or options after labels that are the choices."""
    options = listing.shown.options
    if labels is not None:
        wanted, shown = [*map(bare_label, labels)], [*map(bare_label, listing.labels)]
        if {*wanted}.isdisjoint(shown):  # no labels, or others than the task's
            return len(options) == len(labels)
        return shown == wanted[: len(shown)]
    return _words_of(options) == _words_of(without_labels(choices)) or _has_labels(listing, choices)


def _has_labels(listing: Listing, labels: Sequence[str]) -> bool:
    """Return whether the labels of a listing are these, whatever their case."""
    shown = [bare_label(label.strip()).lower() for label in listing.labels]
    return shown == [bare_label(label.strip()).lower() for label in labels]


def _refuse_uneven(shown: ShownOptions, fields: Collection[str]) -> None:
    """Raise UntestableQuestion if another order of the options would look different from the published one: with
    other white space before an option, or with signs of the list at the end of another."""
    spaces = {marker[len(marker.rstrip()) :] for marker in shown.frame.markers}
    ends = [re.search(DECORATION, option) for option in shown.options]
    signs = {match[0] if match else "" for match in ends[:-1]}
    is_sign = len(signs) == 1 and any(signs) and not shown.options[-1].endswith(min(signs))
    if len(spaces) > 1 or is_sign or _hold_fields(shown.options, fields):
        raise UntestableQuestion(
            f"the options {brief(list(shown.options))} cannot be cut out of the prompt so that all orders look alike; "
            "give them as a list in the data row"
        )


def _hold_fields(options: Sequence[str], fields: Collection[str]) -> bool:
    """Return whether each option holds a different field of the row, and some hold more than that field."""
    held: list[str] = []
    for option in options:
        candidates = [field for field in fields if field.strip() and field not in held and has_words(option, field)]
        if not candidates:
            return False
        held.append(max(candidates, key=len))
    return any(option != field for option, field in zip(options, held, strict=True))


# ---------------------------------------------------------------------- options after labels


def _shown_by_labels(
    prompt: str, labels: Sequence[str] | None, fields: Collection[str], in_row: Question | None
) -> ShownOptions:
    """Return the options after labels; raise UntestableQuestion if there are none, or others than in the row."""
    shown = options_after_labels(prompt, labels, fields) or options_after_labels(prompt, None, fields)
    if labels is None and in_row is None:
        raise NoOptions(
            "the task gives the model no options to choose from, and no field of the data row holds options"
        )
    if shown is None and in_row is not None and is_listed(prompt, in_row.options):
        raise UntestableQuestion(IN_ANOTHER_WAY.format(brief(list(in_row.options))))
    if shown is None:
        labelled = f" for its choices {', '.join(labels)}" if labels else ""
        raise UntestableQuestion(f"the prompt shows no options{labelled}")
    if in_row is not None and _words_of(in_row.options) != _words_of(shown.options):
        raise UntestableQuestion(
            f"the prompt shows the options {brief(list(shown.options))}, the data row holds "
            f"{brief(list(in_row.options))}; they must be the same"
        )
    return shown


def _shown_as_texts(prompt: str, choices: Sequence[str], fields: Collection[str]) -> ShownOptions | None:
    """Return the options after labels if these options are the choices; None if not."""
    options = without_labels(choices)
    labelled = options_after_labels(prompt, None, {*fields, *options})
    is_same = labelled and _words_of(labelled.options, ordered=True) == _words_of(options, ordered=True)
    return labelled if is_same else None


# ---------------------------------------------------------------------- options outside the prompt


def _not_shown(prompt: str, options: Sequence[str], fields: Collection[str], in_row: Question | None) -> Question:
    """Return the question of a prompt that shows no options; raise UntestableQuestion if it does show them."""
    if is_listed(prompt, options):
        raise UntestableQuestion(IN_ANOTHER_WAY.format(brief(list(options))))
    if in_row is not None and _words_of(in_row.options) == _words_of(options):
        return Question("", in_row.stem, tuple(options), prompt=prompt)
    stem = _without_ending(prompt, fields)
    if not stem.strip():
        raise NoOptions("the task asks no question: its choices are whole texts with nothing before them")
    for place, option in enumerate(options):
        if not option.strip():
            raise UntestableQuestion(f"choice {place} is empty; it must have text")
    return Question("", stem, tuple(options), prompt=prompt)


def _without_ending(prompt: str, fields: Collection[str]) -> str:
    """Return a prompt without the fixed line that requests the answer, after the last field of the data row."""
    places = ((prompt.rfind(field), len(field)) for field in fields if len(field.strip()) > 3)
    end = max((place + length for place, length in places if place >= 0), default=0)
    return prompt[:end] if end and prompt.startswith("\n", end) else prompt


# ---------------------------------------------------------------------- answer and order


def _answer(target: object, choices: Sequence[str] | None, options: Sequence[str]) -> int | None:
    """Return the index of the correct option; None if there is none or more than one.

    target: its index, label or text, or a list of one of these
    """
    if isinstance(target, (list, tuple)) and len(target) == 1:
        target = target[0]
    if isinstance(target, str) and target.strip().isdecimal() and choices is not None and target not in choices:
        target = int(target) if len(target.strip()) < 4 else None
    if isinstance(target, int) and not isinstance(target, bool):
        return target if 0 <= target < len(options) else None
    if not isinstance(target, str):
        return None
    for named in (choices or [], options):
        texts = [text.strip() for text in named]
        if texts.count(target.strip()) == 1:
            place = texts.index(target.strip())
            return place if place < len(options) else None
    return None


def _as_published(question: Question, in_row: Question | None, *, shuffled: bool) -> Question:
    """Return the question with its options in the order of the data row, if the task shows them in another.

    Raises NoOptions if a task that shuffles its options has no published order.
    """
    if in_row is None or _words_of(in_row.options) != _words_of(question.options):
        if shuffled:
            raise NoOptions(
                "the task orders or draws its options with random numbers, and no field of the data row holds their "
                "published order"
            )
        return replace(question, id=content_id(question.stem, question.options))
    left = {place: option.split() for place, option in enumerate(question.options)}
    order = []
    for option in map(str.split, in_row.options):
        place = next(place for place, words in left.items() if words == option)
        del left[place]
        order.append(place)
    return replace(
        question,
        id=in_row.id,
        options=tuple(question.options[place] for place in order),
        answer=in_row.answer if question.answer is None else order.index(question.answer),
    )


def fields_in_order(question: Question, rows: Sequence[Doc]) -> list[set[str]]:
    """Return the names of the fields that hold each option, in the order of the options.

    They are taken from the first row that has the question and all options. Nothing is returned if a list of that row
    has the options in this order, or if two options are the same.

    rows: rows of the data, before a task processed them
    """
    words, stem = [" ".join(option.split()) for option in question.options], " ".join(question.stem.split())
    if len(set(words)) < len(words):
        return []
    for row in rows:
        names: dict[str, set[str]] = {}
        for name, text in named_texts(row):
            names.setdefault(" ".join(text.split()), set()).add(name)
        is_of_question = any(stem in text or (len(text) >= NO_CHANCE and text in stem) for text in names)
        if is_of_question and all(text in names for text in words):
            listed = any([" ".join(value.split()) for value in values] == words for values in lists_in(row))
            return [] if listed else [names[text] for text in words]
    return []


def _words_of(options: Sequence[str], *, ordered: bool = False) -> object:
    """Return the words of options, for comparison without regard to white space (and, unless `ordered`, to order)."""
    texts = [" ".join(option.split()) for option in options]
    return texts if ordered else Counter(texts)
