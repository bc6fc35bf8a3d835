"""Writes a folder of clean tasks for plain `lm_eval`: YAMLs, lists of questions, `clean_task.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from lm_eval.api.metrics import mean
from lm_eval.api.registry import DEFAULT_METRIC_REGISTRY, get_metric_aggregation

from lm_eval_leakage.files import atomic_write, check_writable
from lm_eval_leakage.harness.clean_task import version_of
from lm_eval_leakage.harness.own_benchmark import INSTALLED_TASKS
from lm_eval_leakage.harness.seams.tasks import kind_of
from lm_eval_leakage.logs.run import Problem, leaves
from lm_eval_leakage.results.clean_sets import CleanSet, clean_name, render_group, render_questions, render_task


class _Base(NamedTuple):
    """The base task of a clean task.

    metrics: metrics that a group may average over its members
    """

    yaml: Path
    version: Any
    metrics: Sequence[str]


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
    bases: dict[str, _Base] = {}
    texts: dict[str, str] = {}
    made_with = {package: version(package) for package in ("lm_eval_leakage", "lm_eval")}
    for clean in sets:
        base = _base_of(clean, manager)
        if isinstance(base, str):
            problems.append(Problem(f"no {clean.name} is written: {base}"))
            continue
        bases[clean.task] = base
        is_own = not base.yaml.is_relative_to(INSTALLED_TASKS)
        place = (base.yaml if is_own else base.yaml.relative_to(INSTALLED_TASKS)).as_posix()
        if is_own:
            note = f"{clean.task} is a task of your own, so its clean task runs only where {base.yaml} is"
            problems.append(Problem(note))
        stem = _file_stem(clean.name)
        texts[f"{stem}.yaml"] = render_task(clean, {"base_yaml": place}, base.version, f"{stem}.json")
        texts[f"{stem}.json"] = render_questions(clean, made_with)
    if not bases:
        reasons = "; ".join(map(str, problems))
        remedy = "" if all(clean.why_untested for clean in sets) else "; give runs of base tasks with their audits"
        raise ValueError(f"there is no clean task to write ({reasons}){remedy}")
    texts |= _group_files(groups, bases, manager, problems)
    texts["clean_task.py"] = files(__package__).joinpath("clean_task.py").read_text(encoding="utf-8")
    _write(texts, folder, overwrite)
    return problems


def _base_of(clean: CleanSet, manager: Any) -> _Base | str:
    """Return the task that is restricted, or why it cannot be."""
    if not clean.kept:
        counts = Counter(question.why for question in clean.left_out).items()
        tally = ", ".join(f"{why}: {count}" for why, count in counts)
        reason = f"; most are untested because {clean.why_untested}" if clean.why_untested else ""
        return f"nothing remains of the {clean.n_questions} questions ({tally}{reason})"
    entry = manager.task_index.get(clean.task)
    if entry is not None and kind_of(entry) == "PY_TASK":
        return f"{clean.task} is a task with its own class, whose questions cannot be chosen from outside"
    if entry is None or entry.yaml_path is None or kind_of(entry) != "TASK":
        return f"the harness knows no YAML of a task {clean.task}; give its folder as include_path"
    config = entry.cfg or {}
    return _Base(entry.yaml_path.expanduser().resolve(), version_of(config), [*_means(config)])


def _means(config: Mapping[str, Any]) -> Iterator[str]:
    """Return the metrics of a task that are means over its questions."""
    default = [{"metric": name} for name in DEFAULT_METRIC_REGISTRY[config.get("output_type", "generate_until")]]
    for entry in config.get("metric_list") or default:
        name = entry["metric"]
        is_named = "/" not in name  # else it is a function, as the path of its module
        if is_named and (entry.get("aggregation") or get_metric_aggregation(name)) in ("mean", mean):
            yield name


def _group_files(
    groups: Mapping[str, Sequence[str]], bases: Mapping[str, _Base], manager: Any, problems: list[Problem]
) -> Iterator[tuple[str, str]]:
    for group, members in groups.items():
        name = clean_name(group)
        left = [member for member in dict.fromkeys(members) if set(leaves(member, groups)) & bases.keys()]
        if not members:  # the harness lists single tasks as groups without members
            continue
        if not left:
            problems.append(Problem(f"no group {name} is written: none of its tasks has a clean one"))
            continue
        if missing := sorted(set(members) - set(left)):
            problems.append(Problem(f"{name} lacks {', '.join(missing)}, which have no clean task"))
        first, *others = [bases[leaf] for leaf in leaves(group, groups) if leaf in bases]
        metrics = [metric for metric in first.metrics if all(metric in other.metrics for other in others)]
        if not metrics:
            problems.append(Problem(f"{name} shows no accuracy: its tasks have no metric in common"))
        entry = manager.task_index.get(group)
        of_group = version_of(entry.cfg) if entry is not None and entry.cfg else None
        yield f"{_file_stem(name)}.yaml", render_group(name, [*map(clean_name, left)], metrics, of_group)


def _file_stem(name: str) -> str:
    """Return a file name for a task name; escapes characters that files cannot have, and is unique per task name."""
    return quote(name, safe="()+")


def _write(texts: Mapping[str, str], folder: Path, overwrite: bool) -> None:
    files = {folder / name: text for name, text in texts.items()}
    others = [file for file, text in files.items() if _has_other_content(file, text)]
    if others and not overwrite:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        raise ValueError(
            f"{others[0]}{more} has different content, from another run; choose a new folder, or overwrite"
        )
    check_writable(folder, folder=True)
    for file in sorted(files, key=lambda file: file.suffix == ".yaml"):  # after the files that it refers to
        atomic_write(file, files[file])


def _has_other_content(file: Path, text: str) -> bool:
    return file.exists() and file.read_bytes() != text.encode("utf-8", "replace")
