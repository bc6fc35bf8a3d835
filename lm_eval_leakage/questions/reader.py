"""Reads the question that a task of lm_eval asks, from the prompt and the choices that the task renders.

If the prompt shows the options, rendering the parsed question must reproduce that prompt exactly. If it does not
(ARC, HellaSwag), the choices are the options, and known fields separate the bare question from its prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lm_eval_leakage.questions.fields import (
    Doc,
    content_id,
    question_if_any,
    refuse_beyond_limits,
    subject_of,
    well_formed,
)
from lm_eval_leakage.questions.prompt_parser import (
    ShownOptions,
    labels_among,
    options_after_labels,
    options_in_text,
    texts_in,
    without_labels,
)
from lm_eval_leakage.records import NoOptions, Question, UntestableQuestion
from lm_eval_leakage.texts import brief


def read_question(
    doc: Doc, prompt: object, choices: Sequence[object] | None, target: object = None, *, shuffled: bool = False
) -> Question:
    """The question that a task asks about `doc`, with its options in the published order.

    prompt: the task's `doc_to_text`; not a text if the options are inside several contexts
    choices: its `doc_to_choice`; None if the model generates its answer
    target: its `doc_to_target`
    shuffled: whether the task itself puts the options into a random order

    Raises UntestableQuestion, with the reason, if the prompt shows no options or others than the data row holds.
    """
    if not isinstance(prompt, str):
        raise NoOptions("each option is inside a context of its own; there is no list of options")
    prompt, choices = well_formed(prompt), _texts_of(choices)
    fields = frozenset(texts_in(doc))
    known = question_if_any(doc)
    labels = None if choices is None else labels_among(choices)
    if labels and known is not None and known.options == tuple(choices or ()):
        # letters instead of options, or options that look like letters
        known = None if options_after_labels(prompt, labels, fields) else known
        labels = None if known else labels
    if choices is None or labels:
        shown: ShownOptions | None = _shown_by_labels(prompt, labels, fields, known)
    else:
        shown = _shown_as_texts(prompt, choices, fields)
    if shown is None:
        assert choices is not None  # labels without options have raised
        question = _not_shown(prompt, without_labels(choices), fields, known)
    else:
        if (text := shown.frame.text(shown.options)) != prompt:
            raise UntestableQuestion(
                f"the question is rendered as {brief(text)}, the task's prompt is {brief(prompt)}; they must be the "
                "same"
            )
        question = Question("", shown.frame.before, shown.options, frame=shown.frame)
    refuse_beyond_limits(question.options)
    answer = _answer(target, choices, question.options)
    question = replace(question, answer=answer, subject=subject_of(doc))
    return _as_published(question, known, shuffled=shuffled)


def _texts_of(choices: Sequence[object] | None) -> list[str] | None:
    """The choices as texts. Raises UntestableQuestion if they are no list, too many or too few."""
    if choices is None:
        return None
    if isinstance(choices, (str, bytes, Mapping)) or not hasattr(choices, "__getitem__"):  # an array may be one
        raise UntestableQuestion(f"the task's choices are {brief(choices)}; they must be a list")
    if len(choices) < 2:
        raise NoOptions(f"the task offers {len(choices)} choice(s); at least 2 are needed")
    refuse_beyond_limits(choices)
    return [well_formed(str(choice)) for choice in choices]


# ---------------------------------------------------------------------- options in the prompt


def _shown_by_labels(
    prompt: str, labels: Sequence[str] | None, fields: Collection[str], known: Question | None
) -> ShownOptions:
    shown = options_after_labels(prompt, labels, fields) or options_after_labels(prompt, None, fields)
    if labels is None and known is None:
        raise NoOptions(
            "the task gives the model no options to choose from, and no field of the data row holds options"
        )
    if shown is None and known is not None:
        shown = options_in_text(prompt, known.options)
    if shown is None:
        labelled = f" for its choices {', '.join(labels)}" if labels else ""
        raise UntestableQuestion(f"the prompt shows no options{labelled}")
    if known is not None and _words_of(known.options) != _words_of(shown.options):
        raise UntestableQuestion(
            f"the prompt shows the options {brief(list(shown.options))}, the data row holds "
            f"{brief(list(known.options))}; they must be the same"
        )
    return shown


def _shown_as_texts(prompt: str, choices: Sequence[str], fields: Collection[str]) -> ShownOptions | None:
    options = without_labels(choices)
    labelled = options_after_labels(prompt, None, {*fields, *options})
    if labelled and _words_of(labelled.options, ordered=True) == _words_of(options, ordered=True):
        return labelled
    return options_in_text(prompt, options)


# ---------------------------------------------------------------------- options outside the prompt


def _not_shown(prompt: str, options: Sequence[str], fields: Collection[str], known: Question | None) -> Question:
    if known is not None and _words_of(known.options) == _words_of(options):
        return Question("", known.stem, tuple(options), prompt=prompt)
    stem = _without_ending(prompt, fields)
    if not stem.strip():
        raise NoOptions("the task asks no question: its choices are whole texts with nothing before them")
    for place, option in enumerate(options):
        if not option.strip():
            raise UntestableQuestion(f"choice {place} is empty; it must have text")
    return Question("", stem, tuple(options), prompt=prompt)


def _without_ending(prompt: str, fields: Collection[str]) -> str:
    """A prompt without the fixed line that asks for the answer, which follows the last field of the data row."""
    places = ((prompt.rfind(field), len(field)) for field in fields if len(field.strip()) > 3)
    end = max((place + length for place, length in places if place >= 0), default=0)
    return prompt[:end] if end and prompt.startswith("\n", end) else prompt


# ---------------------------------------------------------------------- answer and order


def _answer(target: object, choices: Sequence[str] | None, options: Sequence[str]) -> int | None:
    """Index of the correct option, given by index, label or text, or as a list of one of these; None if there is none
    or more than one."""
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


def _as_published(question: Question, known: Question | None, *, shuffled: bool) -> Question:
    """The question with its options in the order of the data row, if the task shows them in another."""
    if known is None or _words_of(known.options) != _words_of(question.options):
        if shuffled:
            raise NoOptions(
                "the task orders or draws its options with random numbers, and no field of the data row holds their "
                "published order"
            )
        return replace(question, id=content_id(question.stem, question.options))
    left = {place: option.split() for place, option in enumerate(question.options)}
    order = []
    for option in map(str.split, known.options):
        place = next(place for place, words in left.items() if words == option)
        del left[place]
        order.append(place)
    return replace(
        question,
        id=known.id,
        options=tuple(question.options[place] for place in order),
        answer=known.answer if question.answer is None else order.index(question.answer),
    )


def _words_of(options: Sequence[str], *, ordered: bool = False) -> object:
    """The words of options, for comparison without regard to white space (and, unless `ordered`, to order)."""
    texts = [" ".join(option.split()) for option in options]
    return texts if ordered else Counter(texts)
