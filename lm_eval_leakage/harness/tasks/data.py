"""Loads a task's rows: from the Hugging Face hub, several subsets there, or a local file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
from lm_eval.config.task import TaskConfig
from lm_eval.utils import handle_non_serializable, hash_string

from lm_eval_leakage.harness.tasks.question_files import Rows, read_file, read_questions
from lm_eval_leakage.logs.audit_line import content_of
from lm_eval_leakage.questions.fields import Doc, well_formed_parts
from lm_eval_leakage.questions.named_fields import NO_FIELDS, Fields, fields_named
from lm_eval_leakage.questions.slots import NAMES
from lm_eval_leakage.records import Question, UntestableQuestion

FILE_TYPES = ("json", "parquet")


def load_questions(config: TaskConfig, split: str) -> datasets.Dataset | Rows:
    """Return the rows of one split: from the file that `--metadata data_files=..` gives instead of the task's own data
    set, from a file next to the task's YAML, or from the hub; a list of `dataset_name`s is concatenated."""
    metadata = config.metadata or {}
    if "data_files" in metadata:
        return read_questions(metadata["data_files"], fields_of(metadata))
    if config.dataset_path in FILE_TYPES:
        return read_file(Path(metadata["config_source"]).parent / config.dataset_kwargs["data_files"])
    if isinstance(config.dataset_name, list):
        return _read_subjects(config.dataset_path, config.dataset_name, split)
    return datasets.load_dataset(config.dataset_path, config.dataset_name, split=split)


def fields_of(metadata: Mapping[str, object]) -> Fields:
    """Return which fields of `data_files` hold the parts of a question. Raises ValueError for a wrong value."""
    return fields_named(metadata["fields"]) if metadata.get("fields") else NO_FIELDS


def _read_subjects(path: str, subjects: Sequence[str], split: str) -> datasets.Dataset:
    """Return one split of several subsets of a hub data set, with the subset's name in a column `subject`."""
    parts = []
    for subject in subjects:
        part = datasets.load_dataset(path, subject, split=split)
        has_subject = "subject" in part.column_names
        parts.append(part if has_subject else part.add_column("subject", [subject] * len(part)))
    return datasets.concatenate_datasets(parts)


def row_names(doc: Any) -> tuple[str, str]:
    """Return the two hashes by which runs and audits of a question are joined: of the row as the harness computes it,
    and of the question's text (empty if the row has no known schema)."""
    return doc.names if isinstance(doc, ReadDoc) else (_hashed(doc), content_of(doc)[1])


def row_hash(doc: Any) -> str:
    """Return the first of the two `row_names`."""
    return doc.names[0] if isinstance(doc, ReadDoc) else _hashed(doc)


def _hashed(doc: Any) -> str:
    return str(hash_string(json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)))


class ReadDoc(dict[str, Any]):
    """A row of a task's data, read as a question, and hashed, only once."""

    def __init__(self, row: Mapping[str, Any], read: Callable[[Doc], Question]) -> None:
        super().__init__(well_formed_parts(row))
        self._read = read

    @cached_property
    def reading(self) -> Question | UntestableQuestion:
        try:
            return self._read(self)
        except UntestableQuestion as error:
            return error.with_traceback(None)

    @cached_property
    def names(self) -> tuple[str, str]:
        return _hashed(self), content_of(self)[1]


class Docs(list[ReadDoc]):
    """The rows of a task, which the harness goes through several times. `features` has the columns' names, `fillers`
    what rows without options exchange."""

    features: Mapping[str, Any]
    fillers: str = NAMES


def docs_of(rows: Any, read: Callable[[Doc], Question]) -> Docs:
    docs = Docs(ReadDoc(row, read) for row in rows)
    docs.features = getattr(rows, "features", None) or dict.fromkeys(docs[0] if docs else ())
    return docs
