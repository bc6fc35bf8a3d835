"""Where a task's questions come from: the hub, several subjects of it, or a local file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import datasets

READERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}


def local_split(file: Path) -> datasets.Dataset:
    """The questions of a JSON (array or lines) or Parquet file."""
    if file.suffix not in READERS:
        raise ValueError(f"data_files is {str(file)!r}; the file must end in one of: {', '.join(READERS)}")
    if not file.is_file():
        raise FileNotFoundError(f"data_files is {str(file)!r}, and there is no such file; check the path")
    try:
        return datasets.load_dataset(READERS[file.suffix], data_files=str(file), split="train")
    except (ValueError, datasets.exceptions.DatasetGenerationError) as error:
        raise ValueError(
            f"data_files is {str(file)!r}, which holds no table of questions ({error}); give one question a row"
        ) from error


def all_subjects(path: str, subjects: Sequence[str], split: str) -> datasets.Dataset:
    """One split of several subsets of a hub data set, with the subset's name in a column `subject`."""
    parts = []
    for subject in subjects:
        part = datasets.load_dataset(path, subject, split=split)
        known = "subject" in part.column_names
        parts.append(part if known else part.add_column("subject", [subject] * len(part)))
    return datasets.concatenate_datasets(parts)
