"""Plans from YAML, and the sentence for what they may not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.plan import (
    MODEL_SETTINGS,
    PLAN_SETTINGS,
    CampaignModel,
    CampaignPlan,
    plan_as_yaml,
    plan_of,
    read_plan,
)

ISSUE = """
models:
  - {name: smol, model: hf-prefix-tree, model_args: "pretrained=m,dtype=bfloat16", gpus: 1}
tasks: [mmlu, arc_challenge]
audits: [leakage_perm, leakage_tokens]
limit: 300
shards: 4
"""
GIVEN: dict[str, Any] = {"models": [{"name": "a", "model_args": "pretrained=m"}], "tasks": ["mmlu"]}


def plan(**given: Any) -> CampaignPlan:
    return plan_of(GIVEN | given, "plan.yaml")


def model(**given: Any) -> CampaignPlan:
    return plan(models=[{"name": "a"} | given])


def test_a_plan_is_read_with_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(ISSUE)
    found = read_plan(tmp_path / "plan.yaml")
    args = {"pretrained": "m", "dtype": "bfloat16"}
    assert found.models == (CampaignModel("smol", "hf-prefix-tree", args, gpus=1),)
    assert (found.tasks, found.audits) == (("mmlu", "arc_challenge"), ("leakage_perm", "leakage_tokens"))
    assert (found.runs, found.limit, found.seed, found.shards, found.retries) == (True, 300, 0, 4, 1)
    assert (found.minutes, found.workers, found.output_path) == (None, None, Path("campaign"))


def test_the_copy_of_a_plan_is_the_plan(tmp_path: Path) -> None:
    whole = plan(
        models=[
            {"name": "a", "model_args": {"pretrained": "m", "n": 2}, "batch_size": "auto:4", "device": "cpu"},
            {"name": "b.1", "model": "vllm", "model_args": "pretrained=n,tensor_parallel_size=2", "gpus": 2},
        ],
        tasks="mmlu,arc_easy",
        audits=[],
        metadata={"max_orders": 24, "published_orders": "random: the paper"},
        include_path="tasks:more",
        imports="mine.models",
        minutes=1.5,
        workers=3,
    )
    (tmp_path / "plan.yaml").write_text(plan_as_yaml(whole))
    assert read_plan(tmp_path / "plan.yaml") == whole
    assert whole.include_paths == [str(Path("tasks").absolute()), str(Path("more").absolute())]


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("limit: 3\nlimit: 300\n", "plan.yaml cannot be used: 'limit' stands twice, in lines"),
        ("metadata: &m [*m]\n", "plan.yaml cannot be used: its aliases .* stand for more than 100,000 values"),
    ],
)
def test_a_plan_that_yaml_would_misread_is_refused(tmp_path: Path, added: str, said: str) -> None:
    (tmp_path / "plan.yaml").write_text(ISSUE.replace("limit:", "# limit:") + added)
    with pytest.raises(ValueError, match=said):
        read_plan(tmp_path / "plan.yaml")


def test_the_folder_of_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(ISSUE + "output_path: there\n")
    assert read_plan(tmp_path / "plan.yaml").output_path == Path("there")
    assert read_plan(tmp_path / "plan.yaml", "here").output_path == Path("here")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"shard": 2}, "plan.yaml has 'shard', which is not a setting; did you mean 'shards'?"),
        ({"shards": 0}, "shards is 0; give a whole number from 1"),
        ({"shards": 1_000_000_000}, "shards is 1,000,000,000; give at most 1,000, with many questions in each"),
        ({"limit": "many"}, "limit is 'many'; give a whole number from 1"),
        ({"retries": -1}, "retries is -1; give a whole number from 0"),
        ({"minutes": 0}, "minutes is 0; give a number of minutes above 0"),
        ({"runs": "no"}, "runs is 'no'; give true or false"),
        ({"tasks": []}, r"tasks is \[\]; name at least one task or group of lm_eval"),
        ({"tasks": ["../mmlu"]}, r"tasks has '../mmlu', which cannot be the name of a folder"),
        ({"audits": ["leakage_prem"]}, "audits has 'leakage_prem', which is not an audit; did you mean leakage_perm"),
        ({"audits": [], "runs": False}, "audits is empty and runs is false, so that there is nothing to do"),
        ({"metadata": {"shard": "0/2"}}, "metadata has 'shard', which each unit has for itself"),
        ({"models": []}, r"models is \[\]; give a list of models"),
        ({"models": [{"model": "hf"}]}, r"models\[0\] has no name"),
        ({"models": [{"name": "a"}, {"name": "a"}]}, "models has two that are named 'a'; give each a name of its own"),
    ],
)
def test_an_error_of_a_plan_is_told_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plan(**given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"gpu": 1}, r"models\[0\] has 'gpu', which is not a setting; did you mean 'gpus'?"),
        ({"name": "a/b"}, r"models\[0\].name is 'a/b', which cannot be the name of a folder"),
        ({"name": "..", "model": "hf"}, r"models\[0\].name is '..', which cannot be the name of a folder"),
        ({"gpus": -1}, r"models\[0\].gpus is -1; give a whole number from 0"),
        ({"model_args": "m"}, r"models\[0\].model_args is 'm'; write it as for lm_eval"),
        (
            {"model_args": "tensor_parallel_size=4", "gpus": 1},
            r"models\[0\] has tensor_parallel_size=4 and gpus: 1; give the same number",
        ),
    ],
)
def test_an_error_of_a_model_is_told_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        model(**given)


@pytest.mark.parametrize("missing", ["models", "tasks"])
def test_models_and_tasks_are_needed(missing: str) -> None:
    with pytest.raises(ValueError, match=f"plan.yaml has no {missing}"):
        plan_of({key: value for key, value in GIVEN.items() if key != missing}, "plan.yaml")


def test_the_page_has_the_example_and_every_setting(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "campaigns.md").read_text()
    (tmp_path / "plan.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    assert [one.name for one in read_plan(tmp_path / "plan.yaml").models] == ["smol", "smol-large"]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in row.replace("`", "").replace(",", "").split()} >= {
        *PLAN_SETTINGS,
        *MODEL_SETTINGS,
    }
