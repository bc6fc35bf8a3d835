"""Puts the shards of one run together: they have the model, the options and the number of shards in common.

Runs of the harness, found by their files: which model, when, which tasks, where their samples are.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.other_tools import reader_of
from lm_eval_leakage.logs.run import (
    DATA,
    DRAW,
    IDENTITY,
    OF_ALL_SHARDS,
    RESULTS,
    SHARD,
    TIME,
    Problem,
    Run,
    RunShard,
    ShardSet,
    arguments_of,
    digest_of,
    in_brackets,
    model_named,
    n_told,
    shard_in,
)

OF_CALL = ("system_instruction_sha", "chat_template_sha", "fewshot_as_multiturn")
OF_CONFIG = ("model", "limit", "gen_kwargs", "random_seed", "numpy_seed", "torch_seed", "fewshot_seed")
OF_PLACE = ("device", "batch_size", "max_batch_size", "config_source")  # may differ between shards
ADDRESS = re.compile(r"0x[0-9a-f]+")  # of a function, which results files name by it


def pooled_runs(runs: Sequence[Run], problems: list[Problem]) -> list[Run]:
    """The runs, oldest first, those that are shards of one run put together to one."""
    whole: list[Run] = []
    attempts: dict[tuple[str, str, int, str, int, str], list[tuple[int, Run]]] = defaultdict(list)
    for run in runs:
        shards = _shards(run, problems)
        if len(shards) < len(run.results.get("configs") or {}) or not shards:
            whole.append(without_tasks(run, shards))
        for task, (shard, n_questions, settings) in shards.items():
            key = run.key, _settings_of_call(run.results), shard.n, task, n_questions, settings
            attempts[key].append((shard.index, run))
    alike: dict[tuple[str, str, int], list[dict[str, ShardSet]]] = defaultdict(list)
    for (model, call, n, task, n_questions, _), found in attempts.items():
        own = next((sets for sets in alike[model, call, n] if task not in sets), None)
        if own is None:
            alike[model, call, n].append(own := {})
        own[task] = ShardSet(task, n, n_questions, _best(task, found))
    pooled = [_as_one_run(sets) for several in alike.values() for sets in several]
    return sorted([*whole, *pooled], key=lambda run: run.time)


def _best(task: str, attempts: Sequence[tuple[int, Run]]) -> dict[int, Run]:
    """The runs of each shard, in order; of several attempts, the newest complete one."""
    return dict(sorted(attempts, key=lambda one: (one[0], _is_complete(one[1], task), one[1].time)))


def _as_one_run(sets: Mapping[str, ShardSet]) -> Run:
    runs = sorted((run for own in sets.values() for run in own.found.values()), key=lambda run: run.time)
    newest, first = runs[-1], {task: next(iter(own.found.values())) for task, own in sets.items()}
    counts = {task: (run.results.get("n-samples") or {}).get(task, {}) for task, run in first.items()}
    sections = {name: newest.results.get(name) for name in ("lm_eval_version", IDENTITY, DRAW)}
    for section in ("group_subtasks", "n-shot", "configs", DATA):
        parts = [run.results.get(section) or {} for run in runs]
        sections[section] = {name: value for part in parts for name, value in part.items()}
    sections |= {
        # the names of metrics alone: the values of single shards say nothing about the run
        "results": {
            task: dict.fromkeys(key for one in own.found.values() for key in one.results["results"].get(task, {}))
            for task, own in sets.items()
        },
        "n-samples": {task: {**counts[task], "effective": own.n_asked} for task, own in sets.items()},
    }
    logs = {task: own.logs[0] for task, own in sets.items() if own.logs}
    return Run(newest.model, newest.time, sections, next(iter(first.values())).results_file, logs, sets)


def _shards(run: Run, problems: list[Problem]) -> dict[str, tuple[RunShard, int, str]]:
    """The tasks of which a run asked a shard, in the order of its results, each with the shard, how many questions all
    shards have, and its settings. A plain lm_eval knows no shards, and asks all questions."""
    found, ignored, configs = {}, [], run.results.get("configs") or {}
    for task in (name for name in run.results.get("results") or () if name in configs):
        metadata = configs[task].get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        try:
            shard, n_questions = shard_in(metadata), metadata.get(OF_ALL_SHARDS)
        except ValueError:
            continue  # a key of another package
        if shard is not None and isinstance(n_questions, int) and run.results_file is not None:
            found[task] = shard, n_questions, _settings(run, task, configs[task])
        elif shard is not None:
            ignored.append(task)
    if ignored:
        what = (
            f"was to ask a shard of {', '.join(ignored)}, but asked all questions, since lm_eval ran without this "
            "package (`lm-eval-leakage plugin enable` adds it); taken for a whole run"
        )
        problems.append(Problem(what, run.results_file))
    return found


def _settings_of_call(results: Mapping[str, Any]) -> str:
    config = results.get("config") or {}
    told = [[results.get(key) for key in OF_CALL], [config.get(key) for key in OF_CONFIG]]
    return _as_text([*told, _without(arguments_of(config.get("model_args")), OF_PLACE)])


def _settings(run: Run, task: str, config: Mapping[str, Any]) -> str:
    told = _without(config.get("metadata") or {}, (*OF_PLACE, SHARD))
    n_shot = (run.results.get("n-shot") or {}).get(task)
    return ADDRESS.sub("", _as_text([{**config, "metadata": told}, n_shot]))


def _without(section: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name not in names}


def _as_text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def without_tasks(run: Run, tasks: Collection[str]) -> Run:
    """The run with its other tasks only."""
    own = {
        key: _without(section, tasks) if isinstance(section, dict) else section for key, section in run.results.items()
    }
    return replace(run, results=own, logs=_without(run.logs, tasks), shards=_without(run.shards, tasks))


def _is_complete(run: Run, task: str) -> bool:
    """Whether the log has a line for each question and filter."""
    if (log := run.logs.get(task)) is None:
        return False
    keys = (key.partition(",") for key in run.results["results"].get(task, {}))
    filters = {name for _, comma, name in keys if comma}
    try:
        with log.open("rb") as lines:
            return sum(line.endswith(b"\n") for line in lines) >= (n_told(run, task) or 0) * max(1, len(filters))
    except OSError:
        return False


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
SECTIONS_KEPT = (*SHAPES, *OF_CALL, "lm_eval_version")


def find_runs(places: Iterable[Path], problems: list[Problem]) -> list[Run]:
    """All runs in folders, at any depth, oldest first; for a file, the run that it belongs to. Shards of one run are
    one run.

    Raises ValueError for a path that does not exist, and if no run is found at all.
    """
    files = sorted({file for place in places for file in _files(place, problems)})
    logs: dict[tuple[Path, str], dict[str, Path]] = defaultdict(dict)
    for file in files:
        if match := SAMPLES.fullmatch(file.name):
            logs[file.parent, match["time"]][match["task"]] = file
    runs: list[Run] = []
    for file in files:
        if read := reader_of(file):
            runs += filter(None, [read(file, problems)])
        elif (match := RESULTS.fullmatch(file.name)) and (found := _results(file, problems)) is not None:
            sections = {key: found.get(key) or {} for key in SECTIONS_KEPT}
            own = logs.pop((file.parent, match["time"]), {})
            runs.append(Run(_model(found), match["time"], sections, file, own))
    runs += [_without_results(*place, own, runs, problems) for place, own in logs.items()]
    if not runs:
        why = "".join(f"; {problem}" for problem in problems[:1])
        raise ValueError(
            f"no run of lm_eval is in {', '.join(map(str, places))}; name the folder that was its --output_path{why}"
        )
    return pooled_runs(sorted(_by_identity(runs), key=lambda run: run.time), problems)


def _by_identity(runs: Sequence[Run]) -> list[Run]:
    """The runs, where models of one name are known to be different ones with a digest of their identity in the name:
    weights that were trained further under the same path are another model."""
    known: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        known[run.model] |= {digest_of(run.identity)} if run.identity else set()
    return [
        replace(run, model=f"{run.model}{in_brackets(run.identity)}")
        if run.identity and len(known[run.model]) > 1
        else run
        for run in runs
    ]


def results_of(file: Path) -> dict[str, Any]:
    """All sections of a results file; none if it cannot be read."""
    return _results(file, []) or {}


def _files(place: Path, problems: list[Problem]) -> Sequence[Path]:
    if not place.exists():
        raise ValueError(f"{place} does not exist; name the folder that was the run's --output_path")
    if place.is_file():
        times = re.findall(TIME, place.name)
        if not times or reader_of(place):
            return [place]
        return [file for file in place.parent.iterdir() if file == place or times[-1] in file.name]

    def unreadable(error: OSError) -> None:
        problems.append(Problem(f"left out: cannot be listed ({error.strerror})", Path(str(error.filename))))

    found = [Path(folder, name) for folder, _, names in os.walk(place, onerror=unreadable) for name in names]
    return [file for file in found if file.is_file()]


def _results(file: Path, problems: list[Problem]) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        problems.append(Problem(f"left out: not a complete results file ({error})", file))
        return None
    if not isinstance(found, dict) or not isinstance(found.get("results"), dict):
        return None
    sections: dict[str, dict[str, Any]] = {}
    for key, shape in SHAPES.items():
        section = found.get(key) or {}
        entries = section.items() if isinstance(section, dict) else ()
        sections[key] = {name: value for name, value in entries if isinstance(value, shape)}
        if sections[key] != section:
            problems.append(Problem(f"its {key!r} is not as the harness writes it; the invalid part is ignored", file))
    groups = sections["group_subtasks"].items()
    sections["group_subtasks"] = {name: [one for one in own if isinstance(one, str)] for name, own in groups}
    return found | sections


def _model(results: Mapping[str, Any]) -> str:
    config = results["config"]
    arguments = arguments_of(config.get("model_args"))
    name = results.get("model_name") or arguments.get("pretrained") or arguments.get("model") or config.get("model")
    return model_named(str(name or "model"), arguments)


def _without_results(
    folder: Path, time: str, logs: Mapping[str, Path], others: Sequence[Run], problems: list[Problem]
) -> Run:
    """Samples without a results file, taken to be of the one model that the other runs in the folder have."""
    beside = {run.model for run in others if run.results_file and run.results_file.parent == folder}
    model = beside.pop() if len(beside) == 1 else folder.name
    names = ", ".join(sorted(logs))
    problems.append(
        Problem(f"the run of {time} has samples of {names} but no results file; taken for a run of {model!r}", folder)
    )
    return Run(model, time, logs=logs)
