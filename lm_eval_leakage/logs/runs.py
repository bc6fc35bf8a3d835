"""Finds runs of the harness by their files, with model, time, tasks and samples logs."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.file_search import files_below, is_check
from lm_eval_leakage.logs.other_tools import run_reader_of
from lm_eval_leakage.logs.run import (
    CHAT_TEMPLATE,
    DATA,
    DRAW,
    IDENTITY,
    POSITIVE,
    REFERENCE,
    RESULTS,
    SYSTEM_INSTRUCTION,
    TIME,
    UNSEEN,
    Problem,
    Run,
    digest_of,
    in_brackets,
    model_named,
    recorded_arguments,
)

SAMPLES = re.compile(rf"samples_(?P<task>.+?)_(?P<time>{TIME})\.jsonl", re.DOTALL)
SHAPES: Mapping[str, type | tuple[type, ...]] = {  # types of the values in each section of a results file that is used
    "results": dict,
    "groups": dict,
    "group_subtasks": list,
    "n-shot": (int, str),
    "n-samples": dict,
    "config": object,
    "configs": dict,
    IDENTITY: str,
    DATA: str,
    DRAW: int,
}
OF_TASKS = ("results", "groups", "group_subtasks", "n-shot", "n-samples", "configs", DATA)  # sections by task or group
SECTIONS_KEPT = (*SHAPES, "lm_eval_version")
OF_PROMPTS = (f"{CHAT_TEMPLATE}_sha", f"{SYSTEM_INSTRUCTION}_sha")  # null means that none was used


def find_runs(places: Iterable[Path], problems: list[Problem]) -> list[Run]:
    """Return all runs in folders, at any depth, oldest first; for a file, the run to which it belongs.

    Raises ValueError for a path that does not exist, and if there is no run at all.
    """
    files = sorted(_once(file for place in places for file in _files(place, problems)).values())
    logs: dict[tuple[Path, str], dict[str, Path]] = defaultdict(dict)
    for file in files:
        if match := SAMPLES.fullmatch(file.name):
            logs[file.parent, match["time"]][match["task"]] = file
    runs: list[Run] = []
    for file in files:
        if read := run_reader_of(file):
            run = read(file, problems)
            if run is not None:
                runs.append(run)
        elif match := RESULTS.fullmatch(file.name):
            results = _results(file, problems)
            if results is not None:
                sections = {key: results.get(key) or {} for key in SECTIONS_KEPT}
                sections |= {key: results[key] for key in OF_PROMPTS if key in results}
                logs_of_run = logs.pop((file.parent, match["time"]), {})
                runs.append(Run(_model(results), match["time"], sections, file, logs_of_run))
    runs += [_without_results(folder, time, left, runs, problems) for (folder, time), left in logs.items()]
    if not runs:
        why = "".join(f"; {problem}" for problem in problems[:1])
        raise ValueError(
            f"no run of lm_eval is in {', '.join(map(str, places))}; name the folder that was its --output_path{why}"
        )
    return sorted(_by_identity(runs), key=lambda run: run.time)


def _by_identity(runs: Sequence[Run]) -> list[Run]:
    """Return the runs. If runs of one name have several identities, a digest of the identity is added to their names:
    weights that were trained further under the same path are another model."""
    digests: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        if run.identity:
            digests[run.model].add(digest_of(run.identity))
    named = []
    for run in runs:
        is_ambiguous = run.identity and len(digests[run.model]) > 1
        named.append(replace(run, model=f"{run.model}{in_brackets(run.identity)}") if is_ambiguous else run)
    return named


def without_tasks(run: Run, tasks: Collection[str]) -> Run:
    """Return a run without these tasks and groups."""

    def kept(section: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in section.items() if name not in tasks}

    sections = {name: kept(run.results.get(name) or {}) for name in OF_TASKS}
    return replace(run, results={**run.results, **sections}, logs=kept(run.logs))


def results_of(file: Path) -> dict[str, Any]:
    """Return all sections of a results file; empty if it cannot be read."""
    return _results(file, []) or {}


def _files(place: Path, problems: list[Problem]) -> Sequence[Path]:
    """Return the files in a folder; for a file of a run, all files of that run. Raises ValueError for neither."""
    if not place.exists():
        raise ValueError(f"{place} does not exist; name the folder that was the run's --output_path")
    if place.is_file():
        times = re.findall(TIME, place.name)
        if not times or run_reader_of(place):
            return [place]
        return [file for file in place.parent.iterdir() if file == place or times[-1] in file.name]

    return [file for file in _below(place, problems) if not _is_of_other_rows(file, place)]


def _is_of_other_rows(file: Path, place: Path) -> bool:
    """Return whether a file below a folder belongs to a check's reference, positive control or unseen questions.
    Returns False if the whole folder belongs to them."""
    above = [folder for folder in file.parents if folder.is_relative_to(place) and folder != place]
    return any(folder.name in (REFERENCE, UNSEEN, POSITIVE) and is_check(folder.parent) for folder in above)


def _below(place: Path, problems: list[Problem]) -> list[Path]:
    """Return the files in a folder; what cannot be listed, and links to nothing, become problems."""

    def unreadable(error: OSError) -> None:
        problems.append(Problem(f"left out: cannot be listed ({error.strerror})", Path(str(error.filename))))

    files = [*files_below(place, unreadable)]
    for file in files:
        if file.is_symlink() and not file.exists():
            problems.append(Problem("left out: a symbolic link to nothing", file))
    return [file for file in files if file.is_file()]


def _once(files: Iterable[Path]) -> dict[tuple[str, str], Path]:
    """Return each file once, whatever links lead to its folder, by the shortest path."""
    by_real_path: dict[tuple[str, str], Path] = {}
    for file in sorted(files, key=lambda file: (len(file.parts), file)):
        by_real_path.setdefault((os.path.realpath(file.parent), file.name), file)
    return by_real_path


def _results(file: Path, problems: list[Problem]) -> dict[str, Any] | None:
    """Return the sections of a results file without invalid parts; None for any other file."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        problems.append(Problem(f"left out: not a complete results file ({error})", file))
        return None
    if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
        return None
    sections: dict[str, dict[str, Any]] = {}
    for key, shape in SHAPES.items():
        section = content.get(key) or {}
        entries = section.items() if isinstance(section, dict) else ()
        sections[key] = {name: value for name, value in entries if isinstance(value, shape)}
        if sections[key] != section:
            problems.append(Problem(f"its {key!r} is not as the harness writes it; the invalid part is ignored", file))
    groups = sections["group_subtasks"].items()
    sections["group_subtasks"] = {
        name: [member for member in members if isinstance(member, str)] for name, members in groups
    }
    return content | sections


def _model(results: Mapping[str, Any]) -> str:
    """Return the name of the model in a results file."""
    config = results["config"]
    arguments = recorded_arguments(config.get("model_args"))
    name = results.get("model_name") or arguments.get("pretrained") or arguments.get("model") or config.get("model")
    return model_named(str(name or "model"), arguments)


def _without_results(
    folder: Path, time: str, logs: Mapping[str, Path], others: Sequence[Run], problems: list[Problem]
) -> Run:
    """Return the run of samples without a results file. Its model is the only one of other runs in the folder, if
    any."""
    beside = {run.model for run in others if run.results_file and run.results_file.parent == folder}
    model = beside.pop() if len(beside) == 1 else folder.name
    names = ", ".join(sorted(logs))
    problems.append(
        Problem(f"the run of {time} has samples of {names} but no results file; taken for a run of {model!r}", folder)
    )
    return Run(model, time, logs=logs)
