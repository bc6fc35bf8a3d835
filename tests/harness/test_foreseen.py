"""Mistakes in a model, its arguments and a run's options are told without importing the model."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
from lm_eval.api.model import LM
from lm_eval.api.registry import model_registry
from lm_eval.models import MODEL_MAPPING
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness import backends as foreseen
from lm_eval_leakage.harness.backends import KNOWN, why_cannot_answer
from lm_eval_leakage.harness.models.question_requests import refuses
from lm_eval_leakage.harness.preflight import (
    check_before_index,
    check_model,
    check_run,
    why_not,
)
from lm_eval_leakage.harness.seams.registries import OUR_MODELS, class_of
from lm_eval_leakage.harness.tasks.templates import suffixes


def test_every_model_of_the_harness_and_ours_is_declared() -> None:
    assert set(MODEL_MAPPING) | set(OUR_MODELS) == set(KNOWN)


@pytest.mark.parametrize("name", ["hf", "hf-prefix-tree", "local-completions", "local-chat-completions", "dummy"])
def test_what_is_declared_of_a_model_is_what_its_class_does(name: str) -> None:
    kind, backend = class_of(name), KNOWN[name]
    assert backend.is_hf == issubclass(kind, HFLM)
    for need in ("loglikelihood", "generate_until"):
        assert (need in backend.answers) == (not refuses(getattr(kind, need), None, []))


def test_a_model_of_another_package_is_left_to_it(monkeypatch) -> None:
    monkeypatch.setitem(model_registry._objs, "theirs", "no_such_package:Model")
    check_model("theirs", ["leakage_perm"], {"anything": 1})


def test_chat_models_can_run_only_audits_that_generate() -> None:
    able = {suffix for suffix in suffixes() if not why_not("local-chat-completions", suffix)}
    assert able == {suffix for suffix in suffixes() if not why_not("openai-chat-completions", suffix)}
    assert {"leakage_guided", "leakage_ngram"} <= able
    assert "leakage_perm" not in able
    assert {s for s in suffixes() if why_not("local-completions", s)} == {"leakage_tokens"}
    assert not any(why_not("hf", suffix) or why_not("hf-prefix-tree", suffix) for suffix in suffixes())


def test_a_model_of_another_package_is_judged_by_its_class(monkeypatch) -> None:
    class Scores(LM):
        loglikelihood_rolling = None

        def loglikelihood(self, requests):
            return [(0.0, False) for _ in requests]

        def generate_until(self, requests):
            raise NotImplementedError

    theirs = type("OfHf", (HFLM,), {})
    monkeypatch.setitem(model_registry._objs, "theirs", Scores)
    monkeypatch.setitem(model_registry._objs, "theirs-hf", theirs)
    monkeypatch.setitem(model_registry._objs, "broken", "no_such_package:Model")
    needs = ("loglikelihood", "generate_until", "token_scores")
    assert [why_cannot_answer("theirs", need) for need in needs] == [
        "",
        "theirs does not generate text",
        "theirs does not give the next-token distribution (`hf` and `hf-prefix-tree` do)",
    ]
    for name in ("theirs-hf", "broken"):
        assert {why_cannot_answer(name, need) for need in needs} == {""}


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("hff", {}, "'hff' is not a model of lm_eval; did you mean hf"),
        ("zzzz", {}, "'zzzz' is not a model of lm_eval; choose one of: "),
        ("hf", {"pretraind": "x"}, "--model_args has 'pretraind', which hf does not take; did you mean pretrained"),
        ("hf", {}, "--model_args lacks pretrained, which hf needs; add pretrained=NAME_OR_FOLDER"),
        ("hf-prefix-tree", {"pretrained": "x", "dtyp": "bfloat16"}, "did you mean dtype"),
        ("hf", {"pretrained": "/nowhere/x"}, "pretrained=/nowhere/x, but there is no such folder; check the path"),
        ("hf", {"pretrained": "gpt2", "peft": "./nowhere"}, "peft=./nowhere, but there is no such folder"),
        ("hf", {"pretrained": "a/b/c"}, "pretrained=a/b/c, but there is no such folder"),
    ],
)
def test_what_a_model_does_not_take_is_refused_with_the_remedy(model, given, said) -> None:
    with pytest.raises(ValueError, match="^") as raised:
        check_model(model, [], given)
    assert said in str(raised.value)


def test_arguments_that_others_take_and_existing_folders_pass(tmp_path) -> None:
    (tmp_path / "config.json").touch()
    check_model("hf", [], {"pretrained": str(tmp_path), "attn_implementation": "eager", "load_in_4bit": True})
    check_model("hf", [], {"pretrained": "s3://bucket/some/model"})
    check_model("hf", [], {"pretrained": "EleutherAI/pythia-70m", "device_map": "auto", "max_len": 3})


@pytest.mark.parametrize(
    ("model", "package", "extra"),
    [("vllm", "vllm", "vllm"), ("local-completions", "tenacity", "api"), ("hf", "torch", "hf")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(model, package, extra, monkeypatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(foreseen, "find_spec", lambda name: None if name == package else there(name) or True)
    with pytest.raises(ImportError) as raised:
        check_model(model, [], {"pretrained": "x"})
    sentence = f"--model {model} needs {package}, which is not installed; run `pip install 'lm_eval[{extra}]'`"
    assert str(raised.value) == sentence


# ---------------------------------------------------------------------- a run's options


def options(tasks: list[str], **given):
    usual = {"model": "hf", "model_args": {"pretrained": "gpt2"}, "metadata": {}, "output_path": None}
    return SimpleNamespace(tasks=tasks, include_path=None, device=None, **usual | given)


@pytest.mark.parametrize(
    ("tasks", "given", "said"),
    [
        (["mmlu_leakag_perm"], {}, "did you mean mmlu_leakage_perm"),
        (
            ["mmlu_leakage_perm"],
            {"model": "local-chat-completions"},
            "gives no log-likelihoods of given texts; choose",
        ),
        (["mmlu_leakage_perm"], {"metadata": {"max_order": 4}}, "did you mean 'max_orders'"),
        (["mmlu_leakage_perm"], {"metadata": {"resume": "no"}}, "resume is 'no'; give true"),
        (["fresh_leakage_perm"], {"metadata": {"data_files": "nowhere.jsonl"}}, "but there is no such file; check"),
        (["mmlu_leakage_perm"], {"output_path": "/dev/null/x"}, "where nothing can be written"),
        (
            ["mmlu_leakage_perm"],
            {"include_path": "/nowhere"},
            "include_path is '/nowhere', but there is no such folder",
        ),
    ],
    ids=str,
)
def test_a_runs_mistakes_are_told_before_the_index(tasks, given, said) -> None:
    chosen = options(tasks)
    vars(chosen).update(given)
    with pytest.raises((ValueError, OSError)) as raised:
        check_before_index(chosen)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("task", "model", "given", "is_told"),
    [
        ("mmlu_leakage_perm", "local-completions", {}, True),
        ("mmlu_leakage_perm", "vllm-server-prefix-tree", {}, True),
        ("mmlu_leakage_perm", "local-completions", {"num_concurrent": 1}, False),
        ("mmlu_leakage_perm", "hf", {"pretrained": "gpt2"}, False),
        ("gsm8k", "local-completions", {}, False),
    ],
)
def test_an_audit_of_a_server_that_gets_one_request_at_a_time_is_told_how_to_send_more(
    task, model, given, is_told, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(foreseen, "find_spec", lambda name: True)
    check_run(options([task], model=model, model_args=given), {})
    assert ["num_concurrent=16" in message for message in caplog.messages] == [True] * is_told


def test_a_run_with_other_tasks_continues_without_the_audits_that_its_model_cannot_run(monkeypatch) -> None:
    monkeypatch.setattr(foreseen, "find_spec", lambda name: True)
    for tasks in (["mmlu_leakage_perm", "gsm8k"], ["mmlu_leakage_guided"], ["mmlu_leakage_perm,mmlu_leakage_guided"]):
        check_before_index(options(tasks, model="local-chat-completions", model_args={"model": "x"}))


def test_keys_of_tasks_that_make_their_data_wait_for_the_index(tmp_path) -> None:
    (tmp_path / "made.py").write_text("def rows(**_):\n    return {}\n")
    (tmp_path / "made.yaml").write_text(
        "task: made\noutput_type: multiple_choice\ncustom_dataset: !function made.rows\n"
        'doc_to_text: "{{question}}"\ndoc_to_choice: "{{choices}}"\ndoc_to_target: answer\n'
    )
    given = options(["made_leakage_perm", "mmlu_leakage_perm"], metadata={"max_order": 4})
    with pytest.raises(ValueError, match="did you mean 'max_orders'"):
        check_before_index(options(["mmlu_leakage_perm"], metadata={"max_order": 4}))
    given.include_path = str(tmp_path)
    check_before_index(given)
