"""Commands with the model and options of a run: to run its clean tasks, or to audit its questions."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.arguments import typed_args
from lm_eval_leakage.harness.own_benchmark import INSTALLED_TASKS
from lm_eval_leakage.harness.seams import pth_hook as hook
from lm_eval_leakage.harness.seams.registries import OUR_MODELS, model_names
from lm_eval_leakage.logs.runs import results_of

USUAL_DEVICE = "cuda:0"  # lm_eval's default, which results also name for a run on a CPU


def run_command(results: Mapping[str, Any], shots: Collection[str], folder: Path, tasks: Sequence[str]) -> str:
    """Return the command of a run as typed in a shell, with the options that the results record and that change the
    answers; empty if the results do not name the model's kind.

    results: of a run of the base tasks
    shots: numbers of few-shot examples of these tasks; a single one is repeated in the command
    """
    model = (results.get("config") or {}).get("model")
    if not isinstance(model, str):
        return ""
    # clean tasks need only `lm_eval`; our models need the hook or our command
    is_known = model not in OUR_MODELS or hook.harness_discovers_plugins() or hook.hook_file().exists()
    words = ["lm_eval" if is_known else "lm-eval-leakage", *_options(results, shots)]
    return shlex.join([*words, "--include_path", str(folder), "--tasks", ",".join(tasks)])


def audit_command(results_file: Path, task: str, n_shot: str) -> str:
    """Return the command that audits exactly the questions of a run's task; empty if its results do not name the
    model's kind."""
    results = results_of(results_file)
    if (results.get("config") or {}).get("model") not in model_names():
        return ""
    words = ["lm-eval-leakage", "check", *_options(results, {n_shot} - {"", "0"}), "--tasks", task]
    folders = own_folders([{"configs": {task: (results.get("configs") or {}).get(task) or {}}}])
    words += ["--include_path", ":".join(folders)] if folders else []
    return shlex.join([*words, "--runs", str(results_file), "--questions", "all"])


def _options(results: Mapping[str, Any], shots: Collection[str]) -> list[str]:
    """Return the model and what changes its answers, as options."""
    config = results.get("config") or {}
    words = ["--model", str(config["model"])]
    if config.get("model_args"):
        words += ["--model_args", typed_args(config["model_args"])]
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
    return words


def own_folders(results: Iterable[Mapping[str, Any]]) -> list[str] | None:
    """Return the folders of tasks of these runs that lm_eval does not have, such as one that `check` made from a file;
    None if there are none, as `TaskManager` takes it."""
    all_metadata = [config.get("metadata") for result in results for config in (result.get("configs") or {}).values()]
    sources = [metadata.get("config_source") for metadata in all_metadata if isinstance(metadata, Mapping)]
    files = {Path(source) for source in sources if isinstance(source, str) and Path(source).is_file()}
    installed = (INSTALLED_TASKS, task_configs_path())
    return sorted({str(file.parent) for file in files if not any(map(file.is_relative_to, installed))}) or None
