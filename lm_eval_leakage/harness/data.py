"""Where a task's questions come from: the hub, several subjects of it, or a local file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
from lm_eval.config.task import TaskConfig

READERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}


class Rows(list[dict[str, Any]]):
    """Rows made in memory, with the names of their columns where the harness looks for them."""

    @property
    def features(self) -> dict[str, None]:
        return dict.fromkeys(self[0])


def load_questions(config: TaskConfig, split: str) -> datasets.Dataset:
    """The rows of one split, from the file that `--metadata data_files=..` gives in the place of the task's own
    data set, from a file beside the task's YAML, or from the hub; a list of `dataset_name`s is read as one."""
    metadata = config.metadata or {}
    if "data_files" in metadata:
        return _read_file(Path(metadata["data_files"]).expanduser())
    if config.dataset_path in READERS.values():
        return _read_file(Path(metadata["config_source"]).parent / config.dataset_kwargs["data_files"])
    if isinstance(config.dataset_name, list):
        return _read_subjects(config.dataset_path, config.dataset_name, split)
    return datasets.load_dataset(config.dataset_path, config.dataset_name, split=split)


def _read_file(file: Path) -> datasets.Dataset:
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


def _read_subjects(path: str, subjects: Sequence[str], split: str) -> datasets.Dataset:
    """One split of several subsets of a hub data set, with the subset's name in a column `subject`."""
    parts = []
    for subject in subjects:
        part = datasets.load_dataset(path, subject, split=split)
        known = "subject" in part.column_names
        parts.append(part if known else part.add_column("subject", [subject] * len(part)))
    return datasets.concatenate_datasets(parts)
