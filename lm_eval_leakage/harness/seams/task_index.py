"""Keeps lm_eval's index of its own 14,000 tasks in the user's cache folder: building it takes seconds at every start.

The file begins with a digest of the index and of what it was built from: lm_eval's version, and the path, times and
size of each file in its folder of tasks. Where anything is not as expected, or the file cannot be written, the index
is built as usual. Files outside of the folder that its YAMLs include are not looked at; lm_eval's include none.

Folders of `--include_path` hold few tasks, which lm_eval indexes at every start.

An lm_eval that keeps its index would replace this.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_binary_file, user_cache
from lm_eval_leakage.harness.seams.patching import seam_object

BUILD, ENTRY, KIND = (f"lm_eval.tasks._index:{name}" for name in ("TaskIndex.build", "Entry", "Kind"))
FORMAT = 1  # of the file
COMPRESSION = 1  # of zlib's levels, the fastest; a tenth of the size
COMPILED = "__pycache__"
DOUBTS = (ValueError, TypeError, LookupError, RuntimeError, zlib.error)  # RuntimeError: no home, or too many brackets
NoneType = type(None)
Entry = Any  # of lm_eval's index: with name, kind, yaml_path, cfg and tags

logger = logging.getLogger("lm_eval.tasks._index")


def installed_index(folder: Path) -> dict[str, Entry] | None:
    """Return lm_eval's index of its own tasks; None if this lm_eval has another kind of index.

    folder: of its tasks
    """
    if None in (seam_object(BUILD), seam_object(ENTRY), seam_object(KIND)):
        return None
    stats = {entry.path: entry.stat() for entry in files_in(folder)}
    files = sorted((path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for path, stat in stats.items())
    state = repr((FORMAT, version("lm_eval"), str(folder), files))
    return _index_of(folder, frozenset(stats), blake2b(state.encode("utf-8", "surrogateescape")).digest())


def list_installed(manager: Any, index: Mapping[str, Entry]) -> None:
    """List lm_eval's own tasks in a task manager, as if it had indexed them before those that it lists."""
    for name, entry in manager._index.items():
        if name in index:
            files = entry.yaml_path, index[name].yaml_path
            logger.warning("Task '%s' from %s overrides existing task from %s", name, *files)
    manager._index = type(manager._index)({**index, **manager._index})  # which audits may have extended already
    names: dict[str, list[str]] = {"TASK": [], "PY_TASK": [], "GROUP": [], "TAG": []}
    for name, entry in manager._index.items():
        names[entry.kind.name].append(name)
    manager._all_tasks = sorted(manager._index)
    manager._all_subtasks = sorted([*names["TASK"], *names["PY_TASK"]])
    manager._all_groups, manager._all_tags = sorted(names["GROUP"]), sorted(names["TAG"])


def files_in(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yield the files of a folder and of the folders in it, without compiled modules."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield entry
            elif entry.name != COMPILED:
                yield from files_in(entry.path)


@lru_cache(maxsize=1)
def _index_of(folder: Path, files: frozenset[str], state: bytes) -> dict[str, Entry]:
    """Return the index of a folder.

    files: paths of all files in it
    state: a digest of everything that the index depends on
    """
    index = _read(folder, files, state)
    if index is None:
        index = dict(seam_object(BUILD)([folder]))
        _keep(index, folder, files, state)
    return index


def _kept_in(folder: Path) -> Path:
    name = blake2b(str(folder).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return user_cache() / "task_index" / name


def _read(folder: Path, files: frozenset[str], state: bytes) -> dict[str, Entry] | None:
    """Return the index that is kept; None if there is none of this state, or if anything about it is wrong."""
    try:
        content = _kept_in(folder).read_bytes()
        digest, packed = content[: len(state)], content[len(state) :]
        return _unpacked(packed, folder, files) if digest == _digest(packed, state) else None
    except (OSError, *DOUBTS):
        return None


def _keep(index: Mapping[str, Entry], folder: Path, files: frozenset[str], state: bytes) -> None:
    """Write an index into the user's cache, if that can be written and the index reads back as it is."""
    with suppress(OSError, *DOUBTS):
        packed = _packed(index, folder)
        if _unpacked(packed, folder, files) == index:
            with atomic_binary_file(_kept_in(folder)) as stream:
                stream.write(_digest(packed, state) + packed)


def _digest(packed: bytes, state: bytes) -> bytes:
    return blake2b(packed, key=state).digest()


def _packed(index: Mapping[str, Entry], folder: Path) -> bytes:
    rows = []
    for name, entry in index.items():
        file = None if entry.yaml_path is None else str(entry.yaml_path.relative_to(folder))
        rows.append((name, entry.kind.name, file, sorted(entry.tags), entry.cfg))
    return zlib.compress(json.dumps(rows).encode(), COMPRESSION)


def _unpacked(packed: bytes, folder: Path, files: frozenset[str]) -> dict[str, Entry]:
    """Return the index that was packed. Raises one of DOUBTS if it is none of this folder."""
    entry_class, kinds = seam_object(ENTRY), seam_object(KIND)
    index = {}
    for name, kind, file, tags, cfg in json.loads(zlib.decompress(packed)):
        path = None if file is None else folder / file
        if path is not None and str(path) not in files:  # a YAML names code that is run
            raise ValueError(f"{file} is no file of lm_eval's tasks")
        if not all(isinstance(text, str) for text in (name, *tags)) or not isinstance(cfg, (dict, NoneType)):
            raise TypeError(f"the entry of {name} has other types than lm_eval's")
        index[name] = entry_class(name=name, kind=kinds[kind], yaml_path=path, tags={*tags}, cfg=cfg)
    return index
