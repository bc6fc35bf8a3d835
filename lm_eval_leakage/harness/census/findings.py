"""Decides without any download whether a task can be audited: renders made-up rows and looks for their options."""

from __future__ import annotations

import io
import random
import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import jinja2
from lm_eval.api.task import ConfigurableTask
from lm_eval.config.task import TaskConfig

from lm_eval_leakage.harness.census.sentinel import Form, SentinelRow, SentinelRows, forms
from lm_eval_leakage.harness.patches.exception_hook import Refusal
from lm_eval_leakage.harness.patches.jinja_templates import fields_of
from lm_eval_leakage.harness.patches.task_index import Entry, Kind
from lm_eval_leakage.harness.patches.yaml_files import function_named
from lm_eval_leakage.harness.tasks.base_task import reader_of, refusal, refusal_of_constant
from lm_eval_leakage.questions.prompt_parser import labels_among
from lm_eval_leakage.records import NoOptions, Question, UntestableQuestion

SHAPING = ("task", "output_type", "generation_kwargs", "process_docs", "doc_to_text", "doc_to_choice", "doc_to_target")
SALTS = ("amber", "cobalt")
SECONDS = 5.0
COVERED, NOT_AUDITED, FAILED = "covered", "refused", "failed"


@dataclass(frozen=True)
class Finding:
    """Whether one task can be audited, as found with a made-up row.

    status: covered, refused (an audit is impossible or would be meaningless) or failed (unknown)
    reason: why it is not covered, or how its options are read if it is
    """

    task: str
    folder: str
    status: str
    reason: str


class SentinelTask(ConfigurableTask):  # type: ignore[misc]
    """A task as its YAML describes it, with made-up rows instead of its data."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = TaskConfig(**{key: _resolved(config[key]) for key in SHAPING if key in config})
        self.prompt = None
        self.OUTPUT_TYPE = self.config.output_type

    def rows(self, form: Form) -> list[SentinelRow]:
        fields = {name for text in self._templates() for name in _fields_of(text)}
        rows = SentinelRows(SentinelRow(form, salt) for salt in SALTS)
        if callable(self.config.process_docs):
            rows = self.config.process_docs(rows)
        made = [row if isinstance(row, SentinelRow) else SentinelRow(form, "").with_fields(row) for row in rows]
        for row in made:
            for field in fields:
                row[field]  # creates the field, since templates get only fields that exist
        self.features = list(made[0].keys())
        return made

    def _templates(self) -> Iterator[str]:
        for text in (self.config.doc_to_text, self.config.doc_to_choice, self.config.doc_to_target):
            if isinstance(text, str):
                yield text


def _resolved(value: Any) -> Any:
    """A value of the index; functions, which it gives by file path and name, are imported."""
    if not (isinstance(value, str) and re.fullmatch(r"/.+/[\w.]+\.\w+", value)):
        return value
    folder, _, function = value.rpartition("/")
    return function_named(function, Path(folder)) if Path(folder).is_dir() else value


@lru_cache(maxsize=64)
def _fields_of(template: str) -> set[str]:
    """The fields that a template uses; a template that is a single word is itself the name of a field."""
    if template.replace("_", "").isalnum() or template.isidentifier():
        return {template}
    try:
        return fields_of(template)
    except jinja2.TemplateSyntaxError:
        return set()


def findings(entries: Mapping[str, Entry]) -> Iterator[Finding]:
    """One finding per multiple-choice task of an index. Tasks with equal templates are examined once."""
    known: dict[str, tuple[str, str]] = {}
    for name, entry in entries.items():
        if entry.kind in (Kind.TASK, Kind.PY_TASK) and (entry.cfg or {}).get("output_type") == "multiple_choice":
            key = _signature(entry.cfg or {})
            if key not in known:
                known[key] = judge(entry.cfg or {})
            yield Finding(name, folder_of(entry), *known[key])


def _signature(config: Mapping[str, Any]) -> str:
    names = ("class", "output_type", "process_docs", "doc_to_text", "doc_to_choice", "doc_to_target")
    return repr([config.get(name) for name in names])


def folder_of(entry: Entry) -> str:
    """The folder of the harness that contains a task's YAML, or the YAML's own folder if it is outside the harness."""
    path = Path(entry.yaml_path) if entry.yaml_path else Path("?")
    parts = path.parts
    return parts[len(parts) - parts[::-1].index("tasks")] if "tasks" in parts[:-1] else str(path.parent)


def judge(config: Mapping[str, Any]) -> tuple[str, str]:
    """Status and reason of a task with this configuration."""
    if "class" in config:
        return NOT_AUDITED, "it is written in Python and does not render the prompt and choices of a row"
    try:
        task = SentinelTask(config)
    except Refusal:
        raise
    except Exception as error:  # a task's own module may raise anything
        return NOT_AUDITED, f"the harness itself cannot load it ({type(error).__name__}: {_without_paths(error)})"
    if (constant := _constant(task)) is not None:
        return NOT_AUDITED, refusal_of_constant(constant, len(constant))
    reasons: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    attempts = _attempts(task)
    form = next(attempts, None)
    while form is not None:
        found = _try(task, form)
        if isinstance(found, Question):
            return COVERED, _how(found, form)
        if isinstance(found, NoOptions):
            reasons[str(found)] += 1
        else:
            errors[str(found)] += 1
        if isinstance(found, TimeoutError):
            break
        form = _mended(task, form, found) or next(attempts, None)
    if reasons:
        return NOT_AUDITED, reasons.most_common(1)[0][0]
    return FAILED, f"no made-up row works with its code ({errors.most_common(1)[0][0]})"


def _without_paths(error: Exception) -> str:
    """An error's message without the paths of this machine."""
    return re.sub(r" ?\(/[^)]*\)", "", str(error))


def _constant(task: SentinelTask) -> list[str] | None:
    """The choices of a task if they are words in its YAML, the same for every question."""
    choices = task.config.doc_to_choice
    if isinstance(choices, dict):
        choices = list(choices.values())
    if isinstance(choices, list) and labels_among([str(choice) for choice in choices]) is None:
        return [str(choice) for choice in choices]
    return None


def _try(task: SentinelTask, form: Form) -> Question | Exception:
    """The question read from a made-up row of this form, or why it cannot be read."""
    state = random.getstate()
    try:
        with at_most(SECONDS), redirect_stdout(io.StringIO()):
            rows = task.rows(form)
            readings = [_reading(task, row) for row in rows]
    except Exception as error:  # a task's function may raise anything on a made-up row
        return error
    finally:
        random.setstate(state)
    for reading in readings:
        if not isinstance(reading, Question):
            return reading.__cause__ if isinstance(reading.__cause__, Exception) else reading
    questions = [reading for reading in readings if isinstance(reading, Question)]
    if reason := refusal(questions):
        return NoOptions(reason)
    if all(_from_row(question, task, row) for question, row in zip(questions, rows, strict=True)):
        return questions[0]
    return UntestableQuestion("the options found are not those of the row")


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError after `seconds`: a task's function may loop forever on a made-up row."""

    def stop(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_globals.get("__name__") == "weakref":
            return  # called while garbage is collected: an exception would be lost, and the next alarm comes soon
        raise TimeoutError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # repeatedly, since the task's code may catch the first one
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _attempts(task: SentinelTask) -> Iterator[Form]:
    """Forms of the row, the simplest first; then with the options inside the text of the question, with answers that
    occur in the task's own code, and with the columns that some tasks look up by number."""
    yield from forms()
    choices = task.config.doc_to_choice
    labels = choices if isinstance(choices, list) else list("ABCD")
    yield from forms(
        tuple(label if not label.strip().isalnum() else f"{label.strip()}." for label in map(str, labels))
    )
    for constant in constants(task):
        yield Form(answer=constant)
        yield Form("in a text", constant)
    yield Form(columns=("query", "sol1", "sol2", "sol3", "sol4", "label"))


def _mended(task: SentinelTask, form: Form, found: Exception) -> Form | None:
    """The form with another value for a field whose value the task looks up in a table of its own: the next constant
    in the task's code that works; None if that is not what failed."""
    wanted = str(found.args[0]) if found.args else ""
    field = re.search(rf"the (?:{'|'.join(SALTS)}) of (.+?) once was", wanted)
    if not isinstance(found, (KeyError, ValueError)) or field is None or len(form.fields) > 3:
        return None
    name = field[1]
    for constant in constants(task):
        tried = replace(form, fields=(*form.fields, (name, constant)))
        again = _try(task, tried)
        if isinstance(again, Question) or not (again.args and constant == again.args[0]):
            return tried
    return None


def constants(task: SentinelTask) -> list[str]:
    """Short strings in the functions, tables and templates of a task, which may also occur in its data."""
    found: dict[str, None] = {}
    config = task.config
    for part in (config.doc_to_text, config.doc_to_choice, config.doc_to_target, config.process_docs):
        if isinstance(part, partial):
            tables = [value for value in part.keywords.values() if isinstance(value, dict)]
            found |= {key: None for table in tables for key in table}
        elif isinstance(part, str):
            found |= dict.fromkeys(re.findall(r"""['"]([^'"]+)['"]""", part))
        elif isinstance(part, FunctionType):
            found |= dict.fromkeys(_constants_of(part.__code__))
            tables = [value for value in part.__globals__.values() if isinstance(value, dict)]
            found |= {key: None for table in tables for key in list(table)[:3] if isinstance(key, str)}
    return [text for text in found if 0 < len(text) <= 20 and "__" not in text][:40]


def _constants_of(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants_of(constant)
        else:
            yield from (
                text for text in (constant if isinstance(constant, tuple) else [constant]) if isinstance(text, str)
            )


def _reading(task: SentinelTask, row: SentinelRow) -> Question | UntestableQuestion:
    try:
        return reader_of(task)(row)
    except UntestableQuestion as error:
        return error


def _from_row(question: Question, task: SentinelTask, row: SentinelRow) -> bool:
    """Whether the options are texts of the made-up row, as many as the task offers, and complete if the prompt shows
    them."""
    whole = rf"the (?:{'|'.join(SALTS)}) of .+ once was _ there"
    offered = len(task.doc_to_choice(row)) if task.OUTPUT_TYPE == "multiple_choice" else len(question.options)
    return len(question.options) == offered and all(
        re.fullmatch(whole, option) if question.frame else re.search(whole, option) for option in question.options
    )


def _how(question: Question, form: Form) -> str:
    if form.block:
        return "options inside one field, found by their labels"
    return "options are the choices" if question.frame is None else "options in the prompt"
