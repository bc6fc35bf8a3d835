"""Made-up data rows (sentinels) that have every field that a task's templates ask for.

If the options of such a row are found again in what the task renders, its real rows can be read too; nothing needs to
be downloaded. A row has a value for any field, guessed from the field's name, in several forms, since a list of
options may be a list, a string or a mapping, and an answer an index, a letter or the option itself.

Decides without any download whether a task can be audited: renders made-up rows and looks for their options.

Formats the census as text, JSON or Markdown: for one task, or for all tasks of lm_eval by folder.
"""

from __future__ import annotations

import io
import json
import random
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from string import ascii_uppercase
from types import CodeType, FrameType, FunctionType
from typing import Any

import jinja2
from lm_eval.api.task import ConfigurableTask
from lm_eval.config.task import TaskConfig
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.seams.patching import Refusal
from lm_eval_leakage.harness.seams.tasks import Entry, Kind, fields_of, function_named
from lm_eval_leakage.harness.tasks.base_task import reader_of, refusal, refusal_of_constant
from lm_eval_leakage.harness.tasks.templates import SEAL_AUDIT, SEAL_KEY, needs_seal, suffixes
from lm_eval_leakage.questions.prompt_parser import labels_among
from lm_eval_leakage.records import NoOptions, Question, UntestableQuestion

_LISTS = re.compile(
    r"choice|option|candidate|endings|targets|answers|alternativ|classes|solutions|answer_str|propositions|distractors",
    re.I,
)
_ONE_OF_LIST = re.compile(r"[_ #]?(?:\d+|[a-e])$|^(?:correct|right)_", re.I)
_ANSWERS = re.compile(
    r"^(?:answer(?!_str)|label|gold|target|correct|cop|ra|key|solution|idx|index|ans|class)"
    r"|answer_?(?:key|index|idx|num|id)|correct_?(?:answer|option|choice)|(?:_id|_label|_idx|_index|_num|label|answer)$",
    re.I,
)
_MANY = re.compile(r"answers$|targets$|options|choices|solutions|classes", re.I)
_STATED = re.compile(r"matching|correct answer|incorrect", re.I)
_NUMBERS = re.compile(r"loc$|year$|number$|count$|hint_len|^n_|^start|^end(?:_|$)", re.I)


@dataclass(frozen=True)
class Form:
    """The form of a row: the types of its lists and answers, the number of options, fields with given values, and
    columns that exist before they are asked for.

    block: labels of options listed inside the text of the question, for tasks whose data has a single field for both
    """

    lists: str = "list"
    answer: object = 0
    n_options: int = 4
    fields: tuple[tuple[str, object], ...] = ()
    columns: tuple[str, ...] = ()
    block: tuple[str, ...] = ()


class Letter(dict[str, str]):
    """An answer inside a mapping, for any key."""

    def __missing__(self, key: str) -> str:
        return "A"


ANSWERS = (0, "A", "1", Letter(), "text", ["A"])
LISTS = ("list", "records", "literal", "mapping", "lines", "in a text")
COUNTS = (4, 5, 3, 2, 10)


FORMS_TRIED = 120


def forms(block: tuple[str, ...] = ()) -> list[Form]:
    """Forms of the row: the simplest first, then those that differ from it least."""
    by_distance = [
        (place + place_of_answer + place_of_count, Form(lists, answer, count, block=block))
        for place, lists in enumerate(LISTS)
        for place_of_answer, answer in enumerate(ANSWERS)
        for place_of_count, count in enumerate(COUNTS)
    ]
    return [form for _, form in sorted(by_distance, key=lambda pair: pair[0])][:FORMS_TRIED]


class OptionList(list[str]):
    """Options that can also be accessed by name, as in `choices.text` and `choices["label"]`."""

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if "label" in key.lower() or "key" in key.lower() or key.lower() in ("letter", "id", "aid"):
            return [1, *[0] * (len(self) - 1)] if key == "labels" else list(ascii_uppercase[: len(self)])
        if len(key) == 1 and key.upper() in ascii_uppercase[: len(self)]:
            return super().__getitem__(ascii_uppercase.index(key.upper()))
        return self

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key]


class SentinelText(str):
    """A string that is also a mapping, for rows with nested fields: `question["stem"]`."""

    row: SentinelRow

    def __getitem__(self, key: Any) -> Any:
        return self.row._made(key) if isinstance(key, str) else super().__getitem__(key)


class SentinelRow(dict[str, Any]):
    """A row that has every field.

    salt: a word in all its texts, so that two rows differ wherever the prompt contains data
    """

    def __init__(self, form: Form, salt: str) -> None:
        super().__init__(form.fields)
        self.form, self.salt = form, salt
        for column in form.columns:
            self[column]

    def pop(self, field: str, *_: object) -> Any:
        made = self[field]
        del self[field]
        return made

    def __missing__(self, field: str) -> Any:
        self[field] = self._made(field)
        return self[field]

    def get(self, field: str, default: Any = None) -> Any:
        return self[field]

    def with_fields(self, fields: Mapping[str, Any]) -> SentinelRow:
        row = SentinelRow(self.form, self.salt)
        row.update({**self, **fields})
        return row

    def _made(self, field: str) -> Any:
        if _NUMBERS.search(field):
            return 3
        many, answer = _MANY.search(field), _ANSWERS.search(field) and not _STATED.search(field)
        if answer and not many and not re.search(r"\d$", field):
            return self._text("choices 0") if self.form.answer == "text" else self.form.answer
        if _LISTS.search(field) and not _ONE_OF_LIST.search(field):
            return self._list(field)
        block = [f"\n{label} {self._text(f'{field} option {place}')}" for place, label in enumerate(self.form.block)]
        text = SentinelText(self._text(field) + "".join(block))
        text.row = self
        return text

    def _list(self, field: str) -> Any:
        texts = [self._text(f"{field} {place}") for place in range(self.form.n_options)]
        made: dict[str, Callable[[], Any]] = {
            "list": lambda: OptionList(texts),
            "records": lambda: [
                {"text": text, "label": label, "atext": text, "aid": place, "choice": text, "key": label}
                for place, (text, label) in enumerate(zip(texts, ascii_uppercase, strict=False))
            ],
            "literal": lambda: repr(texts),
            "mapping": lambda: dict(zip(ascii_uppercase, texts, strict=False)),
            "lines": lambda: "\n".join(texts),
            "in a text": lambda: " , ".join(
                f"{label} ) {text}" for label, text in zip("abcdefghij", texts, strict=False)
            ),
        }
        return made[self.form.lists]()

    def _text(self, field: str) -> str:
        return f"the {self.salt} of {field.strip()} once was _ there"


class SentinelRows(list[SentinelRow]):
    """The part of a `datasets.Dataset`'s interface that tasks' `process_docs` use. Filters keep every row."""

    @property
    def features(self) -> dict[str, None]:
        return dict.fromkeys(name for row in self for name in row)

    column_names = features

    def map(self, function: Callable[..., Any], *_: object, **options: Any) -> SentinelRows:
        extra = ([index] for index in range(len(self))) if options.get("with_indices") else ([] for _ in self)
        return SentinelRows(row.with_fields(function(row, *more) or {}) for row, more in zip(self, extra, strict=True))

    def filter(self, *_: object, **__: object) -> SentinelRows:
        return self

    shuffle = select = remove_columns = rename_columns = rename_column = cast = filter

    def __iter__(self) -> Iterator[SentinelRow]:
        return super().__iter__()


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


def task_index(include_path: str | None = None) -> Mapping[str, Entry]:
    """The index of all tasks of the harness, and those in a user's folder."""
    index: Mapping[str, Entry] = TaskManager(include_path=include_path).task_index
    return index


def findings_of(name: str, index: Mapping[str, Entry]) -> list[Finding]:
    """The findings on a task, or on the tasks of a group or tag; raises KeyError for an unknown name."""
    tasks = dict.fromkeys(tasks_of(name, index))
    return [Finding(task, folder_of(index[task]), *judge(index[task].cfg or {})) for task in tasks]


def tasks_of(name: str, index: Mapping[str, Entry]) -> Iterator[str]:
    """The name itself, or the tasks of a group or tag; raises KeyError for an unknown name."""
    entry = index[name]
    if entry.kind is Kind.TAG:
        yield from sorted(entry.tags)
    elif entry.kind is Kind.GROUP:
        for member in _members(entry.cfg or {}):
            yield from tasks_of(member, index) if member in index else ()
    else:
        yield name


def _members(config: Mapping[str, Any]) -> Iterator[str]:
    """The names in a group's list, including those of nested groups."""
    listed = config.get("task") or []
    for member in [listed] if isinstance(listed, str) else listed:
        if isinstance(member, str):
            yield member
        elif isinstance(member.get("task"), str):
            yield member["task"]
        else:
            yield from _members(member)


def as_list(found: Sequence[Finding]) -> str:
    """One line per task: its name, whether it can be audited, how or why not; then the names of its audits, those that
    need a seal apart."""
    width = max((len(finding.task) for finding in found), default=0)
    lines = [f"{finding.task:{width}}  {finding.status:8} {finding.reason}" for finding in found]
    covered = [finding.task for finding in found if finding.status == COVERED]
    if covered:
        task = covered[0] if len(found) == 1 else "TASK"
        sealed = {SEAL_AUDIT, *filter(needs_seal, suffixes())}
        lines += ["", f"audits: {_names(task, {*suffixes()} - sealed)}"]
        lines += [f"if it is sealed, with --metadata {SEAL_KEY}=PRIVATE_FOLDER: {_names(task, sealed)}"]
    return "\n".join(lines)


def _names(task: str, audits: Iterable[str]) -> str:
    return ", ".join(f"{task}_{suffix}" for suffix in sorted(audits))


def as_json(found: Sequence[Finding]) -> str:
    return json.dumps([asdict(finding) for finding in found], ensure_ascii=False, indent=1)


def as_markdown(found: Sequence[Finding]) -> str:
    """A table with one row per folder, and below it, by status, every reason with its number of tasks."""
    table: dict[str, Counter[str]] = {}
    for finding in found:
        table.setdefault(finding.folder, Counter())[finding.status] += 1
    total = Counter(finding.status for finding in found)
    rows = [("all", total), *sorted(table.items())]
    lines = [f"| folder | {COVERED} | {NOT_AUDITED} | {FAILED} |", "|---|---|---|---|"]
    lines += [f"| {name} | {n[COVERED]} | {n[NOT_AUDITED]} | {n[FAILED]} |" for name, n in rows]
    for status in (COVERED, NOT_AUDITED, FAILED):
        lines += ["", f"{status.capitalize()}: {total[status]}", ""]
        lines += [f"- {line}" for line in _reasons([finding for finding in found if finding.status == status])]
    return "\n".join(lines)


def _reasons(found: Sequence[Finding]) -> Iterator[str]:
    """Each reason with its number of tasks, the most frequent first, and its folders or its only task."""
    tasks: dict[str, list[Finding]] = {}
    for finding in found:
        tasks.setdefault(finding.reason, []).append(finding)
    for reason, having in sorted(tasks.items(), key=lambda item: (-len(item[1]), item[0])):
        folders = sorted({finding.folder for finding in having})
        where = having[0].task if len(having) == 1 else ", ".join(folders[:8]) + (", ..." if len(folders) > 8 else "")
        yield f"{len(having)}: {reason} ({where})"
