"""Loads a task's data: from the Hugging Face hub, several subsets there, or a local file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import datasets
from lm_eval.config.task import TaskConfig

from lm_eval_leakage.harness.tasks.data_files import Rows, read_file

FILE_TYPES = ("json", "parquet")


def load_questions(config: TaskConfig, split: str) -> datasets.Dataset | Rows:
    """The rows of one split: from the file that `--metadata data_files=..` gives instead of the task's own data set,
    from a file next to the task's YAML, or from the hub; a list of `dataset_name`s is concatenated."""
    metadata = config.metadata or {}
    if "data_files" in metadata:
        return read_file(metadata["data_files"])
    if config.dataset_path in FILE_TYPES:
        return read_file(Path(metadata["config_source"]).parent / config.dataset_kwargs["data_files"])
    if isinstance(config.dataset_name, list):
        return _read_subjects(config.dataset_path, config.dataset_name, split)
    return datasets.load_dataset(config.dataset_path, config.dataset_name, split=split)


def _read_subjects(path: str, subjects: Sequence[str], split: str) -> datasets.Dataset:
    """One split of several subsets of a hub data set, with the subset's name in a column `subject`."""
    parts = []
    for subject in subjects:
        part = datasets.load_dataset(path, subject, split=split)
        known = "subject" in part.column_names
        parts.append(part if known else part.add_column("subject", [subject] * len(part)))
    return datasets.concatenate_datasets(parts)
