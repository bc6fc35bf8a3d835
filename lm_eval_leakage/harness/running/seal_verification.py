"""Verifies the public files of a sealed benchmark, before and after its private folder is revealed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.tasks.data import ReadDoc
from lm_eval_leakage.harness.tasks.data_files import ENDINGS, read_file
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.sealing.commitment import digest_of_public
from lm_eval_leakage.sealing.private_folder import read_seal
from lm_eval_leakage.sealing.public_folder import COMMITMENT_FILE
from lm_eval_leakage.sealing.seal import Seal
from lm_eval_leakage.sealing.seal_check import commitment_differences, differences


@dataclass(frozen=True)
class SealVerification:
    """What holds, and what does not: sentences; no difference means verified."""

    holds: tuple[str, ...]
    differs: tuple[str, ...]


def verified(public: Path, private: Path | None, commitment: str | None) -> SealVerification:
    """Whether public files are what the key in `private` gives, and key and content what the commitment fixed.

    public: a public folder, or any copy of its rows (JSON, JSON lines, Parquet), which may have other columns
    private: without it, rows are compared with the digest in commitment.json only
    commitment: as its author announced it, if it is not to be taken from the public folder

    Raises ValueError or OSError, with the remedy, if there is nothing to compare.
    """
    files, told = _files(public), _told(public)
    if private is None:
        return _before_reveal(files, told, public, commitment)
    seal = read_seal(private)
    differs = [f"{file.name}: {sentence}" for file in files for sentence in differences(seal, _readings(file))]
    differs += commitment_differences(seal, told) if told is not None else []
    differs += _announced(commitment, seal.commitment)
    return SealVerification((_sentence(seal, files, told, commitment),) if not differs else (), tuple(differs))


def _sentence(seal: Seal, files: list[Path], told: object, commitment: str | None) -> str:
    names = " and ".join(file.name for file in files)
    known = " and ".join(
        source
        for source, is_there in ((COMMITMENT_FILE, told is not None), ("--commitment", commitment is not None))
        if is_there
    )
    against = f", and key and all versions are what {known} fixed" if known else ""
    return (
        f"verified: {len(seal.questions):,} questions of {seal.name}, in {names}, each in the wording, order and "
        f"place that the key draws{against} ({seal.commitment})"
    )


def _before_reveal(
    files: list[Path], told: dict[str, Any] | None, public: Path, commitment: str | None
) -> SealVerification:
    if told is None:
        raise ValueError(
            f"{str(public)!r} has no {COMMITMENT_FILE} and no private folder was named, so there is nothing to "
            "compare it with; name the public folder, or the private one too"
        )
    differs = [
        f"{file.name}: its rows do not have the digest that {COMMITMENT_FILE} says"
        for file in files
        if _digest(file) != told.get("public_sha256")
    ]
    differs += _announced(commitment, str(told.get("commitment")))
    names = " and ".join(file.name for file in files)
    sentence = (
        f"{names}: the digest of the rows is what {COMMITMENT_FILE} says; whether the key drew them can be told once "
        f"the private folder is revealed (commitment {told.get('commitment')})"
    )
    return SealVerification((sentence,) if not differs else (), tuple(differs))


def _announced(commitment: str | None, found: str) -> list[str]:
    if commitment is None:
        return []
    announced = commitment.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{64}", announced):
        raise ValueError(f"commitment is {commitment!r}; it has 64 hexadecimal digits")
    return [] if announced == found else [f"the announced commitment is {announced}, and this one is {found}"]


def _files(public: Path) -> list[Path]:
    if not public.is_dir():
        return [public]
    found = sorted(file for file in public.iterdir() if file.suffix in ENDINGS and file.name != COMMITMENT_FILE)
    if not found:
        raise ValueError(f"{str(public)!r} has no file of questions; name a public folder or a file of its rows")
    return found


def _told(public: Path) -> dict[str, Any] | None:
    """What commitment.json says, next to the rows; None if there is none."""
    file = (public if public.is_dir() else public.parent) / COMMITMENT_FILE
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8", errors="replace"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON ({error}); take it from the author again") from error
    return found if isinstance(found, dict) else {}


def _readings(file: Path) -> list[Question | UntestableQuestion]:
    return [ReadDoc(row, question_from_doc).reading for row in read_file(file)]


def _digest(file: Path) -> str:
    """Of the columns that a seal publishes; other columns may have been added."""
    columns = ("question", "choices", "answer", "subject")
    return digest_of_public([{name: row[name] for name in columns if name in row} for row in read_file(file)])
