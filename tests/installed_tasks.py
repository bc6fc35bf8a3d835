"""The multiple-choice tasks that lm_eval installs, with rows in the shape of their data or, where that is not known
here, made from the fields that their settings name.

No data are fetched: `datasets.load_dataset` is replaced. Of several ways to write the right answer, rows have the
first with which the task can be loaded. Rows that it cannot render at all are as damaged data have them, which must
end in a reason, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import lm_eval.tasks
import pytest
from jinja2 import Environment, TemplateSyntaxError, meta

from lm_eval_leakage.harness.auditable import Coverage, judge
from lm_eval_leakage.harness.seams.tasks import own_settings
from tests.real_shapes import BBH, row_maker

ROOT = Path(lm_eval.tasks.__file__).parent
N_ROWS = 24
RENDERING = ("doc_to_text", "doc_to_choice", "doc_to_target", "process_docs")
SUBSCRIPT = re.compile(r"""\w\s*\[\s*["']([\w .-]+)["']\s*\]|\.get\(\s*["']([\w .-]+)["']""")
REQUIRED = re.compile(r"""\[["']([\w .-]+)["']\]\s*==\s*["']([^"'\n]+)["']""")  # what a task's rows are filtered by
FREE_TEXT = re.compile(r"\}\}.*?(?=\{\{|$)|^.*?(?=\{\{)", re.DOTALL)  # of a template, outside of its expressions
OF_TEXTS = {
    "strip",
    "lower",
    "upper",
    "replace",
    "rstrip",
    "lstrip",
    "split",
    "format",
    "capitalize",
    "title",
    "index",
}
LISTED = re.compile(r"choices|options|endings|answers|candidates|alternatives|ending_options|possible|multiple_choice")
RIGHT = re.compile(r"answer|label|gold|target|correct|idx|class|sentiment|solution|key|category")
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll", "ledge")


@dataclass(frozen=True)
class InstalledTask:
    """A task that lm_eval installs.

    name: of the task; file: its YAML; settings: with its includes, functions by their names
    """

    name: str
    file: Path
    settings: Mapping[str, Any]

    @property
    def family(self) -> str:
        """The first folder below lm_eval's tasks."""
        return self.file.relative_to(ROOT).parts[0]

    @property
    def shape(self) -> tuple[str, ...]:
        """Return what tasks of one family that are read in the same way have in common."""
        names = ("dataset_path", "dataset_name" if self.settings.get("dataset_path") == BBH else "")
        data = [str(self.settings.get(name)) for name in names if row_maker(self.settings)]
        return (self.family, *data, *map(self._shape_of, RENDERING))

    def _shape_of(self, key: str) -> str:
        value = self.settings.get(key)
        if not self.has_function(key):
            return FREE_TEXT.sub("", str(value))
        module = Path(f"{str(value).rpartition('.')[0]}.py")
        return module.read_text(encoding="utf-8") if module.is_file() else "a function"

    def has_function(self, key: str) -> bool:
        value = self.settings.get(key)
        return callable(value) or (isinstance(value, str) and value.startswith("/"))


def _task_in(file: Path) -> InstalledTask | None:
    """The multiple-choice task of a YAML; None for anything else."""
    try:
        settings = own_settings(file, includes=True)
    except Exception:  # lm_eval leaves such files out, too
        return None
    is_one = settings.get("output_type") == "multiple_choice" and isinstance(settings.get("task"), str)
    return InstalledTask(settings["task"], file, settings) if is_one else None


def one_of_each_family() -> Iterator[InstalledTask]:
    """The first task of each family."""
    for folder in sorted(place for place in ROOT.iterdir() if place.is_dir()):
        tasks = (_task_in(file) for file in sorted(folder.rglob("*.yaml")))
        yield from islice((task for task in tasks if task is not None), 1)


def all_tasks() -> Iterator[InstalledTask]:
    """All multiple-choice tasks, by their files."""
    return filter(None, map(_task_in, sorted(ROOT.rglob("*.yaml"))))


def of_each_shape() -> list[InstalledTask]:
    """The first task of each shape."""
    shapes: dict[tuple[str, ...], InstalledTask] = {}
    for task in all_tasks():
        shapes.setdefault(task.shape, task)
    return [*shapes.values()]


# ---------------------------------------------------------------------- rows


def rows_of(task: InstalledTask) -> Iterator[list[dict[str, Any]]]:
    """Rows in the shape of the task's data; or with the fields that it names, in several ways to write the right
    answer."""
    if (made := row_maker(task.settings)) is not None:
        yield [made(row) for row in range(N_ROWS)]
        return
    text = "\n".join(str(task.settings.get(key) or "") for key in RENDERING)
    modules = "".join(file.read_text(encoding="utf-8") for file in sorted(task.file.parent.glob("*.py")))
    source = f"{text}\n{modules}" if any(map(task.has_function, RENDERING)) else text
    names = dict.fromkeys(name for pair in SUBSCRIPT.findall(source) for name in pair if name)
    environment = Environment()
    for key in RENDERING:
        value = task.settings.get(key)
        if not isinstance(value, str) or task.has_function(key):
            continue
        try:
            names |= dict.fromkeys(sorted(meta.find_undeclared_variables(environment.parse(value))))
        except TemplateSyntaxError:
            continue
        if re.fullmatch(r"\w+", value):
            names[value] = None
    required = dict(REQUIRED.findall(source))
    for right in (0, "A", "0", "1", "a", 1, "yes", True, "CHOICE"):
        yield [{name: _value(name, row, source, right, required) for name in names} for row in range(N_ROWS)]


def _value(name: str, row: int, source: str, right: object, required: Mapping[str, str], *, depth: int = 0) -> Any:
    if name in required:
        return required[name]
    used = re.escape(name)
    members = {member for member in re.findall(rf"\b{used}\.(\w+)\b", source) if member not in OF_TEXTS}
    members |= set(re.findall(rf"""\b{used}["']?\]?\[["'](\w+)["']\]""", source))
    if members and depth < 2:
        return {member: _value(member, row, source, right, required, depth=depth + 1) for member in sorted(members)}
    is_indexed = re.search(rf"""\b{used}["']?\]?\[\d""", source)
    texts = [f"{WORDS[(row + place) % len(WORDS)]} {name} {row} {place}" for place in range(4)]
    if LISTED.fullmatch(name.lower()) or is_indexed or (depth and name in ("text", "label", "labels")):
        return texts if name not in ("label", "labels") else list("ABCD") if name == "label" else [1, 0, 0, 0]
    if RIGHT.search(name.lower()) and not re.search(r"\d$|[_ ]?[a-e]$", name.lower()):
        return texts[0] if right == "CHOICE" else right
    if re.search("sentence|context|text", name.lower()):
        return f"{texts[0]} has a _ in it"
    return texts[0]


SPLITS = ("test_split", "validation_split", "training_split", "fewshot_split")


@contextmanager
def given_rows(task: InstalledTask, rows: list[dict[str, Any]]) -> Iterator[None]:
    """Within the block, every data set has these rows in each split that the task names."""
    splits = dict.fromkeys(filter(None, map(task.settings.get, SPLITS)))

    def load_dataset(*_: object, split: str | None = None, **__: object) -> Any:
        table = datasets.Dataset.from_list(rows)
        return table if split else datasets.DatasetDict(dict.fromkeys([*splits, "train", "validation", "test"], table))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load_dataset", load_dataset)
        yield


def coverage_of(task: InstalledTask) -> tuple[list[dict[str, Any]], str, str]:
    """Rows of a task, and what `ls` finds of it with them: the first rows with which the task can be loaded."""
    first = None
    for rows in rows_of(task):
        with given_rows(task, rows):
            _, status, reason, _ = judge(task.name, SimpleNamespace(cfg=task.settings, yaml_path=task.file))
        first = first or (rows, status, reason)
        if status != Coverage.UNKNOWN:
            return rows, status, reason
    assert first is not None
    return first
