"""The status of a task's published orders, which decides what its verdict may rest on.

Reads questions from the prompts that an lm_eval task renders, and decides whether an audit would be meaningful.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import datasets
import numpy as np
from lm_eval.api.task import ConfigurableTask

from lm_eval_leakage.harness.seams.tasks import templates_compiled_once
from lm_eval_leakage.questions.fields import Doc
from lm_eval_leakage.questions.prompt_parser import texts_in
from lm_eval_leakage.questions.reader import Rendered, read_question
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.results.published_orders import (
    DOCUMENTED,
    EXACT,
    WRITTEN_ORDERS,
    Documented,
    NullStatus,
    null_status,
    order_tests,
)
from lm_eval_leakage.texts import brief

STATUS_KEY = "published_orders"  # of `--metadata`
WRITTEN_AS_A_WHOLE = {  # data sets of which a task may be too small a part to tell (docs/published_orders.md)
    "cais/mmlu",
    "hails/mmlu_no_train",
    "allenai/ai2_arc",
    "regisss/math_qa",
    "allenai/math_qa",
    "ceval/ceval-exam",
    "FreedomIntelligence/CMB",
}
OUR_TESTS = "tests of the whole data set, docs/published_orders.md"


def status_of(metadata: Mapping[str, Any], dataset_path: str | None, questions: Iterable[Question]) -> NullStatus:
    """By what `metadata` documents, what is known of the data set, and tests of the task's own questions.

    metadata: may give STATUS_KEY, such as "random: section 3.1 of the paper"

    Raises ValueError for a status that is unknown or has no source.
    """
    known = documented(metadata)
    if known is None and dataset_path in WRITTEN_AS_A_WHOLE and "data_files" not in metadata:
        known = Documented(WRITTEN_ORDERS, OUR_TESTS)
    if known is not None and known.says == WRITTEN_ORDERS:
        return NullStatus(WRITTEN_ORDERS, f"`{WRITTEN_ORDERS}`, as documented ({known.source})")
    return null_status(order_tests(questions), known)


def refuse_undrawn(orders: NullStatus) -> None:
    """Raises UntestableQuestion, with the reason, unless the published orders are known to be drawn at random."""
    if orders.status not in EXACT:
        raise UntestableQuestion(
            f"the published orders are `{orders.status}`, so that some can be guessed without memory; give `seal`, or "
            f"`{STATUS_KEY}` if the builder says that they were drawn at random"
        )


def documented(metadata: Mapping[str, Any], key: str = STATUS_KEY) -> Documented | None:
    """What the user says about the orders; None if nothing."""
    given = metadata.get(key)
    if given is None:
        return None
    status, _, source = str(given).partition(":")
    try:
        return Documented(status.strip(), source.strip())
    except ValueError as error:
        raise ValueError(
            f"{key} is {given!r}; write STATUS: SOURCE, with one of {', '.join(DOCUMENTED)} and where the "
            f"builder says so ({error})"
        ) from error


ROWS_TRIED = 50
ENOUGH = 20  # this many equal answers are no coincidence


def reader_of(task: ConfigurableTask) -> Callable[[Doc], Question]:
    """A function that reads a row of `task` as a question."""
    config = task.config
    has_functions = any(map(callable, (config.process_docs, config.doc_to_text, config.doc_to_choice)))
    shuffled = has_functions and draws_at_random(task)
    offers_choices = config.output_type == "multiple_choice"

    def read(doc: Doc) -> Question:
        try:
            with templates_compiled_once():
                rendered = Rendered(
                    prompt=task.doc_to_text(doc),
                    choices=task.doc_to_choice(doc) if offers_choices else None,
                    target=task.doc_to_target(doc),
                    shuffled=shuffled,
                )
        except Exception as error:  # a task's templates and functions may raise anything
            raise UntestableQuestion(f"the task cannot render this row ({brief(error)})") from error
        return read_question(doc, rendered)

    return read


def refusal(readings: Sequence[Question | UntestableQuestion], in_data: Collection[str] = ()) -> str | None:
    """Why a task with these first questions is not audited; None if it is.

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
    return f"{how_many} options are words of the task, the same for every question: {', '.join(options)}"


def texts_before(task: ConfigurableTask) -> frozenset[str]:
    """The texts of the first row of a task's data, before any processing."""
    split = task.config.test_split or task.config.validation_split or task.config.training_split
    try:
        return frozenset(texts_in(task.dataset[split][0]))
    except (KeyError, IndexError, TypeError, AttributeError):  # data of an unusual type
        return frozenset()


def constant_answer(readings: Sequence[Question | UntestableQuestion]) -> int | None:
    """The index of the right option if it is the same in all questions, and there are at least ENOUGH."""
    answers = [reading.answer for reading in readings if isinstance(reading, Question)]
    return answers[0] if len(answers) >= ENOUGH and len(set(answers)) == 1 else None


def draws_at_random(task: ConfigurableTask) -> bool:
    """Whether the task draws random numbers when it prepares and renders its first rows: the state of Python's or
    NumPy's generator changes, or a second time gives something else."""
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
