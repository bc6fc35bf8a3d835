"""What an audit's verdict may rest on: the status of the task's published orders, and the seal that `--metadata
seal=PRIVATE_FOLDER` names, with which questions it covers.

Reads questions from the prompts that an lm_eval task renders, and decides whether an audit would be meaningful.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from lm_eval.api.task import ConfigurableTask

from lm_eval_leakage.detectors import Probe
from lm_eval_leakage.harness.seams.patching import Refusal
from lm_eval_leakage.harness.seams.tasks import compile_templates_once
from lm_eval_leakage.harness.tasks.templates import SEAL_KEY, no_seal
from lm_eval_leakage.questions.constant_words import constant_words
from lm_eval_leakage.questions.fields import Doc
from lm_eval_leakage.questions.reader import fields_in_order, read_question
from lm_eval_leakage.questions.slots import Exchange
from lm_eval_leakage.records import Question, Shard, UntestableQuestion
from lm_eval_leakage.results.published_orders import (
    DOCUMENTED,
    Documented,
    NullStatus,
    OrderStatus,
    is_exact,
    null_status,
    order_tests,
)
from lm_eval_leakage.seal.drawn import Seal
from lm_eval_leakage.seal.folders import read_seal
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


class RefusedAudit(Refusal):
    """An audit that is impossible or would be meaningless; the message is the reason."""


def status_of(metadata: Mapping[str, Any], dataset_path: str | None, questions: Iterable[Question]) -> NullStatus:
    """By what `metadata` documents, what is known of the data set, and tests of the task's own questions.

    metadata: may give STATUS_KEY, such as "random: section 3.1 of the paper"

    Raises ValueError for a status that is unknown or has no source.
    """
    known = documented(metadata)
    if known is None and dataset_path in WRITTEN_AS_A_WHOLE and "data_files" not in metadata:
        known = Documented(OrderStatus.WRITTEN, OUR_TESTS)
    if known is not None and known.says == OrderStatus.WRITTEN:
        return NullStatus(OrderStatus.WRITTEN, f"`{OrderStatus.WRITTEN}`, as documented ({known.source})")
    return null_status(order_tests(questions), known)


def refuse_undrawn(orders: NullStatus) -> None:
    """Raises UntestableQuestion, with the reason, unless the published orders are known to be drawn at random."""
    if not is_exact(orders.status):
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


OWN_ORDER = (
    "the task puts the options into an order of its own: they come from fields of the data ({fields}) whose order "
    "differs between questions, so that no published order is known"
)


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


SEALED_SHARDS: Mapping[str, Any] = {"examples": 4, "permutations": 23}  # all 24 orders


def seal_of(metadata: Mapping[str, Any], probe: Probe) -> Seal | None:
    """The seal that a task's metadata names; None without one, and for a probe that asks nothing a key has drawn.

    Raises ValueError, with the remedy, if the folder is no private folder, or if the probe needs one and gets none.
    """
    given = metadata.get(SEAL_KEY)
    if given is None and probe.needs_seal:
        raise ValueError(no_seal(f"the probe {metadata['probe']!r}"))
    asks_orders = probe.needs_seal or probe.asks_orders or probe.needs_drawn_orders or probe.of_shards(()) is not None
    if given is None or not (asks_orders or probe.exchanges_fillers):
        return None
    seal = seal_in(given)
    return seal if asks_orders or seal.is_of_texts else None


def seal_in(given: object) -> Seal:
    """The seal in a private folder, as `--metadata` names it; read once."""
    if not isinstance(given, (str, Path)) or not str(given):
        raise ValueError(f"{SEAL_KEY} is {given!r}; name the private folder that `lm-eval-leakage seal` wrote")
    return _read(Path(given).resolve())


_read = cache(read_seal)


def sealed_status(seal: Seal) -> NullStatus:
    """Whatever a test of randomness says by chance: the orders were recomputed from the key when the seal was read."""
    says = f"`{OrderStatus.SEALED}`: drawn with the key of {seal.name!r}, commitment {seal.commitment}"
    return NullStatus(OrderStatus.SEALED, says)


def refuse_foreign(seal: Seal | None, task: str, questions: Iterable[Question]) -> None:
    """Raises RefusedAudit if there is a seal, and the task has no question of it."""
    if seal is None:
        return
    shown = "no question that can be read"
    for question in questions:
        if seal.find(question) is not None:
            return
        shown = f"questions such as {question.stem[:80]!r}"
    raise RefusedAudit(
        f"{task} has none of the {len(seal.questions)} questions that {seal.name!r} published ({shown}); name the "
        f"private folder of this benchmark as {SEAL_KEY}, or audit the public file that belongs to it"
    )


def refuse_untestable(probe: Probe, seal: Seal, question: Question) -> None:
    """Raises UntestableQuestion, with the reason, for a question about which the seal says nothing."""
    if isinstance(question, Shard):
        return
    found = seal.find(question)
    if found is None:
        raise UntestableQuestion(f"it is not one of the questions that {seal.name!r} published")
    if (probe.asks_orders or probe.needs_drawn_orders) and not found.order_drawn:
        raise UntestableQuestion("its options depend on their order, which its author kept, so that no key drew it")


def wordings_of(seal: Seal, question: Question) -> Sequence[str]:
    """All wordings of a question, the public one first; none if the seal does not have it."""
    found = seal.find(question)
    return () if found is None else found.wordings


def exchange_of(seal: Seal, question: Question) -> Exchange | None:
    """Return the slot of a sealed text and the block in which a key drew its filler; None if none was drawn."""
    text = seal.find(question)
    if text is None or text.exchange is None or text.wordings[0] != question.stem:
        return None
    return text.exchange


def by_place(seal: Seal, questions: Iterable[Question]) -> dict[int, Question]:
    """The sealed ones among a task's questions, by their places in the public file."""
    return {int(found.id): question for question in questions if (found := seal.find(question)) is not None}
