"""The record of a verdict on one model and task, as `verdicts.json` and Python have it: every column of the registry
that has a name there, and how a later command finds it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.audit_line import Scalar
from lm_eval_leakage.results.columns import NULL_RATE, in_records
from lm_eval_leakage.results.provenance import OF_FILES
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.rows import task_of
from lm_eval_leakage.results.tabulating import COUNT, NUMBER, TEXT, Column, flat_value
from lm_eval_leakage.results.verdict_texts import sentence_to_copy, summarise_verdict

VERDICTS = "verdicts.json"  # in the folder of a check
PARTS = ("verdicts", "earlier")  # of that file


def _n_flagged(row: Row) -> int | None:
    return sum(row.flags.values()) if row.n_tested else None


def _n_expected(row: Row) -> float | None:
    return NULL_RATE.of(row) * row.n_tested if row.n_tested else None


def _of_record(name: str, kind: Any, of: Any, meaning: str) -> Column[Row]:
    """Return a column that only records have."""
    return Column("", kind, of, meaning, record=name)


# What only a record has, after the columns of the registry.
OF_RECORD: Sequence[Column[Row]] = (
    _of_record(
        "summary", TEXT, lambda row: summarise_verdict(row).sentence, "Why, in short, as screen and page show it"
    ),
    _of_record(
        "figures", TEXT, lambda row: summarise_verdict(row).figures, "What was counted, and accuracies, likewise"
    ),
    _of_record("flagged", COUNT, _n_flagged, "How many of the tested questions are flagged"),
    _of_record("expected", NUMBER, _n_expected, "How many of them would be by chance"),
    _of_record("citation", TEXT, sentence_to_copy, "A sentence to copy"),
    _of_record(
        "revision",
        TEXT,
        lambda row: row.provenance.revision,
        "The revision of the model: its commit, or a digest of files",
    ),
    _of_record(
        "seed",
        COUNT,
        lambda row: row.provenance.seed,
        "The seed by which the questions were drawn; null if all were scored",
    ),
    _of_record("digest", TEXT, lambda row: row.provenance.digest, "The digest of the benchmark's rows and prompt"),
)
COLUMNS = (*in_records(), *OF_RECORD)
NAMES = tuple(f"{column.record}{ending}" for column in COLUMNS for ending in column.kind.endings)
TEXTS = frozenset(column.record for column in COLUMNS if column.kind.is_text)


@dataclass(frozen=True)
class CheckedTask:
    """The verdict on one model and task. Its values are attributes, too, such as `pvalue`; None where undefined.

    values: by the names of NAMES, which docs/verdicts.md explains
    time: when the verdict was given, in ISO 8601
    """

    values: Mapping[str, Scalar]
    time: str = field(default="", compare=False)

    def __getattr__(self, name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(f"a verdict has no {name!r}; it has {', '.join(NAMES)}")
        return self.values[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *NAMES]

    @property
    def as_record(self) -> dict[str, Scalar]:
        """Return it as JSON has it."""
        return {**self.values, "time": self.time}

    @property
    def keys(self) -> set[tuple[str, str]]:
        """Return what it is found by: its model's name and, whatever the path, the digest of the model's files."""
        names = {self.model, self.revision} if OF_FILES in self.revision else {self.model}
        return {(name, self.task) for name in names}


def checked_task(row: Row) -> CheckedTask:
    """Return the record of a row's verdict, as of now."""
    values: dict[str, Scalar] = {}
    for column in COLUMNS:
        values |= flat_value(column.record, column.kind, column.of(row))
    return CheckedTask(values, datetime.now(timezone.utc).isoformat(timespec="seconds"))


def verdicts_in(folder: Path) -> tuple[CheckedTask, ...]:
    """Return the verdicts that a check left in a folder, those of earlier ones last; none if they cannot be read."""
    try:
        content = json.loads((folder / VERDICTS).read_text(encoding="utf-8"))
        return tuple(_as_checked(record) for part in PARTS for record in content[part])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ()


def _as_checked(record: Mapping[str, Any]) -> CheckedTask:
    """Raises KeyError without a text, and TypeError for a value of another type."""
    values = {}
    for name in NAMES:
        values[name] = record[name] if name in TEXTS else record.get(name)
        if not isinstance(values[name], str if name in TEXTS else (int, float, type(None))):
            raise TypeError(f"{name} is {values[name]!r}, which is no value of it")
    return CheckedTask(values, str(record.get("time", "")))


def as_checked(rows: Sequence[Row], verdicts: Sequence[CheckedTask]) -> list[Row]:
    """Return the rows with verdicts on the terms on which a check gave them: its look, the share of the error that
    this spends, the aim, and the remedy. Members of a group and subjects have those of the group or task."""
    checked = {key: verdict for verdict in reversed(verdicts) if _has_terms(verdict) for key in verdict.keys}
    judged = []
    for row in rows:
        benchmark = replace(row, task=row.group or task_of(row)).name
        names = (row.model, row.provenance.revision)
        verdict = next((checked[name, benchmark] for name in names if (name, benchmark) in checked), None)
        if verdict is not None and row.verdict.basis:
            terms = replace(
                row.verdict, look=verdict.look, spent=verdict.error_share, detect=verdict.detect, remedy=verdict.remedy
            )
            row = replace(row, verdict=terms)
        judged.append(row)
    return judged


def _has_terms(verdict: CheckedTask) -> bool:
    """Return whether something was tested, and the file was not damaged."""
    shares = (verdict.error_share, verdict.detect)
    is_look = isinstance(verdict.look, int) and verdict.look > 0
    return is_look and all(share is not None and 0 < share <= 1 for share in shares)
