"""Reports data sets that are not on this machine before a model is loaded, where nothing may be downloaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import datasets

from lm_eval_leakage.harness.task_shelf import why_not_loaded
from lm_eval_leakage.harness.tasks.audit_names import SINGLE, AuditIndex

OF_PLACE = ("revision", "data_dir", "data_files")  # of a task's `dataset_kwargs`, those that say which data


def refuse_missing_data(tasks: Iterable[str], index: AuditIndex) -> None:
    """Raise ValueError for the first data set of these tasks that is not in the cache, if `datasets` is offline.

    With a connection nothing is checked, since that takes requests. Files, and data that a task makes itself, are left
    to the run, and so is whatever else is wrong with a data set.
    """
    if not datasets.config.HF_HUB_OFFLINE:
        return
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity_error()  # it warns of each cached copy, and does so again when it loads it
    try:
        for task in tasks:
            for path, name, place in _data_sets(task, index):
                _refuse_missing(task, path, name, place)
    finally:
        datasets.logging.set_verbosity(verbosity)


def _refuse_missing(task: str, path: str, name: str | None, place: Mapping[str, Any]) -> None:
    try:
        datasets.load_dataset_builder(path, name, **place)
    except (ConnectionError, datasets.exceptions.DatasetNotFoundError) as error:
        raise ValueError(f"{task} cannot be loaded{why_not_loaded(error)}") from error
    except Exception:
        return  # the run says what else is wrong with it


def _data_sets(task: str, index: AuditIndex) -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
    """Yield the data sets of the hub that a task, the members of a group or those of a tag read, with their
    configurations."""
    entry = index.get(task)
    if entry is None:
        return
    settings = entry.cfg or {}
    if entry.kind.name not in SINGLE:
        members = settings.get("task") or sorted(entry.tags)
        for member in members if isinstance(members, list) else [members]:
            if isinstance(member, str) and member != task:
                yield from _data_sets(member, index)
        return
    path, names = settings.get("dataset_path"), settings.get("dataset_name")
    if not isinstance(path, str) or "/" not in path or "custom_dataset" in settings:
        return
    arguments = settings.get("dataset_kwargs") or {}
    place = {key: arguments[key] for key in OF_PLACE if key in arguments}
    for name in names if isinstance(names, list) else [names]:
        yield path, name, place
