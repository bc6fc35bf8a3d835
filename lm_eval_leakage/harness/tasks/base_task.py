"""Reads questions from the prompts that an lm_eval task renders, and decides whether an audit would be meaningful."""

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

ROWS_TRIED = 50
ENOUGH = 20  # this many equal answers are no coincidence
OWN_ORDER = (
    "the task puts the options into an order of its own: they come from fields of the data ({fields}) whose order "
    "differs between questions, so that no published order is known"
)


class RefusedAudit(Refusal):
    """An audit that is impossible or would be meaningless; the message is the reason."""


def reader_of(task: ConfigurableTask) -> Callable[[Doc], Question]:
    """Return a function that reads a row of `task` as a question."""
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


def untestable_refusal(readings: Sequence[Question | UntestableQuestion], in_data: Collection[str] = ()) -> str | None:
    """Return why a task with these first questions is not audited; None if it is.

    in_data: texts of a row before the task processed it. Options that many questions share are the benchmark's own if
        they are among these texts (Moral Scenarios), and a guard marks them; words that are only in the task's
        template (entailment, neutral) have no published order.
    """
    questions = [reading for reading in readings if isinstance(reading, Question)]
    if not questions:
        reasons = Counter(str(reading) for reading in readings)
        return reasons.most_common(1)[0][0]
    first, *_ = questions
    shared = set(first.options).intersection(*(question.options for question in questions)) - set(in_data)
    if len(questions) > 1 and 2 * len(shared) > len(first.options):
        return refusal_of_constant([option for option in first.options if option in shared], len(first.options))
    return None


def refusal_of_constant(options: Sequence[str], n_options: int) -> str:
    how_many = "the" if len(options) == n_options else f"{len(options)} of {n_options}"
    words = ", ".join(" ".join(option.split()) for option in options)
    return f"{how_many} options are words of the task, the same for every question: {words}"


def rows_before(task: ConfigurableTask) -> list[Doc]:
    """Return the first rows of a task's data, before any processing; none of data of an unusual type."""
    split = task.config.test_split or task.config.validation_split or task.config.training_split
    try:
        data = task.dataset[split]
        return [data[place] for place in range(min(ROWS_TRIED, len(data)))]
    except (KeyError, IndexError, TypeError, AttributeError):
        return []


def without_constant_words(read: Callable[[Doc], Question], rows: Iterable[Doc]) -> Callable[[Doc], Question]:
    """Return a function that reads a row as `read` does, but leaves out of the stem what the stems of the first rows
    share at both ends. The prompt and the question's id stay as they are."""
    readings = ((doc, _question_or_none(read, doc)) for doc in islice(rows, ROWS_TRIED))
    words = constant_words([(doc, question.stem) for doc, question in readings if question is not None])
    if not any(words):
        return read

    def read_bare(doc: Doc) -> Question:
        question = read(doc)
        return replace(question, stem=words.removed_from(question.stem))

    return read_bare


def _question_or_none(read: Callable[[Doc], Question], doc: Doc) -> Question | None:
    try:
        return read(doc)
    except UntestableQuestion:
        return None


def refusal_of_own_order(readings: Iterable[Question | UntestableQuestion], rows: Sequence[Doc]) -> str | None:
    """Return why a task that orders the options of its data itself is not audited; None if their order was published.

    An order was published if a list of the data has it, or if the fields that hold the options stand in the same order
    in all questions.

    rows: of the data, before the task processed them
    """
    fields_of: dict[int, list[list[set[str]]]] = {}
    for place, reading in enumerate(readings):
        if isinstance(reading, Question):
            holding = fields_in_order(reading, [*rows[place : place + 1], *rows])
            if holding:
                fields_of.setdefault(len(reading.options), []).append(holding)
    for alike in fields_of.values():
        constant = [set.intersection(*of_place) for of_place in zip(*alike, strict=True)]
        if not all(constant):
            names = sorted({min(of_place) for of_place in alike[0]})
            return OWN_ORDER.format(fields=", ".join(names))
    return None


def constant_answer(readings: Sequence[Question | UntestableQuestion]) -> int | None:
    """Return the index of the right option if it is the same in all questions, and there are at least ENOUGH."""
    answers = [reading.answer for reading in readings if isinstance(reading, Question)]
    return answers[0] if len(answers) >= ENOUGH and len(set(answers)) == 1 else None


def draws_at_random(task: ConfigurableTask) -> bool:
    """Return whether the task draws random numbers when it prepares and renders its first rows: the state of Python's
    or NumPy's generator changes, or a second time gives something else."""
    state, numpy_state = random.getstate(), np.random.get_state()
    before = _states()
    try:
        first = _rendered(task)
        return _states() != before or _rendered(task) != first
    except Exception:  # a task's functions may raise anything, and then the reader of a row says so
        return False
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def _states() -> tuple[object, ...]:
    numpy_state: Any = np.random.get_state()
    return random.getstate(), numpy_state[1].tobytes(), numpy_state[2]


def _rendered(task: ConfigurableTask) -> list[object]:
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
