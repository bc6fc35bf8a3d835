"""Reads a data row whose text a benchmark asks about, whether it has options or not, as a question without options.

The field that holds the text is the same for all rows: the one that the task's prompt shows, else one of _FIELDS. The
prompt up to that text is the benchmark's own layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lm_eval_leakage.questions.fields import Doc, content_id, subject_of, well_formed
from lm_eval_leakage.questions.slots import NAMES, NUMBERS, find_slot
from lm_eval_leakage.records import Question, UntestableQuestion

Prompt = Callable[[Doc], object]
Path = tuple[str, ...]
_FIELDS = ["question", "problem", "sentence", "context", "text", "statement", "body", "story", "prompt", "input"]
NO_DETAIL = "its rows have no detail that could be exchanged for another"
_DETAILS = {NAMES: "given name that could be exchanged", NUMBERS: "number that could be exchanged"}
FEWEST_WORDS = 4
_FEWEST_WITH_SLOT = 0.1  # share of rows


@dataclass(frozen=True)
class StatementReader:
    """A function that reads the rows of one benchmark.

    path: names of the field that holds the text, the outermost first
    prompt: the task's `doc_to_text`; None if there is no task
    """

    path: Path
    prompt: Prompt | None = None

    def __call__(self, doc: Doc) -> Question:
        """Return the question of a row; raise UntestableQuestion, with the reason, for a row without a text."""
        text = dict(texts_by_path(doc)).get(self.path, "").strip()
        if not text:
            raise UntestableQuestion(f"its field {'.'.join(self.path)} has no text")
        prompt = _rendered(self.prompt, doc)
        return Question(
            content_id(text, ()),
            text,
            (),
            prompt=prompt if text in prompt else None,
            subject=subject_of(doc),
        )


def statement_reader(docs: Sequence[Doc], prompt: Prompt | None = None, field: str | None = None) -> StatementReader:
    """Return the reader of a benchmark's rows.

    docs: some of its rows
    prompt: the task's `doc_to_text`
    field: the name of the field, if the user gives it

    Raises UntestableQuestion, with the reason, if no field holds a text.
    """
    if field is not None:
        return StatementReader((field,), prompt)
    shown, lengths = Counter[Path](), Counter[Path]()
    for doc in docs:
        rendered = _rendered(prompt, doc)
        for path, text in texts_by_path(doc):
            if len(text.split()) >= FEWEST_WORDS:
                lengths[path] += len(text)
                shown[path] += len(text) if text.strip() in rendered else 0
    for path, n_characters in shown.most_common(1):
        if n_characters:
            return StatementReader(path, prompt)
    named = {path[-1].casefold(): path for path in lengths}
    paths = [named[name] for name in _FIELDS if name in named]
    if not paths:
        raise UntestableQuestion("no field of its rows holds the text of the task's questions")
    return StatementReader(paths[0], prompt)


def refusal_of_statements(readings: Sequence[Question | UntestableQuestion], fillers: str = NAMES) -> str | None:
    """Return why names, or numbers, are not exchanged in a benchmark with these first rows; None if they are."""
    reasons = Counter[str]()
    for reading in readings:
        try:
            if isinstance(reading, UntestableQuestion):
                raise reading
            find_slot(reading.stem, fillers)
        except UntestableQuestion as error:
            reasons[str(error)] += 1
    n, n_without = len(readings), reasons.total()
    if n and n - n_without >= _FEWEST_WITH_SLOT * n:
        return None
    (reason, _), *_ = reasons.most_common(1) or [("there is none", 0)]
    return f"{NO_DETAIL}: {n_without} of the first {n} have no {_DETAILS[fillers]} (most often: {reason})"


def fillers_of(readings: Sequence[Question | UntestableQuestion]) -> str:
    """Return what is exchanged in a benchmark with these first rows: names, but numbers where only these can be."""
    only_numbers = refusal_of_statements(readings) and not refusal_of_statements(readings, NUMBERS)
    return NUMBERS if only_numbers else NAMES


def has_statements(docs: Sequence[Doc], field: str | None = None) -> bool:
    """Return whether names can be exchanged in the rows of a file.

    field: the name of the field with their texts, if the user gives it
    """
    try:
        read = statement_reader(docs, field=field)
    except UntestableQuestion:
        return False
    readings: list[Question | UntestableQuestion] = []
    for doc in docs:
        try:
            readings.append(read(doc))
        except UntestableQuestion as error:
            readings.append(error)
    return refusal_of_statements(readings) is None


def _rendered(prompt: Prompt | None, doc: Doc) -> str:
    """Return the prompt of a row; empty if the task renders none."""
    try:
        text = None if prompt is None else prompt(doc)
    except Exception:  # a task's templates and functions may raise anything
        return ""
    return well_formed(text) if isinstance(text, str) else ""


def texts_by_path(doc: Doc, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the texts of a row that stand under names, with these names."""
    for name, value in doc.items():
        if isinstance(value, str):
            yield (*path, str(name)), well_formed(value)
        elif isinstance(value, Mapping):
            yield from texts_by_path(value, (*path, str(name)))


def with_slot(questions: Collection[Question], fillers: str = NAMES) -> list[Question]:
    """Return the questions that have a slot."""
    questions_with_slot = []
    for question in questions:
        try:
            find_slot(question.stem, fillers)
        except UntestableQuestion:
            continue
        questions_with_slot.append(question)
    return questions_with_slot
