"""Reads rows whose fields the user names: those of the question, its options and its right answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lm_eval_leakage.questions.fields import ANSWERS, ROW_SCHEMAS, Doc, raw_parts, without_missing_end
from lm_eval_leakage.questions.prompt_parser import listed_texts
from lm_eval_leakage.records import UntestableQuestion
from lm_eval_leakage.texts import brief

_PARTS = QUESTION, OPTIONS, ANSWER = "question", "options", "answer"
OF_SCHEMAS = frozenset(name for schema in ROW_SCHEMAS for name in (*schema.fields, *schema.keys))
Fields = Mapping[str, str]  # by part, the name of its field; for options also several names, joined by +
NO_FIELDS: Fields = MappingProxyType({})
OF_ROWS = (  # the remedy for a file without questions
    "give each row the fields question, choices and answer, or say which of its own these are "
    "(`--fields question=FIELD,options=FIELD,answer=FIELD`)"
)


def fields_named(value: object) -> dict[str, str]:
    """Return which fields hold the parts of a question.

    value: a mapping, or a text such as "question=input,options=right+wrong1+wrong2,answer=right"

    Raises ValueError, in one sentence, for anything else.
    """
    pairs: Iterable[tuple[object, object]] = [("", value)]
    if isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, str):
        split = (pair.partition("=") for pair in value.split(","))
        pairs = [(part.strip(), field.strip()) for part, _, field in split]
    fields: dict[str, str] = {}
    for part, field in pairs:
        if part not in _PARTS:
            raise ValueError(
                f"fields is {brief(value)}; write PART=FIELD with commas between; a part is one of: "
                f"{', '.join(_PARTS)}"
            )
        name = "+".join(map(str, field)) if part == OPTIONS and isinstance(field, (list, tuple)) else field
        if not isinstance(name, str) or not name:
            raise ValueError(f"fields has {brief(field)} as {part}; give the name of a field of the rows")
        fields[str(part)] = name
    return fields


def with_named_fields(rows: Iterable[Doc], fields: Fields) -> list[dict[str, Any]]:
    """Return rows with the parts of their questions as `question`, `choices` and `answer`. A part whose field is not
    named is read as usual.

    Raises ValueError, with the end of a sentence about the file, if no row has one of the fields.
    """
    rows = list(rows)
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    columns: dict[str, list[str]] = {}
    for part, field in fields.items():
        columns[part] = field.split("+") if part == OPTIONS and field not in names else [field]
        for name in columns[part]:
            if name not in names:
                raise ValueError(
                    f"rows have no field {name!r}, which fields gives as {part}; name one of {brief(names)}"
                )
    return [_with_parts(row, columns) for row in rows]


def _with_parts(row: Doc, columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a row with the parts of its question under their usual names.

    The row is returned as it is if a part whose field is not named cannot be read.
    """
    used = OF_SCHEMAS.union(*columns.values())
    read: dict[str, Any] = {name: value for name, value in row.items() if name not in used}
    if QUESTION in columns:
        read["question"] = row.get(columns[QUESTION][0])
    if OPTIONS in columns:
        read["choices"] = _options_in([row.get(name) for name in columns[OPTIONS]])
        if ANSWER not in columns:
            read |= {name: row[name] for name in ANSWERS if name in row}
    if QUESTION not in columns or OPTIONS not in columns:
        try:
            usual = raw_parts({**row, **read})
        except UntestableQuestion:
            return dict(row)
        read.setdefault("question", usual.stem)
        if OPTIONS not in columns:
            is_labelled = usual.labels is not None
            read["choices"] = {"text": usual.options, "label": usual.labels} if is_labelled else usual.options
            read["answer"] = usual.answer
    if ANSWER in columns:
        read["answer"] = row.get(columns[ANSWER][0])
    return read


def _options_in(values: Sequence[Any]) -> Any:
    """Return the options of one field as it holds them, and of several fields as one list."""
    if len(values) == 1:
        return list_in(values[0])
    options: list[Any] = []
    for value in map(list_in, values):
        options += value if isinstance(value, (list, tuple)) else [value]
    return without_missing_end(options)


def list_in(value: Any) -> Any:
    """Return the list or mapping that a cell of a table holds as JSON or Python; any other value as it is."""
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        texts = listed_texts(value)
    # NumPy writes lists without commas, in which one text cannot be separated from the next
    return texts if repr(texts) == value else value
