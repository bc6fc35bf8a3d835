"""What a plan accepts, from options, YAML and Python, and the sentence for what it does not."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.cli.check import add_check_arguments
from lm_eval_leakage.jobs.plan import MODEL_FIELDS, SETTING_NAMES, PlanModel, as_command, plan_as_yaml
from lm_eval_leakage.jobs.plan_reading import check_plan

HERE = {"model": "hf", "model_args": "pretrained=m,dtype=bfloat16", "tasks": ["mmlu,arc_easy", "piqa"]}
MANY: dict[str, Any] = {"models": [{"name": "a", "model_args": "pretrained=m"}], "tasks": ["mmlu"]}
DOCS = Path(__file__).parents[2] / "docs"


def test_values_are_read_as_lm_eval_reads_them() -> None:
    plan = check_plan(HERE)
    assert plan.models == (PlanModel(model_args={"pretrained": "m", "dtype": "bfloat16"}),)
    assert plan.tasks == ("mmlu", "arc_easy", "piqa")
    assert (plan.questions, plan.detect, plan.seed, plan.output_path) == ("enough", 0.25, 0, Path("leakage"))
    assert plan.is_here


@pytest.mark.parametrize("given", [{"engine": "ray"}, {"gpus": "1"}, {"workers": 2}, {"slurm": {"partition": "gpu"}}])
def test_whoever_asks_for_workers_gets_them_for_one_model_too(given: dict[str, Any]) -> None:
    plan = check_plan(HERE | given)
    assert (plan.is_here, plan.models[0].name, plan.models[0].key) == (False, "", "m")
    assert not check_plan(MANY).is_here
    assert check_plan(MANY | {"engine": "inline"}).is_here


def test_a_file_has_the_same_names_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "model: hf\nmodel_args: {pretrained: m}\ntasks: [piqa]\nquestions: all\nseed: 3\nfail_on: evidence\n"
        "allow_no_verdict: true\n"
    )
    plan = check_plan({"questions": "20", "tasks": None}, file)
    assert (plan.tasks, plan.questions, plan.seed) == (("piqa",), 20, 3)
    assert (plan.fail_on, plan.allow_no_verdict) == ("evidence", True)
    assert check_plan({"output_path": "here"}, file).output_path == Path("here")


def test_leakage_yaml_is_taken_only_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("leakage.yaml").write_text("model: hf\nmodel_args: {pretrained: m}\ntasks: piqa\nseed: 7\n")
    assert check_plan({}).seed == 7
    assert check_plan(HERE).seed == 0


@pytest.mark.parametrize("page", ["check.md", "campaigns.md"])
def test_the_examples_of_the_docs_are_accepted_and_every_field_is_there(tmp_path: Path, page: str) -> None:
    text = (DOCS / page).read_text()
    file = tmp_path / "plan.yaml"
    file.write_text(text.partition("```yaml\n")[2].partition("```")[0])
    assert check_plan({}, file).is_here == (page == "check.md")
    both = "".join((DOCS / page).read_text() for page in ("check.md", "campaigns.md"))
    rows = "".join(line.split("|")[1] for line in both.splitlines() if line.startswith("| `"))
    assert set(
        re.findall(r"`-*([\w-]+)", rows.replace("fail-on", "fail_on").replace("allow-no-verdict", "allow_no_verdict"))
    ) >= {
        *SETTING_NAMES,
        *MODEL_FIELDS,
    }


def test_the_copy_of_a_plan_is_the_plan(tmp_path: Path) -> None:
    whole = check_plan(
        {
            "models": [
                {"name": "a", "model_args": {"pretrained": "m", "n": 2}, "batch_size": "auto:4", "device": "cpu"},
                {"name": "b.1", "model": "vllm", "model_args": "pretrained=n,tensor_parallel_size=2", "gpus": 2},
            ],
            "tasks": "mmlu,arc_easy",
            "audits": [],
            "questions": "all",
            "metadata": {"max_orders": 24, "published_orders": "random: the paper"},
            "include_path": "tasks:more",
            "imports": "mine.models",
            "minutes": 1.5,
            "workers": 3,
        }
    )
    (tmp_path / "plan.yaml").write_text(plan_as_yaml(whole))
    assert check_plan({}, tmp_path / "plan.yaml") == whole
    assert whole.include_paths == [str(Path("tasks").absolute()), str(Path("more").absolute())]


@pytest.mark.parametrize(
    "arguments", [{}, {"revision": "0J", "a": "b,c"}, {"chat_template_args": {"enable_thinking": False}}]
)
def test_a_check_as_a_command_is_read_as_the_same_check(tmp_path: Path, arguments: dict[str, Any]) -> None:
    of_model = {"model_args": {"pretrained": "m"} | arguments, "apply_chat_template": True}
    plan = check_plan(HERE | {"questions": "all", "detect": "20%", "seed": 4, "runs": [tmp_path]} | of_model)
    _, _, *words = shlex.split(as_command(plan))
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    add_check_arguments(parser)
    settings = {name: value for name, value in vars(parser.parse_args(words)).items() if name in SETTING_NAMES}
    assert check_plan(settings) == plan


REFUSED_HERE: list[tuple[dict[str, Any], str]] = [
    ({"model": None, "model_args": None}, "check has no model; name one as for lm_eval"),
    ({"tasks": None}, "check has no tasks; name benchmarks as for lm_eval"),
    ({"questions": "0"}, "questions is '0'; give a whole number from 1, 'all' or 'enough'"),
    *(
        ({"detect": wrong}, f"detect is {wrong!r}; give a share of the questions above 0, such as 20% or 0.2")
        for wrong in ("20", "0", -0.05, "a few", 1.01)
    ),
    ({"seed": "x"}, "seed is 'x'; give a whole number"),
    (
        {"fail_on": "leaks"},
        "fail_on is 'leaks'; choose one of: strong_evidence, evidence, inconclusive, none_",
    ),
    ({"export": "badge,pdf"}, "export is 'pdf'; choose one of: every-eval-ever, hf-eval-results, badge"),
    ({"runs": "/no/such/folder"}, "runs is '/no/such/folder', which does not exist; name the --output_path"),
    ({"reference": "/no/such"}, "reference is '/no/such', which is no folder; give one with another model's"),
    ({"unseen": "/no/such", "tasks": "piqa"}, "unseen is '/no/such', which is not a file; give one"),
    ({"unseen": __file__}, "unseen is for one benchmark, questions of the same kind; name one task with --unseen"),
    ({"orders": "random: page 3"}, "orders is for one benchmark, what the author documents; name one task"),
    (
        {"orders": "random", "tasks": "piqa"},
        "orders is 'random'; write STATUS: SOURCE, with one of random, written",
    ),
    ({"model_args": "gpt2"}, "model_args is 'gpt2'; write it as for lm_eval: pretrained=MODEL"),
    ({"model_args": "{pretrained: m}"}, "model_args cannot be read: '{pretrained: m}' is not valid JSON: "),
    ({"model_args": "pretrained=m,batch_size=8"}, "model_args has 'batch_size', which lm_eval takes beside them"),
    ({"batch_size": "-1"}, "batch_size is '-1'; give a whole number from 1, or auto"),
    ({"question": 3}, "check has 'question', which is not a setting; did you mean questions"),
    ({"quiet": "perhaps"}, "quiet is 'perhaps'; give true or false"),
    ({"engine": ["ray"]}, "engine is ['ray']; give a text"),
    ({"budget": 9, "questions": 40}, "budget is 9 requests, for which questions and their orders are chosen, and no"),
    (
        {"budget": 9, "metadata": "orders=6"},
        "budget is 9 requests, for which questions and their orders are chosen, and nothing else is run; leave out "
        "the orders in metadata, or the budget",
    ),
    ({"budget": "0"}, "budget is '0'; give a whole number from 1"),
    ({"models": [{"name": "a"}]}, "check has models and model; give it to each of the models"),
    (
        {"engine": "ray", "model_args": "tensor_parallel_size=2"},
        "models[0] has tensor_parallel_size=2 and gpus: 0",
    ),
]
REFUSED_OF_SEVERAL: list[tuple[dict[str, Any], str]] = [
    ({"shards": 2}, "check has 'shards', which is not a setting; choose from: "),
    ({"retries": -1}, "retries is -1; give a whole number from 0"),
    ({"minutes": 0}, "minutes is 0; give a number of minutes above 0"),
    ({"tasks": []}, "tasks is empty; name at least one task or group of lm_eval"),
    ({"tasks": ["../mmlu"]}, "tasks has '../mmlu', which cannot be the name of a folder"),
    ({"audits": ["leakage_prem"]}, "audits has 'leakage_prem', which is not an audit; did you mean leakage_perm"),
    ({"audits": [], "accuracy": False}, "audits is empty and accuracy is false, so that there is nothing to do"),
    ({"models": None}, "check has no model; name one"),
    ({"models": []}, "models is []; give a list of models"),
    ({"models": ["a"]}, "models is 'a'; give a list of models, each with name, model and model_args"),
    ({"models": [{"name": "a"}, {"model": "hf"}]}, "models[1] has no name; give one that the tables show"),
    ({"models": [{"name": "a"}, {"name": "a"}]}, "models has two that are named 'a'; give each a name of its own"),
    ({"models": [{"name": "a", "gpu": 1}]}, "models[0] has 'gpu', which is not a setting; did you mean gpus"),
    ({"models": [{"name": "a/b"}]}, "models[0].name is 'a/b', which cannot be the name of a folder"),
    ({"models": [{"name": ".."}]}, "models[0].name is '..', which cannot be the name of a folder"),
    ({"models": [{"name": "a", "gpus": -1}]}, "models[0].gpus is -1; give a whole number from 0"),
    ({"models": [{"name": "a", "model_args": "m"}]}, "models[0].model_args is 'm'; write it as for lm_eval"),
    (
        {"models": [{"name": "a", "model_args": "tensor_parallel_size=4", "gpus": 1}]},
        "models[0] has tensor_parallel_size=4 and gpus: 1; give the same number",
    ),
]


@pytest.mark.parametrize(
    ("base", "given", "sentence"),
    [*((HERE, *case) for case in REFUSED_HERE), *((MANY, *case) for case in REFUSED_OF_SEVERAL)],
)
def test_what_cannot_be_used_is_reported_in_one_sentence_with_its_place_and_the_remedy(
    base: dict[str, Any], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}") as raised:
        check_plan(base | given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("model: hf\nmodle_args: {}\n", "did you mean model_args"),
        ("- a\n", "holds ['a']; give names and values"),
        ("a: [\n", "is not valid YAML"),
        ("questions: 3\nquestions: 300\n", "cannot be used: 'questions' stands twice, in lines 1 and 2"),
        ("metadata: &m [*m]\n", "stand for more than 100,000 values"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "leakage.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match="\\w") as raised:
        check_plan({}, file)
    assert str(file) in str(raised.value)
    assert sentence in str(raised.value)
    with pytest.raises(ValueError, match=r"config is 'no.yaml', which is not a file"):
        check_plan(HERE, "no.yaml")


def test_more_processes_than_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="check runs in one process"):
        check_plan(HERE)
