"""The command that runs clean tasks with the model and options of the run that they were made from."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.patches import pth_hook as hook
from lm_eval_leakage.harness.patches.registries import OUR_MODELS

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
