"""Reads a local file of questions (JSON lines, JSON, CSV, TSV, Parquet); errors name file, line and remedy.

JSON is parsed here, line by line, since pyarrow's reader, which `datasets` uses, crashes the interpreter (segmentation
fault) on deeply nested lists, parses options that look like dates as dates, and refuses columns of mixed types.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from lm_eval_leakage.files import QUESTION_FILES
from lm_eval_leakage.questions.fields import LISTS_OF_OPTIONS, read_keys, well_formed, well_formed_parts
from lm_eval_leakage.questions.named_fields import NO_FIELDS, Fields, list_in, with_named_fields
from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)

DELIMITERS = {".csv": ",", ".tsv": "\t"}
LONGEST_NUMBER = 15  # characters; a longer one may not be the same as a float

FileRow = dict[str, Any]


class Rows(list[FileRow]):
    """Rows in memory with the attributes and methods of `datasets.Dataset` that the harness and tasks' functions use
    most often."""

    @property
    def features(self) -> dict[str, None]:
        return dict.fromkeys(name for row in self for name in row)

    @property
    def column_names(self) -> list[str]:
        return list(self.features)

    def map(self, function: Callable[[FileRow], FileRow], **_: object) -> Rows:
        return Rows({**row, **function(dict(row))} for row in self)

    def filter(self, function: Callable[[FileRow], bool], **_: object) -> Rows:
        return Rows(row for row in self if function(row))


def read_file(given: object) -> datasets.Dataset | Rows:
    """Return the rows of a file; `Rows` if its columns have mixed types or mappings with other names in each row,
    which a `datasets.Dataset` cannot hold.

    Raises ValueError or OSError with a one-sentence message.
    """
    file = existing_file(given)
    try:
        if file.suffix == ".parquet":
            rows: datasets.Dataset | Rows = _parquet(file)
        elif file.suffix in DELIMITERS:
            rows = _table(_separated_rows(_decoded(file.read_bytes()), DELIMITERS[file.suffix]))
        else:
            rows = _table(_json_rows(_decoded(file.read_bytes())))
    except ValueError as error:
        raise ValueError(f"data_files is {str(file)!r}, {error}") from None
    if not len(rows):
        raise ValueError(f"data_files is {str(file)!r}, which has no questions; give it one row per question")
    return rows


def read_questions(given: object, fields: Fields = NO_FIELDS) -> datasets.Dataset | Rows:
    """Return the rows of a user's file, with right answers that are named in another way (by letter, index from 1 or
    text) as indices from 0; the log says so where it is not certain, or not by capital letters or indices from 0.

    fields: of its rows, that hold the parts of a question

    Raises ValueError or OSError with a one-sentence message, also if the right answers can be read in no way or in
    several.
    """
    rows = read_file(given)
    try:
        if fields:
            rows = Rows(with_named_fields(rows, fields))
        keys = read_keys(rows)
    except ValueError as error:
        raise ValueError(f"data_files is {str(given)!r}, whose {error}") from None
    if keys.doubt:
        _say_once(f"{given}: {keys.doubt}")
    if not keys.changed:
        return rows
    _say_once(f"{given}: right answers are read as {keys.reading}")
    return Rows({**row, **keys.changed.get(place, {})} for place, row in enumerate(rows))


@cache
def _say_once(sentence: str) -> None:
    """Log a sentence only once, since a command reads its file several times."""
    logger.warning("%s", sentence)


def existing_file(given: object) -> Path:
    """Return the path of a file that may hold questions, by its name; raises ValueError or OSError with a one-sentence
    message if it is none."""
    if not isinstance(given, (str, Path)) or not str(given):
        raise ValueError(f"data_files is {brief(given)}; it must be the path of one file")
    file = Path(given).expanduser()
    if file.is_dir():
        raise IsADirectoryError(f"data_files is {str(file)!r}, a folder; name one file in it")
    if file.suffix not in QUESTION_FILES:
        raise ValueError(f"data_files is {str(file)!r}; its name must end in one of: {', '.join(QUESTION_FILES)}")
    if not file.exists():
        raise FileNotFoundError(f"data_files is {str(file)!r}, but there is no such file; check the path")
    return file


def _parquet(file: Path) -> datasets.Dataset:
    try:
        return datasets.Dataset(pq.read_table(file))
    except (ValueError, OSError, pa.ArrowException) as error:
        raise ValueError(
            f"which cannot be read as a table of questions ({brief(error)}); give one row per question"
        ) from error


def _table(rows: list[FileRow]) -> datasets.Dataset | Rows:
    columns = Rows(rows).column_names
    if any(len({tuple(row[name]) for row in rows if isinstance(row.get(name), dict)}) > 1 for name in columns):
        return Rows(rows)  # a table would give all of these rows the names of all, in one order
    try:
        return datasets.Dataset.from_dict({column: [row.get(column) for row in rows] for column in columns})
    except (pa.ArrowException, TypeError, ValueError, OverflowError, RecursionError):  # columns of mixed types
        return Rows(rows)


def _json_rows(text: str) -> list[FileRow]:
    """Return the JSON objects of a file: one per line, or a list of them."""
    if text.lstrip().startswith("["):
        rows = [(f"entry {number}", row) for number, row in enumerate(_parsed(text, 1), 1)]
    else:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        rows = [(f"line {number}", _parsed(line, number)) for number, line in lines]
    return [_row(value, place) for place, value in rows]


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"{data[error.start]:#04x}"
        raise ValueError(f"whose line {line} is not UTF-8 (byte {byte}); save the file as UTF-8") from error


def _parsed(text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place, why = line + error.lineno - 1, f"{error.msg}, column {error.colno}"
    except RecursionError:
        place, why = line, "too deeply nested lists"
    raise ValueError(f"whose line {place} is not valid JSON ({why}); fix or remove that line")


def _row(value: object, place: str) -> FileRow:
    if not isinstance(value, dict):
        raise ValueError(f"whose {place} is {brief(value)}; each must be an object with the fields of one question")
    row: FileRow = well_formed_parts(value)
    return row


# ---------------------------------------------------------------------- CSV and TSV


def _separated_rows(text: str, delimiter: str) -> list[FileRow]:
    """Return the rows of a table whose first line names its columns.

    An empty cell is a missing value. A column of numbers has numbers, and a column that may have lists of options has
    the lists that its cells hold as JSON or Python writes them.
    """
    first_line = text.partition("\n")[0]
    if delimiter == "," and "," not in first_line and ";" in first_line:
        delimiter = ";"  # as Excel writes where a comma is in every number
    lines = _lines_of_cells(text, delimiter)
    if not lines:
        return []
    (_, header), *lines = lines
    names = [name.strip() for name in header]
    if twice := [name for name, n in Counter(filter(None, names)).items() if n > 1]:
        raise ValueError(f"whose first line has the name {twice[0]!r} twice; give each column a name of its own")
    for number, cells in lines:
        if any(cell.strip() for cell in cells[len(names) :]):
            raise ValueError(
                f"whose line {number} has {len(cells)} cells, and its first line {len(names)}; put a text with "
                f"{delimiter!r} in it into quotation marks"
            )
    columns = {}
    for place, name in enumerate(names):
        if name:  # a column without one has numbers of rows
            columns[name] = _values(name, [cells[place] if place < len(cells) else "" for _, cells in lines])
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _lines_of_cells(text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the cells of each row that is not empty, after the number of the line in which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    lines: list[tuple[int, list[str]]] = []
    start = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                lines.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"whose line {start} cannot be split into cells ({error}); put a text with quotation marks in it into "
            "quotation marks, and double each of its own"
        ) from error
    return lines


def _values(name: str, cells: Sequence[str]) -> list[Any]:
    given = [well_formed(cell) for cell in cells if cell.strip()]
    convert: Callable[[str], Any] = str
    if name in LISTS_OF_OPTIONS:
        convert = list_in
    elif all(_is_written_by(int, cell) for cell in given):
        convert = int
    elif all(_is_written_by(float, cell) for cell in given):
        convert = float
    values = map(convert, given)
    return [next(values) if cell.strip() else None for cell in cells]


def _is_written_by(kind: Callable[[str], float], cell: str) -> bool:
    """Return whether a cell is a number as Python writes it, so that no text such as 007 or 1.50 becomes another
    one."""
    if len(cell) > LONGEST_NUMBER:
        return False
    try:
        number = kind(cell)
    except ValueError:
        return False
    return math.isfinite(number) and repr(number) == cell
