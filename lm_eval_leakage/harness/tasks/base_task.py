"""Read questions from the prompts that an lm_eval task renders, and decide whether an audit would be meaningful."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import datasets
import numpy as np
from lm_eval.api.task import ConfigurableTask

from lm_eval_leakage.harness.seams.refusals import Refusal
from lm_eval_leakage.harness.seams.tasks import compile_templates_once
from lm_eval_leakage.questions.constant_words import constant_words
from lm_eval_leakage.questions.fields import Doc
from lm_eval_leakage.questions.reader import fields_in_order, read_question
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.texts import brief

ROWS_TRIED = 50  # the first rows of a task, by which it is decided how it is read and whether it is audited
ENOUGH_ANSWERS = 20  # this many equal answers are no coincidence
UNPUBLISHED_ORDER = (
    "the task puts the options into an order of its own: they come from fields of the data ({fields}) whose order "
    "differs between questions, so that no published order is known"
)


class RefusedAudit(Refusal):
    """An audit that is impossible or would be meaningless; the message is the reason."""


def reader_of(task: ConfigurableTask) -> Callable[[Doc], Question]:
    """Return a function that reads a row of `task` as a question.

    It renders the row with the task's templates and functions, and raises UntestableQuestion, with the reason, for a
    row that is no question with options.
    """
    compile_templates_once()
    config = task.config
    has_functions = any(map(callable, (config.process_docs, config.doc_to_text, config.doc_to_choice)))
    shuffled = has_functions and draws_at_random(task)
    offers_choices = config.output_type == "multiple_choice"

    def read(doc: Doc) -> Question:
        try:
            prompt, target = task.doc_to_text(doc), task.doc_to_target(doc)
            choices = task.doc_to_choice(doc) if offers_choices else None
        except Exception as error:  # a task's templates and functions may raise anything
            raise UntestableQuestion(f"the task cannot render this row ({brief(error)})") from error
        return read_question(doc, prompt, choices, target, shuffled=shuffled)

    return read


def draws_at_random(task: ConfigurableTask) -> bool:
    """Return whether a task draws random numbers when it prepares and renders its first rows.

    It does if the state of Python's or NumPy's generator changes, or if it renders something else the second time.
    The states of the generators are restored.
    """
    state, numpy_state = random.getstate(), np.random.get_state()
    before = _generator_states()
    try:
        first = _first_rendered(task)
        return _generator_states() != before or _first_rendered(task) != first
    except Exception:  # a task's functions may raise anything, and then the reader of a row says so
        return False
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def _generator_states() -> tuple[object, ...]:
    """Return the states of Python's and NumPy's generators, in a form that can be compared."""
    numpy_state: Any = np.random.get_state()
    return random.getstate(), numpy_state[1].tobytes(), numpy_state[2]


def _first_rendered(task: ConfigurableTask) -> list[object]:
    """Return the prompts and choices of a task's first rows, prepared anew from the data."""
    config = task.config
    docs: Any = task.dataset[config.test_split or config.validation_split or config.training_split]
    docs = docs.select(range(min(ROWS_TRIED, len(docs)))) if hasattr(docs, "select") else docs
    if callable(config.process_docs):
        docs = config.process_docs(datasets.Dataset.from_list([*docs]) if hasattr(docs, "select") else docs)
    offers_choices = config.output_type == "multiple_choice"
    return [
        (task.doc_to_text(doc), task.doc_to_choice(doc) if offers_choices else None)
        for doc in islice(docs, ROWS_TRIED)
    ]


def without_constant_words(read: Callable[[Doc], Question], rows: Iterable[Doc]) -> Callable[[Doc], Question]:
    """Return a function that reads a row as `read` does, but without the words of the task in the stem.

    These are the words with which the stems of all first rows begin and end. The prompt and the question's id stay as
    they are.
    """
    readings = ((doc, _question_or_none(read, doc)) for doc in islice(rows, ROWS_TRIED))
    words = constant_words([(doc, question.stem) for doc, question in readings if question is not None])
    if not any(words):
        return read

    def read_bare(doc: Doc) -> Question:
        question = read(doc)
        return replace(question, stem=words.removed_from(question.stem))

    return read_bare


def _question_or_none(read: Callable[[Doc], Question], doc: Doc) -> Question | None:
    """Return the question in a row; None if it has none."""
    try:
        return read(doc)
    except UntestableQuestion:
        return None


def unprocessed_rows(task: ConfigurableTask) -> list[Doc]:
    """Return the first rows of a task's data as they were before the task processed them; none if the data is of an
    unusual type."""
    split = task.config.test_split or task.config.validation_split or task.config.training_split
    try:
        data = task.dataset[split]
        return [data[number] for number in range(min(ROWS_TRIED, len(data)))]
    except (KeyError, IndexError, TypeError, AttributeError):
        return []


def refusal_of_readings(
    readings: Sequence[Question | UntestableQuestion], in_data: Collection[str] = ()
) -> str | None:
    """Return why a task is not audited, by the readings of its first rows; None if they do not prevent it.

    Either none of the rows can be read, and the commonest reason is returned. Or more than half of the options are
    the same in all questions, and come from the task's template (entailment, neutral): their order was not published
    with the data.

    in_data: texts of a row before the task processed it. Options that all questions share come from the data if they
        are among these texts (Moral Scenarios); then the task is audited, and a guard marks its questions.
    """
    questions = [reading for reading in readings if isinstance(reading, Question)]
    if not questions:
        reasons = Counter(str(reading) for reading in readings)
        return reasons.most_common(1)[0][0]
    first, *_ = questions
    constant = set(first.options).intersection(*(question.options for question in questions)) - set(in_data)
    if len(questions) > 1 and 2 * len(constant) > len(first.options):
        options = [option for option in first.options if option in constant]
        return refusal_of_constant_options(options, len(first.options))
    return None


def refusal_of_constant_options(options: Sequence[str], n_options: int) -> str:
    """Return the refusal of a task whose options are the same in every question.

    options: those that are the same
    n_options: how many options a question has
    """
    how_many = "the" if len(options) == n_options else f"{len(options)} of {n_options}"
    words = ", ".join(" ".join(option.split()) for option in options)
    return f"{how_many} options are words of the task, the same for every question: {words}"


def refusal_of_unpublished_order(readings: Iterable[Question | UntestableQuestion], rows: Sequence[Doc]) -> str | None:
    """Return why a task that puts the options of its data into an order itself is not audited; None if the order was
    published.

    An order was published if a list in the row has it. It was also published if the first option comes from the same
    field in all questions with as many options, the second one, too, and so on.

    rows: the first rows of the data, before the task processed them
    """
    fields_by_n_options: dict[int, list[list[set[str]]]] = {}
    for number, reading in enumerate(readings):
        if isinstance(reading, Question):
            # A task may drop rows, so that the row of this number may be that of another question.
            fields = fields_in_order(reading, [*rows[number : number + 1], *rows])
            if fields:
                fields_by_n_options.setdefault(len(reading.options), []).append(fields)
    for fields_of_questions in fields_by_n_options.values():
        common = [set.intersection(*fields_of_option) for fields_of_option in zip(*fields_of_questions, strict=True)]
        if not all(common):
            names = sorted({min(fields_of_option) for fields_of_option in fields_of_questions[0]})
            return UNPUBLISHED_ORDER.format(fields=", ".join(names))
    return None


def constant_answer(readings: Sequence[Question | UntestableQuestion]) -> int | None:
    """Return the index of the right option if it is the same in all questions; None if it is not, or if there are
    fewer than ENOUGH_ANSWERS questions."""
    answers = [reading.answer for reading in readings if isinstance(reading, Question)]
    return answers[0] if len(answers) >= ENOUGH_ANSWERS and len(set(answers)) == 1 else None
