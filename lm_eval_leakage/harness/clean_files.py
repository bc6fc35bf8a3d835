"""Writes a folder of clean tasks for plain `lm_eval`: YAMLs, lists of questions, `clean_task.py`; and the command that
runs them with the model and options of the run that they were made from."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import lm_eval.tasks
from lm_eval.api.metrics import mean
from lm_eval.api.registry import DEFAULT_METRIC_REGISTRY, get_metric_aggregation

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.files import atomic_write, check_writable
from lm_eval_leakage.harness.clean_task import version_of
from lm_eval_leakage.harness.seams import pth_hook as hook
from lm_eval_leakage.harness.seams.registries import OUR_MODELS
from lm_eval_leakage.harness.seams.tasks import kind_of, task_settings
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.clean_sets import CleanSet, clean_name, render_group, render_questions, render_task

USUAL_DEVICE = "cuda:0"  # lm_eval's default, which results also name for a run on a CPU
READ_AS_IS = re.compile(r"[A-Za-z_./~-][\w./~:@+-]*")  # read back by lm_eval as it is
READ_OTHERWISE = ("true", "false", "none", "nan", "inf", "infinity")


def run_command(results: Mapping[str, Any], shots: Collection[str], folder: Path, tasks: Sequence[str]) -> str:
    """As typed in a shell; empty if the results do not name the model's kind.

    results: of a run of the base tasks
    shots: numbers of few-shot examples of these tasks; a single one is repeated in the command
    """
    config = results.get("config") or {}
    model = config.get("model")
    if not isinstance(model, str):
        return ""
    words = [_program(model), "--model", model, *_model_args(config.get("model_args"))]
    words += [*_options(results, config, shots), "--include_path", str(folder), "--tasks", ",".join(tasks)]
    return shlex.join(words)


def _program(model: str) -> str:
    """Clean tasks need only `lm_eval`; our models need the hook or our command."""
    known = model not in OUR_MODELS or hook.harness_discovers_plugins() or hook.hook_file().exists()
    return "lm_eval" if known else "lm-eval-leakage"


def _model_args(given: object) -> Iterator[str]:
    if not given:
        return
    yield "--model_args"
    if isinstance(given, Mapping):
        is_plain = all(map(_reads_back, given.values()))
        yield ",".join(f"{key}={value}" for key, value in given.items()) if is_plain else json.dumps(given)
    else:
        yield str(given)


def _reads_back(value: object) -> bool:
    """Whether lm_eval reads the value from `key=value` as it is."""
    if isinstance(value, str):
        return READ_AS_IS.fullmatch(value) is not None and value.lower() not in READ_OTHERWISE
    return isinstance(value, (bool, int))


def _options(results: Mapping[str, Any], config: Mapping[str, Any], shots: Collection[str]) -> Iterator[str]:
    """Those that the results tell and that change the answers."""
    if len(shots) == 1 and all(number.isdecimal() for number in shots):
        yield from ("--num_fewshot", *shots)
    if results.get("chat_template"):
        yield "--apply_chat_template"
    if isinstance(results.get("system_instruction"), str):
        yield from ("--system_instruction", results["system_instruction"])
    if config.get("batch_size") not in (None, 1, "1"):
        yield from ("--batch_size", str(config["batch_size"]))
    if config.get("device") not in (None, USUAL_DEVICE):
        yield from ("--device", str(config["device"]))


HARNESS_TASKS = Path(lm_eval.tasks.__file__).resolve().parent
KINDS = {"PY_TASK": "a task with its own class", "GROUP": "a group", "TAG": "a tag"}


class _NoCleanTask(Exception):
    """A set cannot be written as a task; the message says why."""


@dataclass(frozen=True)
class _Base:
    """metrics: metrics that a group may average over its members"""

    yaml: Path
    version: Any
    metrics: tuple[str, ...]


def own_folders(results: Iterable[Mapping[str, Any]]) -> list[str] | None:
    """Where tasks of these runs are that lm_eval does not have, such as one that `check` made from a file; None if
    there are none, as `TaskManager` takes it."""
    told = [config.get("metadata") for one in results for config in (one.get("configs") or {}).values()]
    sources = [metadata.get("config_source") for metadata in told if isinstance(metadata, Mapping)]
    files = {Path(source) for source in sources if isinstance(source, str) and Path(source).is_file()}
    known = (HARNESS_TASKS, task_configs_path())
    return sorted({str(file.parent) for file in files if not any(map(file.is_relative_to, known))}) or None


def write_clean(
    sets: Sequence[CleanSet],
    groups: Mapping[str, Sequence[str]],
    folder: Path,
    manager: Any,
    overwrite: bool = False,
) -> list[Problem]:
    """Writes the clean tasks that can be written, and returns why others cannot.

    groups: members of the runs' groups by name, including subgroups
    manager: a task manager that knows the base tasks
    overwrite: replace files of the folder that have different content

    Raises ValueError, and writes nothing, if no set can be written or a file of the folder has different content.
    """
    problems: list[Problem] = []
    bases = _bases(sets, manager, problems)
    if not bases:
        reasons = "; ".join(map(str, problems)) or "no set is given"
        raise ValueError(f"there is no clean task to write ({reasons}); give runs of base tasks with their audits")
    problems += [
        Problem(f"{task} is a task of your own, so its clean task runs only where {base.yaml} is")
        for task, base in bases.items()
        if not base.yaml.is_relative_to(HARNESS_TASKS)
    ]
    texts: dict[str, str] = {}
    for clean in sets:
        if clean.task in bases:
            texts |= _task_files(clean, bases[clean.task])
    texts |= _group_files(groups, bases, manager, problems)
    texts["clean_task.py"] = files(__package__).joinpath("clean_task.py").read_text(encoding="utf-8")
    _write(texts, folder, overwrite)
    return problems + _strangers(folder, texts)


def _bases(sets: Sequence[CleanSet], manager: Any, problems: list[Problem]) -> dict[str, _Base]:
    """The base task of each set that can be written as a task."""
    found = {}
    for clean in sets:
        try:
            found[clean.task] = _base_of(clean, manager)
        except _NoCleanTask as reason:
            problems.append(Problem(f"no {clean.name} is written: {reason}"))
    return found


def _base_of(clean: CleanSet, manager: Any) -> _Base:
    if not clean.kept:
        raise _NoCleanTask(f"nothing remains of the {clean.n_questions} questions ({_counts(clean)})")
    entry = manager.task_index.get(clean.task)
    if entry is None or (kind_of(entry) == "TASK" and entry.yaml_path is None):
        raise _NoCleanTask(f"the harness knows no YAML of {clean.task}; give its folder as include_path")
    if kind_of(entry) != "TASK":
        raise _NoCleanTask(
            f"{clean.task} is {KINDS.get(kind_of(entry), 'no task')}, whose questions cannot be chosen from outside"
        )
    try:
        config = task_settings(entry.yaml_path)
    except Exception as error:  # a task's own module may raise anything
        raise _NoCleanTask(f"{entry.yaml_path} cannot be loaded ({error!r})") from error
    if "task_list" in config or not isinstance(config["task"], str):
        raise _NoCleanTask(f"{entry.yaml_path} is a list of tasks, not one task's settings")
    path = entry.yaml_path.expanduser().resolve()
    return _Base(path, version_of(config), tuple(_means(config)))


def _counts(clean: CleanSet) -> str:
    counts = Counter(question.why for question in clean.left_out)
    return ", ".join(f"{why}: {count}" for why, count in counts.items())


def _means(config: Mapping[str, Any]) -> Iterator[str]:
    """The metrics of a task that are means over its questions."""
    default = [{"metric": name} for name in DEFAULT_METRIC_REGISTRY[config.get("output_type", "generate_until")]]
    for entry in config.get("metric_list") or default:
        name = entry.get("metric")
        if isinstance(name, str) and (entry.get("aggregation") or get_metric_aggregation(name)) in ("mean", mean):
            yield name


def _task_files(clean: CleanSet, base: _Base) -> Iterator[tuple[str, str]]:
    is_own = not base.yaml.is_relative_to(HARNESS_TASKS)
    place = {"base_yaml": (base.yaml if is_own else base.yaml.relative_to(HARNESS_TASKS)).as_posix()}
    stem = _file_stem(clean.name)
    made_with = {package: version(package) for package in ("lm_eval_leakage", "lm_eval")}
    yield f"{stem}.yaml", render_task(clean, place, base.version, f"{stem}.json")
    yield f"{stem}.json", render_questions(clean, made_with)


def _group_files(
    groups: Mapping[str, Sequence[str]], bases: Mapping[str, _Base], manager: Any, problems: list[Problem]
) -> Iterator[tuple[str, str]]:
    for name, members in groups.items():
        left = [member for member in dict.fromkeys(members) if set(_leaves(member, groups)) & bases.keys()]
        if not members:  # the harness lists single tasks as groups without members
            continue
        if name in bases:
            problems.append(Problem(f"no group {clean_name(name)} is written: a task has that name"))
        elif not left:
            problems.append(Problem(f"no group {clean_name(name)} is written: none of its tasks has a clean one"))
        else:
            leaves = [bases[leaf] for leaf in _leaves(name, groups) if leaf in bases]
            first, *others = leaves
            metrics = [metric for metric in first.metrics if all(metric in other.metrics for other in others)]
            problems += _group_problems(name, set(members) - set(left), metrics)
            entry = manager.task_index.get(name)
            of_group = version_of(entry.cfg) if entry is not None and entry.cfg else None
            text = render_group(clean_name(name), [clean_name(member) for member in left], metrics, of_group)
            yield f"{_file_stem(clean_name(name))}.yaml", text


def _group_problems(name: str, missing: set[str], metrics: Sequence[str]) -> Iterator[Problem]:
    if missing:
        names = ", ".join(sorted(missing))
        yield Problem(f"{clean_name(name)} lacks {names}, which have no clean task")
    if not metrics:
        yield Problem(f"{clean_name(name)} shows no accuracy: its tasks have no metric in common")


def _leaves(name: str, groups: Mapping[str, Sequence[str]], above: frozenset[str] = frozenset()) -> Iterator[str]:
    """The tasks of a group and its subgroups; for a task, the task itself."""
    members = groups.get(name)
    if not members:
        yield name
    elif name not in above:
        for member in dict.fromkeys(members):
            yield from _leaves(member, groups, above | {name})


def _file_stem(name: str) -> str:
    """A file name for a task name; escapes characters that files cannot have, and is unique per task name."""
    return quote(name, safe="()+")


def _write(texts: Mapping[str, str], folder: Path, overwrite: bool) -> None:
    others = [name for name, text in texts.items() if _says_else(folder / name, text)]
    if others and not overwrite:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        raise ValueError(
            f"{folder / others[0]}{more} has different content, from another run; choose a new folder, or overwrite"
        )
    check_writable(folder, folder=True)
    for name in sorted(texts, key=lambda name: name.endswith(".yaml")):  # after the files that it refers to
        atomic_write(folder / name, texts[name])


def _says_else(file: Path, text: str) -> bool:
    return file.exists() and file.read_bytes() != text.encode("utf-8", "replace")


def _strangers(folder: Path, texts: Mapping[str, str]) -> list[Problem]:
    """Warns of other YAMLs in the folder, since the harness reads every YAML below it."""
    return [
        Problem("a task file that this run did not write; the harness reads it too", file)
        for file in sorted(folder.rglob("*.yaml"))
        if str(file.relative_to(folder)) not in texts
    ]
