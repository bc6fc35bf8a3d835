"""Copies what a user's own base task consists of, so that its clean task also runs where that folder does not exist.

Copied are the YAML with all that it includes, the modules of its functions with what they import and name next to
them, and local data files. Tasks of lm_eval itself are not copied: every installation has them.
"""

from __future__ import annotations

import ast
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.patches.yaml_files import own_settings, unresolved_settings
from lm_eval_leakage.logs.problems import Problem

COPIES, DATA = "base", "base/data"  # in the folder of clean tasks
LARGEST = 100_000_000  # bytes of one data file or folder
FUNCTION = re.compile(r"!function\s+[\"']?([\w.]+)")
INCLUDED = re.compile(r"^include:.*(?:\n[ \t]*-.*)*", re.M)
REMOTE = re.compile(r"\w+://")


@dataclass(frozen=True)
class Copied:
    """The copies of one base task's files.

    yaml: the copy of its YAML, relative to the folder of clean tasks
    data: copies of its local data by the path in its settings, relative to the folder
    files: contents by path relative to the folder
    problems: what cannot be copied
    """

    yaml: str
    data: Mapping[str, str | list[str]]
    files: Mapping[str, Path | str]
    problems: tuple[Problem, ...]


def copied(task: str, yaml: Path, root: Path) -> Copied:
    """What the base task `task` of a user consists of.

    root: the folder above all base tasks of the user, whose structure the copies keep
    """
    problems: list[Problem] = []
    sources = dict.fromkeys(_sources(yaml))
    above = Path(os.path.commonpath([root, *(file.parent for file in sources)]))
    places = {file: f"{COPIES}/{_renamed(file.relative_to(above))}" for file in sources}
    files: dict[str, Path | str] = {
        place: file if file.suffix == ".py" else _with_copied_includes(file, places) for file, place in places.items()
    }
    for file in [file for file in sources if file.suffix == ".py"]:
        files |= {f"{Path(places[file]).parent.as_posix()}/{name}": file.parent / name for name in _named_files(file)}
    data: dict[str, str | list[str]] = {}
    for given, paths in _local_data(unresolved_settings(yaml)):
        if (size := sum(path.stat().st_size for path in paths.values())) > LARGEST:
            what = f"its data {given} ({size / 1e6:.0f} MB) are not copied, so its clean task runs only where they are"
            problems.append(Problem(f"{task} is not portable: {what}"))
            continue
        folder = f"{DATA}/{_stem(task)}"
        if any(f"{folder}/{name}" in files for name in paths):
            folder += f"_{len(data)}"
        own = {f"{folder}/{name}": path for name, path in paths.items()}
        files |= own
        data[given] = f"{folder}/{Path(given).name}" if Path(given).exists() else sorted(own)
    return Copied(places[yaml], data, files, tuple(problems))


def _sources(yaml: Path) -> Iterator[Path]:
    """The YAML, those that it includes, and the modules of their functions."""
    yield yaml
    for spec in FUNCTION.findall(yaml.read_text(encoding="utf-8")):
        module = (yaml.parent / f"{spec.rpartition('.')[0].replace('.', '/')}.py").resolve()
        if module.is_file():
            yield from _modules(module, set())
    for name in _included(yaml):
        yield from _sources((yaml.parent / name).resolve())  # an absolute path is not changed by this


def _included(yaml: Path) -> Sequence[str]:
    given = own_settings(yaml).get("include") or []
    return [given] if isinstance(given, str) else given


def _modules(module: Path, seen: set[Path]) -> Iterator[Path]:
    """A module, and those next to it that it imports."""
    if module in seen:
        return
    seen.add(module)
    yield module
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or "", *(one.name for one in node.names)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            beside = module.parent / f"{name.replace('.', '/')}.py"
            if name and beside.is_file():
                yield from _modules(beside, seen)


def _named_files(module: Path) -> Iterator[str]:
    """The files next to a module that a text in it names, such as a word list that it reads."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 200:
            file = module.parent / node.value
            inside = not Path(node.value).is_absolute() and ".." not in Path(node.value).parts
            if inside and "\0" not in node.value and file.is_file() and file.stat().st_size <= LARGEST:
                yield Path(node.value).as_posix()


def _local_data(settings: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Path]]]:
    """Each local path in a task's settings, with the files there by the names that their copies get."""
    options = settings.get("dataset_kwargs") or {}
    for given in dict.fromkeys(
        _texts([settings.get("dataset_path"), options.get("data_files"), options.get("data_dir")])
    ):
        place = Path(given).expanduser()
        if REMOTE.match(given) or (given == settings.get("dataset_path") and "/" not in given):
            continue  # the name of one of the builders of `datasets`, such as json
        if place.is_file():
            yield given, {place.name: place}
        elif place.is_dir():
            inside = [file for file in sorted(place.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
            yield given, {f"{place.name}/{file.relative_to(place).as_posix()}": file for file in inside}
        elif found := sorted(filter(os.path.isfile, glob.glob(given, recursive=True))):  # noqa: PTH207 (may be absolute)
            above = os.path.commonpath([Path(file).parent for file in found])
            yield given, {Path(file).relative_to(above).as_posix(): Path(file) for file in found}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def _with_copied_includes(yaml: Path, places: Mapping[Path, str]) -> str:
    """The YAML's text, which includes the copies."""
    here = Path(places[yaml]).parent

    def rewritten(block: re.Match[str]) -> str:
        text = block[0]
        for name in _included(yaml):
            copy = Path(os.path.relpath(places[(yaml.parent / name).resolve()], here)).as_posix()
            text = re.sub(rf"(?<![\w./-]){re.escape(name)}(?![\w./-])", copy.replace("\\", r"\\"), text)
        return text

    return INCLUDED.sub(rewritten, yaml.read_text(encoding="utf-8"))


def _renamed(file: Path) -> str:
    """A name that lm_eval does not take for a task's."""
    return file.with_name(f"{file.stem}_yaml").as_posix() if file.suffix == ".yaml" else file.as_posix()


def _stem(task: str) -> str:
    return re.sub(r"[^\w.-]", "_", task)
