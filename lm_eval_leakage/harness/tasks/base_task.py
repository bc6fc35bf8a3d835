"""What a task of the harness shows of its rows, and whether an audit of it would mean anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from inspect import getclosurevars
from types import CodeType, FunctionType

from lm_eval.api.task import ConfigurableTask
from lm_eval.utils import env

from lm_eval_leakage.questions.fields import Doc
from lm_eval_leakage.questions.reader import Rendered, read_question
from lm_eval_leakage.questions.row_texts import texts_in
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.texts import brief

ENOUGH = 20  # equal answers that are no accident


def reader_of(task: ConfigurableTask) -> Callable[[Doc], Question]:
    """How a row of `task` is read as a question."""
    config = task.config
    shuffled = any(map(draws_at_random, (config.process_docs, config.doc_to_text, config.doc_to_choice)))
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
        except Exception as error:  # templates and functions of any task may raise anything
            raise UntestableQuestion(f"the task cannot render this row ({brief(error)})") from error
        return read_question(doc, rendered)

    return read


_compiled = lru_cache(maxsize=64)(env.from_string)


@contextmanager
def templates_compiled_once() -> Iterator[None]:
    """The harness compiles a template for every row, which takes longer than all the rest of reading one."""
    env.from_string = _compiled
    try:
        yield
    finally:
        del env.from_string


def refusal(readings: Sequence[Question | UntestableQuestion], in_data: Collection[str] = ()) -> str | None:
    """Why a task whose first questions read so is not audited; None where it is.

    in_data: texts of a row before the task made anything of it. Options that many questions share are still the
        benchmark's own where they stand there (Moral Scenarios), and a guard tells of them; words that only the
        task's template holds (entailment, neutral) have no published order.
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
    """The texts of the first row of a task's data, as it came."""
    split = task.config.test_split or task.config.validation_split or task.config.training_split
    try:
        return frozenset(texts_in(task.dataset[split][0]))
    except (KeyError, IndexError, TypeError, AttributeError):  # data of a kind of its own
        return frozenset()


def constant_answer(readings: Sequence[Question | UntestableQuestion]) -> int | None:
    """The place of the right option where it is the same in all of at least ENOUGH questions."""
    answers = [reading.answer for reading in readings if isinstance(reading, Question)]
    return answers[0] if len(answers) >= ENOUGH and len(set(answers)) == 1 else None


def draws_at_random(function: object) -> bool:
    """Whether a task's function, or one of its module that it calls, draws random numbers."""
    return isinstance(function, FunctionType) and bool(_names_in(function) & {"shuffle", "permutation", "sample"})


def _names_in(function: FunctionType, seen: frozenset[FunctionType] = frozenset()) -> set[str]:
    names = set(_names_of(function.__code__))
    called = getclosurevars(function).globals.values()
    for other in called:
        if isinstance(other, FunctionType) and other.__module__ == function.__module__ and other not in seen:
            names |= _names_in(other, seen | {function})
    return names


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)
