"""Made-up data rows (sentinels) that have every field that a task's templates ask for.

If the options of such a row are found again in what the task renders, its real rows can be read too; nothing needs to
be downloaded. A row has a value for any field, guessed from the field's name, in several forms, since a list of
options may be a list, a string or a mapping, and an answer an index, a letter or the option itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

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
