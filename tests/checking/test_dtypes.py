"""The number format of a check: chosen by the processor where the plan names none, and said in the plan."""

from __future__ import annotations

import json

import pytest

from lm_eval_leakage.jobs.dtypes import with_dtypes
from lm_eval_leakage.jobs.plan import as_settings
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.scoring import dtypes

CHOSEN = {
    "bfloat16": "dtype bfloat16: this CPU has units for it",
    "float32": "dtype float32: this CPU has no units for bfloat16",
}


@pytest.fixture
def folder(tmp_path):
    """A model's folder, whose files say that it is of bfloat16."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text('{"dtype": "bfloat16"}')
    return tmp_path / "m"


@pytest.fixture(params=["bfloat16", "float32"])
def usual(request, monkeypatch) -> str:
    """The format that a processor has units for."""
    monkeypatch.setattr(dtypes.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(dtypes, "has_bfloat16_units", lambda: request.param == "bfloat16")
    return request.param


def alike(dtype: str) -> float:
    return 1.0


def plan_of(folder, model="hf-prefix-tree", arguments="", **settings):
    given = {"model": model, "model_args": f"pretrained={folder}{arguments}", "tasks": "arc_easy", **settings}
    return check_plan(given)


@pytest.mark.parametrize("model", ["hf", "hf-prefix-tree"])
def test_the_format_that_the_processor_has_units_for_is_an_argument_of_the_model(folder, usual, model) -> None:
    plan, sentences = with_dtypes(plan_of(folder, model, reference="pretrained=other"), alike)
    assert plan.models[0].model_args == {"pretrained": str(folder), "dtype": usual}
    assert plan.reference == {"pretrained": "other", "dtype": usual}
    assert sentences == (CHOSEN[usual],)
    assert plan.models[0].who.identity["dtype"] == usual
    assert plan.all_models[1].who.identity["dtype"] == usual
    again, _ = with_dtypes(check_plan(as_settings(plan)), alike)
    assert again.models[0].who.identity == plan.models[0].who.identity


@pytest.mark.parametrize(
    "arguments",
    [",dtype=float16", ",dtype=auto", ",load_in_4bit=True", ",gptqmodel=True", ",mixed_precision_dtype=bfloat16"],
)
def test_a_format_that_the_plan_names_is_kept(folder, usual, arguments) -> None:
    plan = plan_of(folder, arguments=arguments)
    assert with_dtypes(plan, alike) == (plan, ())


def test_quantised_weights_keep_the_format_of_their_files(folder, usual) -> None:
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "gptq"}}))
    plan = plan_of(folder)
    assert with_dtypes(plan, alike) == (plan, ())


def test_audits_of_existing_runs_have_the_format_of_the_runs(folder, usual, tmp_path) -> None:
    plan = plan_of(folder, runs=str(tmp_path))
    assert with_dtypes(plan, alike) == (plan, ())
    assert "dtype" not in plan.models[0].who.identity


@pytest.mark.parametrize("settings", [{"engine": "slurm"}, {"workers": 2}, {"model": "local-completions"}])
def test_nothing_is_chosen_for_other_machines_and_servers(folder, usual, settings) -> None:
    plan = plan_of(folder, **settings)
    assert with_dtypes(plan, alike) == (plan, ())


def test_a_slow_format_is_said_with_the_faster_one(folder, usual) -> None:
    def emulated(dtype: str) -> float:
        return {"bfloat16": 7.6, "float32": 1.0}[dtype]

    sentence = "takes about 8 times as long as float32 on this CPU; give dtype=float32 to be faster"
    for arguments, what in (
        (",dtype=bfloat16", "dtype bfloat16"),
        (",dtype=auto", "dtype bfloat16, that of the model's files,"),
    ):
        assert with_dtypes(plan_of(folder, arguments=arguments), emulated)[1] == (f"{what} {sentence}",)
    assert with_dtypes(plan_of(folder, arguments=",dtype=float32"), emulated)[1] == ()
    (of_runs,) = with_dtypes(plan_of(folder, runs=str(folder.parent)), emulated)[1]
    assert of_runs.endswith("as long as float32 on this CPU; audits must have that of the runs")
