"""Seals a file of questions or the questions of a task: draws a key, and writes the public and the private folder."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval_leakage import __version__
from lm_eval_leakage.files import QUESTION_FILES, check_writable, publish_files, try_to_write
from lm_eval_leakage.harness.own_benchmark import lettered_yaml, name_from_file, open_ended_yaml
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.harness.tasks.data import ReadDoc, docs_of
from lm_eval_leakage.harness.tasks.given_questions import NO_METADATA, given_rows
from lm_eval_leakage.questions.fields import has_option_fields
from lm_eval_leakage.questions.named_fields import ANSWER, NO_FIELDS, QUESTION, Fields
from lm_eval_leakage.questions.statements import statement_reader
from lm_eval_leakage.records import UntestableQuestion
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.seal.author_rows import ExaminedRows, OrderRule, examine_rows, unpublished_fields
from lm_eval_leakage.seal.author_texts import examine_texts
from lm_eval_leakage.seal.drawn import Seal, new_key
from lm_eval_leakage.seal.folders import (
    make_seal,
    private_files,
    public_files,
)

TOOL = f"lm-eval-leakage {__version__}"
PUBLIC, PRIVATE = "public", "private"
NAME = r"[a-z][a-z0-9_]*"
TAKEN = "output_path is {folder!r}, which is not empty and is never replaced; choose a new folder"
SEALED_COMMENT = """\
# Written by `lm-eval-leakage seal`: lettered options, as in MMLU. Needs only lm_eval, in any folder.
# To read a data set of the hub instead of the file next to this one, copy this file and replace its line
# `custom_dataset` by dataset_path: OWNER/DATASET"""
SEALED_TEXTS_COMMENT = SEALED_COMMENT.replace("lettered options, as in MMLU", "texts without options")
SEALED_DATA = "custom_dataset: !function {name}_data.load"
ROWS_LOADER = '''"""Loads {name}.parquet, next to this file, for lm_eval."""

from pathlib import Path

import datasets


def load(**_):
    """The data set with the split `test`; lm_eval passes the task's metadata, which is not needed."""
    file = Path(__file__).resolve().parent / "{name}.parquet"
    return datasets.DatasetDict({{"test": datasets.Dataset.from_parquet(str(file))}})
'''


@dataclass(frozen=True)
class Sealing:
    """A seal and what it was made from.

    unpublished_fields: names of fields of the author's rows that are in neither folder
    """

    seal: Seal
    examined: ExaminedRows
    unpublished_fields: tuple[str, ...]


def sealing_of(
    what: str, name: str | None, rule: OrderRule, include_path: str | None, fields: Fields = NO_FIELDS
) -> Sealing:
    """Seals the questions of a file or task with a new key; writes nothing.

    fields: of the rows of a file, that hold the parts of a question

    Raises ValueError or OSError, with the remedy, if nothing can be read, or rows must be corrected first.
    """
    index = TaskShelf().index
    usual = name_from_file(Path(what), index) if what.endswith(QUESTION_FILES) else f"{what}_sealed"
    name = _checked_name(name or usual, index)
    rows = given_rows(what, include_path, {"fields": fields} if fields else NO_METADATA)
    answer = fields.get(ANSWER, ANSWER)
    if what.endswith(QUESTION_FILES) and _are_texts(rows, answer, fields.get(QUESTION)):
        reader = statement_reader(rows, field=fields.get(QUESTION))
        texts = docs_of(rows, reader)
        read = examine_texts(((text, text.reading) for text in texts), answer)
        others = unpublished_fields(rows, of_texts=(reader.path[0], answer))
    else:
        read = examine_rows(((row, row.reading) for row in rows), rule)
        others = unpublished_fields(rows)
    return Sealing(make_seal(name, TOOL, new_key(), read.originals), read, others)


def _are_texts(rows: Sequence[ReadDoc], answer: str, field: str | None) -> bool:
    """Return whether the rows of a file are texts without options.

    answer: the name of the field with the answer; field: of the text, if the user gives it

    Raises ValueError, with the remedy, if some rows have options, and others have none and an answer all the same.
    """
    with_options, texts = list[int](), list[int]()
    for number, row in enumerate(rows, 1):
        if has_option_fields(row):
            with_options.append(number)
        elif row.get(answer) is not None:
            texts.append(number)
    if with_options and texts:
        raise ValueError(
            f"the file has {counted(len(with_options), 'row')} with options (such as row {with_options[0]}) and "
            f"{counted(len(texts), 'row')} without (such as row {texts[0]}); a seal is of one kind: put them into two "
            "files, and seal each"
        )
    if with_options:
        return False
    try:
        statement_reader(rows, field=field)
    except UntestableQuestion:
        return False
    return True


def write_sealing(sealing: Sealing, folder: Path) -> None:
    """Writes both folders at once. Raises ValueError if there is something in `folder` already."""
    name = sealing.seal.name
    public = public_files(sealing.seal) | task_files(name, of_texts=sealing.seal.is_of_texts)
    private = private_files(sealing.seal, sealing.examined.originals)
    files = {f"{PUBLIC}/{file}": content for file, content in public.items()}
    files |= {f"{PRIVATE}/{file}": content for file, content in private.items()}
    if not publish_files(folder, files, PRIVATE):
        raise ValueError(TAKEN.format(folder=str(folder)))


def check_free(folder: Path) -> None:
    """Raises ValueError if sealing into `folder` is impossible or would replace anything, a private key above all.
    Keys that a killed `seal` left beside it are removed."""
    check_writable(folder, folder=True)
    if (beside := folder.resolve().parent).is_dir():
        try_to_write(beside)
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(TAKEN.format(folder=str(folder)))


def task_files(name: str, *, of_texts: bool) -> dict[str, bytes]:
    """Return the task of lm_eval that reads the public file next to it.

    of_texts: whether its rows have no options
    """
    data = SEALED_DATA.format(name=name)
    yaml = open_ended_yaml(name, data, SEALED_TEXTS_COMMENT) if of_texts else lettered_yaml(name, data, SEALED_COMMENT)
    return {
        f"{name}.yaml": yaml.encode(),
        f"{name}_data.py": ROWS_LOADER.format(name=name).encode(),
    }


def _checked_name(name: str, others: Container[str]) -> str:
    if not re.fullmatch(NAME, name):
        raise ValueError(f"name is {name!r}; use lower-case letters, digits and _, beginning with a letter")
    if name in others:
        raise ValueError(f"name is {name!r}, which lm_eval has a task of already; choose another name")
    return name
