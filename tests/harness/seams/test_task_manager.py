from __future__ import annotations

import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness import _check_run, extend_harness
from lm_eval_leakage.harness.seams.refusals import ENDS_IN_SENTENCES, Refusal
from lm_eval_leakage.harness.seams.registries import OUR_MODELS, add_models
from lm_eval_leakage.harness.tasks.audit_names import find_audits

YAMLS = sorted(task_configs_path().rglob("*.yaml"))
NAMES = ["arc_challenge", "ceval", "cmb", "cmmlu", "fresh", "hellaswag", "mathqa", "mmlu"]


@pytest.fixture(scope="module")
def index() -> dict:
    return TaskManager(include_path=task_configs_path(), include_defaults=False).task_index


@pytest.mark.parametrize("file", YAMLS, ids=lambda file: file.stem)
def test_every_yaml_is_in_the_harness_index_under_its_own_name(file: Path, index) -> None:
    # a YAML that raises while it is indexed is dropped silently
    assert Path(index[file.stem].yaml_path) == file


def test_the_group_holds_the_published_benchmarks(index) -> None:
    members = index["leakage_perm"].cfg["task"]
    assert sorted(members) == sorted(f"{name}_leakage_perm" for name in NAMES if name != "fresh")


def test_entry_points_load_for_the_harness_that_will_read_them() -> None:
    names = ("models", "filters", "tasks")  # metrics are registered with the tasks that have them
    groups = {group: entry_points(group=f"lm_eval.{group}") for group in names}
    for group, points in groups.items():
        ours = [point for point in points if point.value.startswith("lm_eval_leakage")]
        assert ours, f"no entry point in lm_eval.{group}"
        for point in ours:
            if "vllm" not in point.name or find_spec("vllm"):
                assert point.load() is not None


class FakeManager:
    def __init__(self, verbosity=None, include_path=None, include_defaults=True, metadata=None) -> None:
        self.searched = include_path
        self.include_path = include_path

    def match_tasks(self, task_list: list[str]) -> list[str]:
        return task_list


def test_a_users_folder_comes_after_ours_and_so_wins() -> None:
    class Manager(FakeManager):
        pass

    find_audits(Manager)
    find_audits(Manager)  # a second time changes nothing
    assert Manager().searched == [task_configs_path()]
    assert Manager(include_path="mine").searched == [task_configs_path(), "mine"]
    assert Manager(include_path=["a", "b"]).searched == [task_configs_path(), "a", "b"]
    assert Manager(include_path="mine").include_path == "mine"
    assert Manager(include_path="mine", include_defaults=False).searched == ["mine"]


@pytest.mark.parametrize(
    "error", [RuntimeError("two\nlines"), SyntaxError("def (:"), KeyError("index"), OSError(5, "io")]
)
def test_an_error_of_ours_leaves_the_harness_its_task_manager(error: Exception, monkeypatch, caplog) -> None:
    class Manager(FakeManager):
        pass

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("lm_eval_leakage.harness.seams.tasks.extend", broken)
    find_audits(Manager)
    assert Manager().searched == [task_configs_path()]
    (record,) = caplog.records
    assert repr(error) in record.getMessage()
    assert "`lm-eval-leakage plugin disable`" in record.getMessage()


def test_the_harness_knows_our_model_names_and_its_own() -> None:
    from lm_eval.api.registry import get_model

    add_models()
    add_models()  # a second time changes nothing
    assert get_model("hf-prefix-tree").__name__ == "PrefixTreeLM"
    assert get_model("hf").__name__ == "HFLM"
    ours = {point.name: point.value for point in entry_points(group="lm_eval.models")}
    assert {name: ours[name] for name in OUR_MODELS} == OUR_MODELS


def test_a_run_without_audits_imports_nothing_that_makes_one(monkeypatch, tmp_path: Path, caplog) -> None:
    (tmp_path / "plain.yaml").write_text("task: plain\noutput_type: multiple_choice\n")
    (tmp_path / "group.yaml").write_text("group: several\ntask: []\n")
    for name in ("tasks.audit", "tasks.data", "tasks.metadata", "tasks.task", "preflight"):
        monkeypatch.setitem(sys.modules, f"lm_eval_leakage.harness.{name}", None)  # an import would fail
    extend_harness(TaskManager)
    manager = TaskManager(include_path=tmp_path, include_defaults=False, metadata={"pretrained": "gpt2"})
    assert manager.match_tasks(["pla*", "several"]) == ["plain", "several"]
    assert list(manager.load(["several"])["groups"]) == ["several"]
    assert "plain_leakage_perm" in manager.task_index
    _check_run(SimpleNamespace(tasks=["plain", "several"], model="local-completions", metadata=None))
    assert not caplog.messages
    with pytest.raises(ImportError):
        manager.load(["several_leakage_perm"])


def test_a_refusal_while_an_audit_is_made_ends_in_a_sentence_too(monkeypatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    extend_harness(TaskManager)
    manager = TaskManager(include_path=task_configs_path(), include_defaults=False)

    def refuse(file: Path) -> None:
        raise Refusal("of this lm_eval")

    monkeypatch.setattr("lm_eval_leakage.harness.tasks.audit.task_settings", refuse)
    with pytest.raises(Refusal, match="of this lm_eval"):
        manager.load(["mmlu_leakage_tokens"])
    assert hasattr(sys.excepthook, ENDS_IN_SENTENCES)
