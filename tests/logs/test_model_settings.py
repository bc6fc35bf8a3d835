"""Runs of one name that are, or are not, of one model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.results.annotate import annotate
from tests.results.harness_files import answered, audited, row, write_run

N = 12
SHA, OTHER_SHA = "a" * 40, "b" * 40
SERVED: dict[str, Any] = {
    "config": {"model": "local-completions", "model_args": {"model": "m", "base_url": "http://h"}}
}
QUANTIZED_SERVER: dict[str, Any] = {
    "config": {"model": "vllm", "model_args": {"pretrained": "m", "quantization": "awq"}}
}


def recorded(place: Path, sections: Mapping[str, Any]) -> None:
    """Add sections to the newest results file of a folder; a mapping is merged into the section of its name."""
    file = max(place.glob("results_*.json"))
    content = json.loads(file.read_text())
    for name, value in sections.items():
        content[name] = {**content.get(name, {}), **value} if isinstance(value, Mapping) else value
    file.write_text(json.dumps(content))


def written(folder: Path, of_run: Mapping[str, Any], of_audit: Mapping[str, Any]) -> None:
    recorded(write_run(folder, "m", {"bench": [answered(i, row(i), True) for i in range(N)]}), of_run)
    recorded(write_run(folder, "m", {"bench_leakage_perm": [audited(row(i), i < 3) for i in range(N)]}), of_audit)


def with_arguments(**arguments: Any) -> dict[str, Any]:
    return {"config": {"model_args": {"pretrained": "m", **arguments}}}


@pytest.mark.parametrize(
    ("of_run", "of_audit", "differs"),
    [
        (with_arguments(load_in_8bit=True), {}, "load_in_8bit"),
        ({"config": {"model_args": "pretrained=m,load_in_4bit=True"}}, {}, "load_in_4bit"),
        ({}, with_arguments(peft="adapter"), "peft"),
        (with_arguments(rope_scaling="x"), with_arguments(rope_scaling="y"), "rope_scaling"),
        ({"config": {"model_sha": SHA}}, {"config": {"model_sha": OTHER_SHA}}, "model_sha"),
        ({"config": {"model_sha": SHA}}, {"leakage_identity": {"pretrained": f"m ({OTHER_SHA})"}}, "model_sha"),
        ({"config": {"model_num_parameters": 7}}, {"config": {"model_num_parameters": 8}}, "model_num_parameters"),
        ({"config": {"model_dtype": "torch.float16"}}, {"config": {"model_dtype": "torch.float32"}}, "model_dtype"),
        ({"chat_template_sha": SHA}, {"chat_template_sha": None}, "chat_template"),
        ({"chat_template_sha": SHA}, {"chat_template_sha": OTHER_SHA}, "chat_template_sha"),
        ({"chat_template_sha": SHA}, {"leakage_identity": {"pretrained": "m"}}, "chat_template"),
        ({"system_instruction_sha": SHA}, {"system_instruction_sha": None}, "system_instruction"),
        ({"system_instruction_sha": None}, {"leakage_identity": {"system_instruction": "Be."}}, "system_instruction"),
        (QUANTIZED_SERVER, {}, "quantization"),
    ],
)
def test_a_run_and_an_audit_that_contradict_each_other_are_not_joined_and_the_difference_is_named(
    tmp_path: Path, of_run: Mapping[str, Any], of_audit: Mapping[str, Any], differs: str
) -> None:
    written(tmp_path, of_run, of_audit)
    first, second = annotate([tmp_path])
    (problem,) = [report for report in first.problems if "contradict each other" in str(report)]
    difference = str(problem)
    assert problem.incomplete  # the run's model has no audit, so that --fail-on must not pass
    assert f"differ in {differs} (" in difference
    assert all(f"'{name}'" in difference for name in (first.model, second.model))
    rows = [*first.rows, *second.rows]
    assert not any(line.n_joined and line.n_shot for line in rows)
    (judged,) = [line for line in rows if line.n_tested]
    assert judged.n_tested == N  # the audit has a row of its own
    (joined,) = annotate([tmp_path], aliases={first.model: second.model})
    assert [line.n_joined for line in joined.rows] == [N]


@pytest.mark.parametrize(
    ("of_run", "of_audit"),
    [
        ({}, {}),
        (with_arguments(batch_size=4, device="cpu"), with_arguments(load_in_8bit=False, dtype="auto")),
        ({"config": {"model_args": "pretrained=m,max_length=2048"}}, with_arguments(max_length=2048)),
        ({"config": {"model_sha": SHA}}, {"leakage_identity": {"pretrained": f"m ({SHA})", "backend": "hf"}}),
        ({"config": {"model_sha": SHA}}, {"leakage_identity": {"pretrained": "m (0123456789abcdef)"}}),
        ({"config": {"model": "hf"}}, {"config": {"model": "hf-prefix-tree"}}),
        ({"chat_template_sha": None, "system_instruction_sha": None}, {"leakage_identity": {"backend": "hf"}}),
        ({"config": {"model_dtype": "torch.float16", "model_args": {"pretrained": "m", "dtype": "float16"}}}, {}),
        (SERVED, with_arguments(max_length=2048)),
    ],
)
def test_runs_that_do_not_contradict_each_other_are_joined(
    tmp_path: Path, of_run: Mapping[str, Any], of_audit: Mapping[str, Any]
) -> None:
    if "model_dtype" in of_run.get("config", {}):
        of_audit = {"config": {"model_dtype": "torch.float16"}}
    written(tmp_path, of_run, of_audit)
    (annotation,) = annotate([tmp_path])
    assert [line.n_joined for line in annotation.rows] == [N]


def test_a_run_that_may_be_of_either_of_two_models_stands_alone(tmp_path: Path) -> None:
    written(tmp_path, {"config": {"model_sha": SHA}}, {"config": {"model_sha": SHA}})
    recorded(write_run(tmp_path, "m", {"bench": [answered(0, row(0), True)]}), {"config": {"model_sha": OTHER_SHA}})
    write_run(tmp_path, "m", {"bench": [answered(i, row(i), True) for i in range(2)]})
    models = {annotation.model: annotation for annotation in annotate([tmp_path])}
    assert len(models) == 3
    assert [line.n_joined for line in models["m"].rows] == [0]
    assert sorted(max(line.n_joined for line in model.rows) for model in models.values()) == [0, 0, N]
    problems = [str(problem) for model in models.values() for problem in model.problems]
    (difference,) = [problem for problem in problems if "contradict" in problem]
    assert "it is 3 models in all" in difference
