"""Verifies the public files of a sealed benchmark: each is made again from the key and compared byte by byte."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import QUESTION_FILES
from lm_eval_leakage.harness.sealing import NAME, PRIVATE, PUBLIC, TOOL, task_files
from lm_eval_leakage.harness.tasks.question_files import read_file
from lm_eval_leakage.results.seal_audit import ledger_report
from lm_eval_leakage.seal.drawn import JsonRow, Seal, digest_of_public, public_rows
from lm_eval_leakage.seal.folders import (
    CARD_FILE,
    COMMITMENT_FILE,
    DATA_ENDINGS,
    KEY_FILE,
    PARQUET,
    data_files,
    public_files,
    read_seal,
)
from lm_eval_leakage.seal.looks_file import read_ledger
from lm_eval_leakage.texts import brief

RUN_OR_READ = (".py", ".pyc", ".so", ".yaml", ".yml", *QUESTION_FILES)  # by lm_eval or Python, wherever in the folder
REPOSITORY, CACHE = ".git", "__pycache__"
PUBLISHED = ("question", "choices", "answer", "subject")  # columns of the public rows
PRIVATE_INSIDE = (
    "{key} is the key of a private folder inside the public one; move that folder elsewhere and, if it was published, "
    "seal the questions again under a new name"
)
NOTHING_FIXED = (
    f"there is no {COMMITMENT_FILE} and no --commitment, so key and versions cannot be compared with those that were "
    "fixed beforehand; name the commitment that was announced"
)


@dataclass
class SealVerification:
    """The result of comparing a public folder with its seal, in sentences.

    holds: what is as it should be
    differs: what is not; with none, and nothing that is unverified, the benchmark is verified
    unverified: what could not be compared with anything
    remarks: what was left out of the comparison
    """

    holds: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def verified(
    public: Path, private: Path | None, commitment: str | None = None, head: str | None = None
) -> SealVerification:
    """Compare public files with what the key in `private` gives, and key and content with what the commitment fixed.

    public: a public folder, whose files are all made again and compared by their bytes; or any copy of its rows (JSON,
        JSON lines, Parquet), which may have other columns; or the folder that holds both public and private
    private: without it, what is public is compared with itself and with commitment.json only
    commitment: as its author announced it, if it is not to be taken from the public folder
    head: of the ledger, as its author announced it earlier

    Raises ValueError or OSError, with the remedy, if there is nothing to compare.
    """
    if private is None and (public / PUBLIC).is_dir() and (public / PRIVATE).is_dir():
        public, private = public / PUBLIC, public / PRIVATE
    commitment, head = _digits("commitment", commitment), _digits("head", head)
    files, record, result = _files(public), _read_commitment(public), SealVerification()
    if private is not None:
        seal = read_seal(private)
        _compare_with_key(public, seal, result)
        actual = seal.commitment
    elif head is not None:
        raise ValueError("head is of the ledger in the private folder; name that folder, too")
    elif record is None:
        raise ValueError(
            f"{str(public)!r} has no {COMMITMENT_FILE} and no private folder was named, so there is nothing to "
            "compare it with; name the public folder, or the private one too"
        )
    else:
        _compare_with_itself(public, files, record, result)
        actual = str(record.get("commitment"))
    if commitment not in (None, actual):
        result.differs.append(f"the announced commitment is {commitment}, and this one is {actual}")
    names = " and ".join(file.name for file in files)
    if private is None:
        result.holds.append(
            f"{names}: the digest of the rows is what {COMMITMENT_FILE} says; whether the key drew them can be tested "
            f"once the private folder is revealed (commitment {actual})"
        )
        return result
    sources = [name for name, it in ((COMMITMENT_FILE, record), ("--commitment", commitment)) if it is not None]
    result.unverified += [] if sources else [NOTHING_FIXED]
    against = f", and key and all versions are what {' and '.join(sources)} fixed" if sources else ""
    result.holds.append(
        f"{'verified' if sources else 'as sealed'}: {len(seal.questions):,} questions of {seal.name}, in {names}, "
        f"each in the {'version' if seal.is_of_texts else 'wording, order'} and place that the key draws{against} "
        f"({actual})"
    )
    try:
        ledger = read_ledger(private, seal)
    except ValueError as error:
        result.differs.append(str(error))
        return result
    result.holds.append(ledger_report(ledger))
    if head is not None and head not in ledger.heads:
        result.differs.append(
            f"the ledger never had the head {head}: it was written anew, or went back, after this head was announced"
        )
    return result


def _digits(name: str, text: str | None) -> str | None:
    digits = None if text is None else text.strip().lower()
    if digits is not None and not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise ValueError(f"{name} is {text!r}; it has 64 hexadecimal digits")
    return digits


def _files(public: Path) -> list[Path]:
    if not public.is_dir():
        return [public]
    files = sorted(file for file in public.iterdir() if file.suffix in QUESTION_FILES and file.name != COMMITMENT_FILE)
    if not files:
        raise ValueError(f"{str(public)!r} has no file of questions; name a public folder or a file of its rows")
    return files


def _read_commitment(public: Path) -> dict[str, Any] | None:
    """Return what commitment.json says, next to the rows; None if there is none."""
    file = (public if public.is_dir() else public.parent) / COMMITMENT_FILE
    if not file.is_file():
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8", errors="replace"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON ({error}); take it from the author again") from error
    return record if isinstance(record, dict) else {}


def _compare_with_key(public: Path, seal: Seal, result: SealVerification) -> None:
    """Compares a public folder, or a copy of its rows and the commitment next to it, with what the seal publishes."""
    rows, of_texts = public_rows(seal.questions), seal.is_of_texts
    sealed = public_files(seal) | task_files(seal.name, of_texts=of_texts)
    if public.is_dir():
        _compare_files(public, sealed, rows, result)
        if result.differs and seal.tool != TOOL:
            result.differs.append(f"{seal.tool} sealed it, and this is {TOOL}, which may write other files")
        return
    if row := _first_difference(_published_rows(public), rows):
        result.differs.append(f"{public.name}, row {row}")
    commitment = public.parent / COMMITMENT_FILE
    if commitment.is_file() and commitment.read_bytes() != sealed[COMMITMENT_FILE]:
        result.differs.append(_where(commitment, sealed[COMMITMENT_FILE], rows))


def _compare_with_itself(
    public: Path, files: Sequence[Path], record: Mapping[str, Any], result: SealVerification
) -> None:
    """Compares the rows with their digest; in a folder, also the bytes of whatever follows from rows and name."""
    if not public.is_dir():
        _rows_as_recorded(files, record, result)
        return
    name = record.get("name")
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        result.differs.append(f"{COMMITMENT_FILE} says name {brief(name)}, which no seal has")
        return
    candidates = [public / f"{name}{ending}" for ending in DATA_ENDINGS]
    files = [file for file in candidates if file.is_file()]
    by_file = _rows_as_recorded(files, record, result)
    rows = next(iter(by_file.values()), [])
    task = task_files(name, of_texts=bool(rows) and _is_text(rows[0]))
    sealed: dict[str, bytes | None] = {CARD_FILE: None, COMMITMENT_FILE: None, **task}
    try:
        sealed |= data_files(name, rows)
    except (ValueError, TypeError, LookupError):
        result.differs.append(f"no rows of {name} are those of a seal")
    _compare_files(public, sealed | {file.name: None for file in files if file not in by_file}, rows, result)
    result.remarks.append(f"not compared before the private folder is revealed: {CARD_FILE}")


def _rows_as_recorded(
    files: Sequence[Path], record: Mapping[str, Any], result: SealVerification
) -> dict[Path, list[JsonRow]]:
    """Returns the rows of those files that have the digest which the commitment says; the others are differences."""
    rows = dict[Path, list[JsonRow]]()
    for file in files:
        try:
            published = _published_rows(file)
        except ValueError as error:
            result.differs.append(f"{file.name} cannot be read ({error})")
            continue
        if digest_of_public(published) == record.get("public_sha256"):
            rows[file] = published
        else:
            result.differs.append(f"{file.name}: its rows do not have the digest that {COMMITMENT_FILE} says")
    return rows


def _published_rows(file: Path) -> list[JsonRow]:
    """Returns the rows of a copy by the columns that a seal publishes, in their order; other columns may be added."""
    return [{name: row[name] for name in PUBLISHED if name in row} for row in _rows_of(file)]


def _rows_of(file: Path) -> list[JsonRow]:
    """Returns the rows of a file, without empty columns. Some programs write 1.0 for 1, which is the same answer, and
    in a table, an answer in words may be read as a number."""
    rows = [{name: value for name, value in row.items() if value is not None} for row in read_file(file)]
    for row in rows:
        answer = row.get("answer")
        if _is_text(row) and isinstance(answer, (int, float)):
            row["answer"] = str(answer)
        elif isinstance(answer, float) and answer.is_integer():
            row["answer"] = int(answer)
    return rows


def _is_text(row: Mapping[str, object]) -> bool:
    """Return whether a published row has no options."""
    return "choices" not in row


def _first_difference(there: Sequence[object], sealed: Sequence[object]) -> int | None:
    """Returns the number of the first row or line that is not the sealed one, from 1; None if all are."""
    pairs = zip_longest(map(repr, there), map(repr, sealed))  # by repr, since True equals 1
    return next((number for number, (line, other) in enumerate(pairs, 1) if line != other), None)


def _compare_files(
    public: Path, sealed: Mapping[str, bytes | None], rows: Sequence[JsonRow], result: SealVerification
) -> None:
    """Compares every file that a seal writes with the one that is there. A missing commitment is no difference.

    sealed: what each file must hold, by name; None if that is not known, or a difference was found before
    rows: what the files of questions must hold
    """
    for name, content in sealed.items():
        file = public / name
        if content is None:
            continue
        if not file.is_file():
            result.differs += [f"{name} is missing"] if name != COMMITMENT_FILE else []
        elif (there := file.read_bytes()) != content:
            if name.endswith(PARQUET) and (writer := _other_writer(there, content)):
                result.remarks.append(f"{name} was compared row by row, not by its bytes: {writer} wrote it")
            else:
                result.differs.append(_where(file, content, rows))
    _report_others(public, sealed, result)


def _where(file: Path, sealed: bytes, rows: Sequence[JsonRow]) -> str:
    """Returns the name of a file that is not as sealed, with its first row or line that differs."""
    if not file.name.endswith(DATA_ENDINGS):
        there = file.read_bytes()
        return f"{file.name}, line {_first_difference(there.splitlines(True), sealed.splitlines(True))}"
    try:
        row = _first_difference(_rows_of(file), rows)
    except ValueError as error:
        return f"{file.name} cannot be read ({error})"
    return f"{file.name}, row {row}" if row else f"{file.name}: its rows are as sealed, and its bytes are not"


def _other_writer(there: bytes, sealed: bytes) -> str | None:
    """Return who wrote a Parquet file that differs only by the name of its writer, which each version of Arrow puts
    there."""
    from pyarrow import ArrowException, parquet

    try:
        original, other = (parquet.ParquetFile(BytesIO(content)) for content in (sealed, there))
        writer = other.metadata.created_by
        is_same = other.metadata.metadata is None and other.read().equals(original.read(), check_metadata=True)
    except (ArrowException, OSError, ValueError):
        return None
    return brief(writer) if is_same and writer != original.metadata.created_by else None


def _report_others(public: Path, sealed: Collection[str], result: SealVerification) -> None:
    """Adds to the result what is in the folder that no seal writes."""
    files = sorted(file.relative_to(public) for file in public.rglob("*") if not file.is_dir())
    others = [file for file in files if file.as_posix() not in sealed and file.parts[0] != REPOSITORY]
    keys = [file for file in others if file.name == KEY_FILE]
    result.differs += [PRIVATE_INSIDE.format(key=file.as_posix()) for file in keys]
    private = {file.parent for file in keys} - {Path()}
    cached, run_or_read, unused = [], [], []
    for file in others:
        name = file.as_posix()
        if file in keys or not private.isdisjoint(file.parents):
            continue
        if CACHE in file.parts:
            cached.append(name)
        elif name.endswith(RUN_OR_READ):
            run_or_read.append(name)
        else:
            unused.append(name)
    if cached:
        result.unverified.append(
            f"{', '.join(cached)} cannot be compared: Python may run it instead of the loader; remove {CACHE}, which "
            "Python makes again"
        )
    result.differs += [
        f"{name} is of no seal, and lm_eval or Python may use it; remove it, or keep it elsewhere"
        for name in run_or_read
    ]
    if unused:
        result.remarks.append(f"of no seal, so not compared: {', '.join(unused)}")
