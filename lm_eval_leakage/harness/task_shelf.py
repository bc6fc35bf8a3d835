"""Loads tasks, groups and audits by name, from one index for a whole command."""

from __future__ import annotations

import json
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from datasets.exceptions import DatasetNotFoundError
from lm_eval.api.group import Group
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.seams.rows import digest_of_own_code
from lm_eval_leakage.harness.seams.tasks import kind_of, with_metadata
from lm_eval_leakage.harness.tasks.audit_names import AuditIndex, find_audits
from lm_eval_leakage.harness.tasks.data import row_hash, row_names
from lm_eval_leakage.harness.tasks.order_status import STATUS_KEY
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.harness.tasks.templates import split_name
from lm_eval_leakage.logs.audit_line import content_of
from lm_eval_leakage.questions.families import question_key
from lm_eval_leakage.records import UntestableQuestion
from lm_eval_leakage.texts import in_one_sentence

OF_PROMPTS = (  # keys of a configuration that requests and right answers depend on
    *("output_type", "doc_to_text", "doc_to_choice", "doc_to_target", "description", "target_delimiter"),
    *("num_fewshot", "fewshot_delimiter", "fewshot_split", "fewshot_config", "gen_prefix", "process_results"),
)


@dataclass(frozen=True)
class LoadedTask:
    """A task, a group or an audit.

    built: as `simple_evaluate` takes it; several for the members of a tag
    leaves: the tasks in it, by name
    manager: the task manager that built it
    """

    name: str
    built: tuple[Any, ...]
    leaves: Mapping[str, Any]
    manager: Any

    @cached_property
    def rows(self) -> list[PlacedRow]:
        """Return every question, task by task in the published order."""
        return [
            PlacedRow(name, index, *row_names(doc))
            for name, task in self.leaves.items()
            for index, doc in enumerate(task.eval_docs)
        ]

    def digest(self, task: str) -> str:
        """Return `digest_of_rows` of a task in it, as it was before the harness changed its configuration."""
        if task not in self._digests:
            self._digests[task] = digest_of_rows(self.leaves[task])
        return self._digests[task]

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {}

    def keyed(self, rows: Iterable[PlacedRow]) -> list[PlacedRow]:
        """Rows of this task, with their keys."""
        docs = {name: task.eval_docs for name, task in self.leaves.items()}
        return [replace(row, key=_key(self.leaves[row.task], docs[row.task][row.index])) for row in rows]


def in_memory(audit: LeakageTask) -> LoadedTask:
    """Return an audit of given questions."""
    name = str(audit.config.task)
    return LoadedTask(name, (audit,), {name: audit}, TaskManager(include_defaults=False))


@dataclass(frozen=True)
class PlacedRow:
    """The place of a question in a task, and its `row_names`.

    key: as of `questions.families`; empty if it is not known, or there is no question to be read
    """

    task: str
    index: int
    doc_hash: str
    content: str
    key: str = ""


class TaskShelf:
    """Loads tasks by name. They are indexed on first use.

    include_paths: folders with additional tasks
    """

    def __init__(self, include_paths: Sequence[str] = ()) -> None:
        self._include_paths = [str(Path(folder).expanduser()) for folder in include_paths]
        self._managers: dict[str, Any] = {}  # by metadata

    @cached_property
    def _manager(self) -> Any:
        for folder in self._include_paths:
            if not Path(folder).is_dir():
                raise ValueError(f"include_path is {folder!r}, but there is no such folder; check the path")
        find_audits(TaskManager)
        return TaskManager(include_path=self._include_paths or None)

    @property
    def index(self) -> AuditIndex:
        """The index of every task, group and tag, without loading any. Raises ValueError if a folder is missing."""
        index: AuditIndex = self._manager.task_index
        return index

    def names(self, given_names: Sequence[str]) -> list[str]:
        """Return the tasks and groups that are meant, with tags and patterns replaced by their tasks.

        Raises ValueError for an unknown name, and for the name of an audit.
        """
        for name in given_names:
            if (parts := split_name(name)) is not None and name in self._manager.task_index:
                raise ValueError(f"tasks has {name!r}, which is an audit; name the benchmark itself, {parts[0]!r}")
        return list(dict.fromkeys(name for given in given_names for name in self._meant(given)))

    def _meant(self, name: str) -> Iterable[str]:
        index = self._manager.task_index
        if name in index:
            is_tag = kind_of(index[name]) == "TAG"
            return sorted(task for task in index[name].tags if task in index) if is_tag else [name]
        if set("*?[") & set(name):
            matching = self._manager.match_tasks([name])
            if tasks := [task for task in matching if (split_name(task) is None) == (split_name(name) is None)]:
                return tasks
        raise ValueError(
            f"tasks has {name!r}, which is not a task, group, tag or file; `lm-eval-leakage ls tasks` lists them all"
        )

    def load(self, name: str, metadata: Mapping[str, object]) -> LoadedTask:
        """Return a task, group or audit; raises ValueError, with the reason, if it cannot be loaded.

        metadata: as in `--metadata`, with the model's arguments, which lm_eval adds
        """
        manager = self._managers.setdefault(repr(metadata), with_metadata(self._manager, metadata))
        try:
            loaded = manager.load([name])
        except (Exception, SystemExit) as error:  # a task's own module may raise anything, or end the program
            if isinstance(error, (OSError, ValueError)) and _is_sentence_of_ours(error):
                raise
            raise ValueError(f"{name} cannot be loaded{why_not_loaded(error)}") from error
        inner = {child for children in loaded["group_map"].values() for child in children}
        named = {**loaded["tasks"], **loaded["groups"]}
        built = tuple(task for key, task in named.items() if key not in inner)
        return LoadedTask(name, built, loaded["tasks"], manager)


def why_not_loaded(error: BaseException) -> str:
    """Return the reason and the remedy, to end a sentence with."""
    if isinstance(error, ConnectionError):
        return (
            f": its data are not in the cache of `datasets`, and cannot be downloaded ({error}); leave it out, or "
            "start this once with a connection, and without HF_HUB_OFFLINE"
        )
    if isinstance(error, DatasetNotFoundError):
        return f": {error} Correct dataset_path in its YAML, or leave it out"
    return f" ({in_one_sentence(error)}); leave it out, or provide what its module and its data need"


def _is_sentence_of_ours(error: BaseException) -> bool:
    """Return whether this package raised an error, whose text then says what to change, and not a task's own
    module."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__", "")).partition(".")[0] == __name__.partition(".")[0]


def found_among(rows: Iterable[PlacedRow], wanted: Iterable[PlacedRow]) -> list[tuple[PlacedRow, PlacedRow]]:
    """Return each asked question with its row among those of another task on the same benchmark: the first with its
    hash, else with its text, since in a copy of the benchmark equal rows are the same question. Others are left
    out."""
    by_name: dict[str, PlacedRow] = {}
    for row in rows:
        for name in filter(None, (row.doc_hash, row.content)):
            by_name.setdefault(name, row)
    pairs = ((row, by_name.get(row.doc_hash) or by_name.get(row.content)) for row in wanted)
    return [(row, match) for row, match in pairs if match is not None]


def _key(task: Any, doc: Any) -> str:
    try:
        question = task.question(doc) if isinstance(task, LeakageTask) else content_of(doc)[0]
    except UntestableQuestion:
        return ""
    return "" if question is None else question_key(question)


def digest_of_rows(task: Any, *, documented: bool = True) -> str:
    """Return a digest of all rows of a task, in their order, and of how they are rendered. An audit renders them as
    its base task does.

    documented: whether what is said about the published orders counts, too
    """
    config = getattr(task, "base", task).config
    settings = config.to_dict()
    rendering = {key: settings[key] for key in OF_PROMPTS if key in settings}
    functions = [getattr(config, key, None) for key in OF_PROMPTS]
    functions += (settings.get("fewshot_config") or {}).values()
    if code := digest_of_own_code(functions):
        rendering["code"] = code
    if documented and (says := (task.config.metadata or {}).get(STATUS_KEY)):
        rendering[STATUS_KEY] = says
    digest = blake2b(json.dumps(rendering, sort_keys=True, default=_without_address).encode(), digest_size=16)
    for doc in task.eval_docs:
        digest.update(row_hash(doc).encode())
    return digest.hexdigest()


def _without_address(value: Any) -> str:
    """Return a name of a function or an object that is the same in every process."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def only_tasks(built: Iterable[Any], wanted: Collection[str]) -> list[Any]:
    """Return the same without other tasks than the wanted ones: the harness would ask a task without chosen questions
    as a whole. Groups are changed."""
    kept = []
    for item in built:
        if isinstance(item, Group):
            for child in [*item]:
                if not only_tasks([child], wanted):
                    item.pop(str(child.name if isinstance(child, Group) else child.task_name))
        if len(item) if isinstance(item, Group) else item.task_name in wanted:
            kept.append(item)
    return kept
