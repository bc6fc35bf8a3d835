"""Writes a folder of clean tasks for plain `lm_eval`: YAMLs, lists of questions, `clean_task.py`; and the command that
runs them with the model and options of the run that they were made from."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from lm_eval.api.metrics import mean
from lm_eval.api.registry import DEFAULT_METRIC_REGISTRY, get_metric_aggregation
from lm_eval.utils import simple_parse_args_string

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.files import atomic_write, check_writable
from lm_eval_leakage.harness.clean_task import version_of
from lm_eval_leakage.harness.own_benchmark import INSTALLED_TASKS
from lm_eval_leakage.harness.seams import pth_hook as hook
from lm_eval_leakage.harness.seams.registries import OUR_MODELS
from lm_eval_leakage.harness.seams.tasks import kind_of, own_settings
from lm_eval_leakage.logs.run import Problem, leaves
from lm_eval_leakage.results.clean_sets import CleanSet, clean_name, render_group, render_questions, render_task

USUAL_DEVICE = "cuda:0"  # lm_eval's default, which results also name for a run on a CPU
GROUPING = frozenset("[]{}()\"'\n")  # characters that lm_eval's command line reads in another way


def run_command(results: Mapping[str, Any], shots: Collection[str], folder: Path, tasks: Sequence[str]) -> str:
    """As typed in a shell, with the options that the results tell and that change the answers; empty if the results do
    not name the model's kind.

    results: of a run of the base tasks
    shots: numbers of few-shot examples of these tasks; a single one is repeated in the command
    """
    config = results.get("config") or {}
    model = config.get("model")
    if not isinstance(model, str):
        return ""
    # clean tasks need only `lm_eval`; our models need the hook or our command
    is_known = model not in OUR_MODELS or hook.harness_discovers_plugins() or hook.hook_file().exists()
    words = ["lm_eval" if is_known else "lm-eval-leakage", "--model", model]
    if config.get("model_args"):
        words += ["--model_args", _as_typed(config["model_args"])]
    if len(shots) == 1 and all(number.isdecimal() for number in shots):
        words += ["--num_fewshot", *shots]
    if results.get("chat_template"):
        words.append("--apply_chat_template")
    if isinstance(results.get("system_instruction"), str):
        words += ["--system_instruction", results["system_instruction"]]
    if config.get("batch_size") not in (None, 1, "1"):
        words += ["--batch_size", str(config["batch_size"])]
    if config.get("device") not in (None, USUAL_DEVICE):
        words += ["--device", str(config["device"])]
    return shlex.join([*words, "--include_path", str(folder), "--tasks", ",".join(tasks)])


def _as_typed(model_args: object) -> str:
    """`key=value,..` if lm_eval reads that back as it is, else JSON."""
    if not isinstance(model_args, Mapping):
        return str(model_args)
    plain = ",".join(f"{key}={value}" for key, value in model_args.items())
    odd = any(char.isnumeric() and not char.isdecimal() for char in plain)  # such as ², a number to lm_eval
    if odd or GROUPING & set(plain) or repr(simple_parse_args_string(plain)) != repr(dict(model_args)):
        return json.dumps(model_args)
    return plain


class _Base(NamedTuple):
    """metrics: metrics that a group may average over its members"""

    yaml: Path
    version: Any
    metrics: Sequence[str]


def own_folders(results: Iterable[Mapping[str, Any]]) -> list[str] | None:
    """Where tasks of these runs are that lm_eval does not have, such as one that `check` made from a file; None if
    there are none, as `TaskManager` takes it."""
    told = [config.get("metadata") for one in results for config in (one.get("configs") or {}).values()]
    sources = [metadata.get("config_source") for metadata in told if isinstance(metadata, Mapping)]
    files = {Path(source) for source in sources if isinstance(source, str) and Path(source).is_file()}
    known = (INSTALLED_TASKS, task_configs_path())
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
            told = f"{clean.task} is a task of your own, so its clean task runs only where {base.yaml} is"
            problems.append(Problem(told))
        stem = _file_stem(clean.name)
        texts[f"{stem}.yaml"] = render_task(clean, {"base_yaml": place}, base.version, f"{stem}.json")
        texts[f"{stem}.json"] = render_questions(clean, made_with)
    if not bases:
        reasons = "; ".join(map(str, problems))
        raise ValueError(f"there is no clean task to write ({reasons}); give runs of base tasks with their audits")
    texts |= _group_files(groups, bases, manager, problems)
    texts["clean_task.py"] = files(__package__).joinpath("clean_task.py").read_text(encoding="utf-8")
    _write(texts, folder, overwrite)
    return problems


def _base_of(clean: CleanSet, manager: Any) -> _Base | str:
    """The task that is restricted, or why it cannot be."""
    if not clean.kept:
        counts = Counter(question.why for question in clean.left_out).items()
        told = ", ".join(f"{why}: {count}" for why, count in counts)
        return f"nothing remains of the {clean.n_questions} questions ({told})"
    entry = manager.task_index.get(clean.task)
    if entry is not None and kind_of(entry) == "PY_TASK":
        return f"{clean.task} is a task with its own class, whose questions cannot be chosen from outside"
    if entry is None or entry.yaml_path is None or kind_of(entry) != "TASK":
        return f"the harness knows no YAML of a task {clean.task}; give its folder as include_path"
    config = own_settings(entry.yaml_path, includes=True)
    return _Base(entry.yaml_path.expanduser().resolve(), version_of(config), [*_means(config)])


def _means(config: Mapping[str, Any]) -> Iterator[str]:
    """The metrics of a task that are means over its questions."""
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
    """A file name for a task name; escapes characters that files cannot have, and is unique per task name."""
    return quote(name, safe="()+")


def _write(texts: Mapping[str, str], folder: Path, overwrite: bool) -> None:
    files = {folder / name: text for name, text in texts.items()}
    others = [f for f, text in files.items() if f.exists() and f.read_bytes() != text.encode("utf-8", "replace")]
    if others and not overwrite:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        raise ValueError(
            f"{others[0]}{more} has different content, from another run; choose a new folder, or overwrite"
        )
    check_writable(folder, folder=True)
    for file in sorted(files, key=lambda file: file.suffix == ".yaml"):  # after the files that it refers to
        atomic_write(file, files[file])
