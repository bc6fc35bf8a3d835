"""Checks of a run's options before the command line loads a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.seams.refusals import Refusal
from tests.harness.test_task import manager

pytestmark = pytest.mark.usefixtures("hub_cache")


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Do what the command line does with a run's tasks, `--metadata` and `--model_args`, on a small index."""
    (tmp_path / "data.jsonl").write_text(json.dumps({"question": "Q?", "choices": ["a", "b"], "answer": 0}))
    (tmp_path / "colours.yaml").write_text("task: colours\noutput_type: multiple_choice\n")
    original = TaskManager.__init__

    def small(self, verbosity=None, include_path=None, include_defaults=True, metadata=None) -> None:
        original(self, verbosity, [str(task_configs_path()), str(tmp_path)], False, metadata)

    def choose(tasks: str, metadata: dict, model_args: dict | None = None):
        given = {"tasks": tasks, "metadata": metadata, "model_args": model_args or {"pretrained": "gpt2"}}
        config = EvaluatorConfig(**given, include_path=str(tmp_path))._configure()
        with monkeypatch.context() as patched:
            patched.setattr(TaskManager, "__init__", small)
            config.process_tasks(config.metadata)
        return config

    return choose


@pytest.mark.parametrize(
    "tasks", ["fresh_leakage_perm", "leakage_perm", "colours_leakage_tokens", "mmlu_leakage_tokens"]
)
@pytest.mark.parametrize(
    ("key", "nearest"), [("max_order", "max_orders"), ("data_file", "data_files"), ("refernce_log", "reference_log")]
)
def test_a_misspelled_key_ends_the_run_in_one_sentence_with_the_nearest_known_one(chosen, tasks, key, nearest) -> None:
    with pytest.raises(Refusal) as ended:
        chosen(tasks, {key: 4})
    assert str(ended.value) == f"--metadata has the key {key!r}, which no audit knows; did you mean {nearest!r}"


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({"control_form": "no"}, "control_form is 'no'; give true, or false not to score the control forms"),
        ({"resume": "no"}, "resume is 'no'; give true, or false to save no answers and reuse none"),
        (
            {"published_orders": "random"},
            "published_orders is 'random'; write STATUS: SOURCE, with one of random, written, sealed and where the "
            "author documents it (the documented status has no source; name where the author documents it, such as "
            "a section)",
        ),
    ],
)
def test_an_invalid_value_ends_the_run_in_one_sentence(chosen, metadata: dict, sentence: str) -> None:
    with pytest.raises(Refusal) as ended:
        chosen("colours_leakage_perm", metadata)
    assert str(ended.value) == sentence
    chosen("colours", metadata)  # which may read it otherwise


def test_the_models_arguments_are_no_keys_of_the_users(chosen) -> None:
    arguments = {"pretrained": "gpt2", "dtype": "float32", "max_order": 3, "anything": 1}
    assert chosen("fresh_leakage_perm", {"max_orders": 4}, arguments).metadata["anything"] == 1


def test_a_key_of_another_audit_of_the_run_is_known(chosen) -> None:
    chosen("fresh_leakage_perm,fresh_leakage_tokens", {"k": 0.3, "delta": -0.3, "resume": False})


@pytest.mark.parametrize("tasks", ["fresh_leakage_perm,colours", "colours"])
def test_a_key_of_an_ordinary_task_of_the_run_is_left_to_it(chosen, tasks) -> None:
    chosen(tasks, {"max_seq_lengths": [4096]})


def test_in_a_run_with_ordinary_tasks_a_key_that_resembles_ours_is_refused(chosen) -> None:
    with pytest.raises(Refusal, match="did you mean 'max_orders'"):
        chosen("fresh_leakage_perm,colours", {"max_order": 4})
    chosen("colours", {"max_order": 4})


def test_from_python_a_misspelled_key_is_warned_of(tmp_path, caplog) -> None:
    for metadata in ({"max_order": 4, "pretrained": "gpt2"}, {"max_orders": 4, "pretrained": "gpt2", "dtype": "auto"}):
        manager(metadata).load(["fresh_leakage_perm"])
    assert [record.message for record in caplog.records if "no audit knows" in record.message] == [
        "metadata has the key 'max_order', which no audit knows; did you mean 'max_orders'"
    ]
