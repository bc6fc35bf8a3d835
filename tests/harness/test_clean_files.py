"""The folder of clean tasks, if writing it is interrupted; and the printed command of a clean run, which lm_eval reads
back as the run's own options.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lm_eval._cli import HarnessCLI
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness import run_commands as module
from lm_eval_leakage.harness.arguments import parsed_args, typed_args
from lm_eval_leakage.harness.clean_files import write_clean
from lm_eval_leakage.harness.run_commands import run_command
from lm_eval_leakage.results.clean_sets import CleanSet, Kept
from tests.limits import full_disk

N = 10
SETS = [CleanSet("colours", "weak", "max_order", ("m",), tuple(Kept(i, f"h{i}") for i in range(N)), (), 0)]


@pytest.fixture
def manager(tmp_path: Path) -> TaskManager:
    base = tmp_path / "base"
    base.mkdir()
    text = "task: colours\noutput_type: multiple_choice\nmetric_list: [{metric: acc}]\n"
    (base / "colours.yaml").write_text(text)
    return TaskManager(include_path=str(base), include_defaults=False)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_after_a_full_disk_the_same_command_completes_the_folder(tmp_path: Path, manager: TaskManager) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "clean"
    write_clean(SETS, {}, whole, manager)
    sizes = {file.name: file.stat().st_size for file in whole.iterdir() if file.is_file()}
    assert sizes["colours_clean.json"] < sizes["clean_task.py"]
    with full_disk(sizes["colours_clean.json"]), pytest.raises(OSError, match="too large"):
        write_clean(SETS, {}, folder, manager)
    assert names(folder) == {"colours_clean.json"}
    write_clean(SETS, {}, folder, manager)
    assert contents(folder) == contents(whole)
    assert contents(whole).keys() == {*sizes}


def test_a_task_is_there_only_with_all_that_it_names(tmp_path: Path, manager: TaskManager, monkeypatch) -> None:
    at_yaml, replace = [], Path.replace

    def watched(part: Path, place: Path) -> Path:
        if place.suffix == ".yaml":
            at_yaml.append(names(place.parent) - {part.name})
        return replace(part, place)

    monkeypatch.setattr(Path, "replace", watched)
    write_clean(SETS, {}, tmp_path / "clean", manager)
    assert at_yaml == [{"clean_task.py", "colours_clean.json"}]


FOLDER = Path("my clean tasks")


def parsed(command: str) -> argparse.Namespace:
    program, *words = shlex.split(command)
    assert program in ("lm_eval", "lm-eval-leakage")
    return HarnessCLI()._parser.parse_args(["run", *words])


def of(results: dict, shots=("0",)) -> argparse.Namespace:
    return parsed(run_command(results, shots, FOLDER, ["mmlu_clean", "arc_easy_clean"]))


VALUES = st.one_of(st.booleans(), st.integers(-9, 9), st.text(min_size=1, max_size=12), st.floats(-2, 2), st.none())


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES, min_size=1, max_size=4))
@example({"subfolder": "²"})
@example({"revision": "0J"})
@example({"revision": "0x10"})
@example({"revision": "..."})
def test_any_arguments_of_a_model_are_read_back(model_args: dict) -> None:
    command = of({"config": {"model": "hf", "model_args": model_args}})
    assert command.model_args == parsed_args(typed_args(model_args)) == model_args
    assert (command.model, command.include_path, command.tasks) == (
        "hf",
        str(FOLDER),
        ["mmlu_clean", "arc_easy_clean"],
    )


def test_the_options_that_change_answers_are_repeated() -> None:
    config = {"model": "hf", "model_args": "pretrained=a b,dtype=bfloat16", "batch_size": "auto", "device": "cpu"}
    command = of({"config": config, "chat_template": "{{x}}", "system_instruction": "Don't guess"}, ("5",))
    assert command.model_args == {"pretrained": "a b", "dtype": "bfloat16"}
    assert (command.batch_size, command.device, command.num_fewshot) == ("auto", "cpu", 5)
    assert (command.apply_chat_template, command.system_instruction) == (True, "Don't guess")


@pytest.mark.parametrize(
    ("model", "enabled", "program"),
    [("hf", False, "lm_eval"), ("hf-prefix-tree", False, "lm-eval-leakage"), ("hf-prefix-tree", True, "lm_eval")],
)
def test_our_model_without_the_hook_is_run_by_our_command(tmp_path, monkeypatch, model, enabled, program) -> None:
    file = tmp_path / "hook.pth"
    if enabled:
        file.touch()
    monkeypatch.setattr(module.hook, "hook_file", lambda: file)
    command = run_command({"config": {"model": model}}, (), FOLDER, ["x"])
    assert command == f"{program} --model {model} --include_path 'my clean tasks' --tasks x"
