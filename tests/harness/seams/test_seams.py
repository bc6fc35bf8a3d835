"""The table of seams against the installed lm_eval, and what happens with a different one."""

from __future__ import annotations

import inspect
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.seams import backends as hf_model
from lm_eval_leakage.harness.seams import patching
from lm_eval_leakage.harness.seams.command_line import CommandLine, ask_git_only_in_repositories
from lm_eval_leakage.harness.seams.evaluation import current_evaluation
from lm_eval_leakage.harness.seams.patching import SEAMS, Seam, UnsupportedHarness, seam_object
from lm_eval_leakage.harness.seams.registries import check_options
from lm_eval_leakage.harness.seams.run_results import on_results
from lm_eval_leakage.harness.seams.tasks import compile_templates_once, task_settings
from lm_eval_leakage.harness.tasks.audit_names import find_audits
from tests.fakes import FakeLM, by_hash
from tests.harness.seams.test_evaluation import loaded
from tests.harness.seams.test_task_manager import FakeManager
from tests.harness.test_task import GOOD

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "harness_seams.md"


def ids(seam: Seam) -> str:
    return seam.target.rpartition(":")[2]


# ---------------------------------------------------------------------- the table and the installed lm_eval


@pytest.mark.parametrize("seam", SEAMS, ids=ids)
def test_the_installed_lm_eval_is_as_the_table_says(seam: Seam, caplog) -> None:
    assert seam_object(seam.target) is not None, caplog.messages
    assert not caplog.messages


@pytest.mark.parametrize("seam", SEAMS, ids=ids)
def test_a_lm_eval_without_it_is_a_sentence_with_the_loss_and_the_remedy(seam: Seam, caplog, monkeypatch) -> None:
    owner = patching._owner_of(seam.target)
    for base in getattr(owner, "__mro__", [owner]):
        if seam.attribute in vars(base) and base is not object:
            monkeypatch.delattr(base, seam.attribute)
    if seam.refuses:
        with pytest.raises(UnsupportedHarness) as raised:
            seam_object(seam.target)
        sentence = str(raised.value)
    else:
        assert seam_object(seam.target) is None
        (sentence,) = caplog.messages
    assert sentence.startswith(seam.without)
    assert seam.attribute in sentence
    versions = {"lm_eval": "0.4.13", "datasets": "5.2.0"}[seam.library]
    assert f"install {seam.library} {versions} or a newer lm_eval_leakage" in sentence


def test_the_page_says_of_each_why_it_is_needed_and_what_is_lost_without_it() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if "<br>`" in line]
    lost_by_name = {what.partition("<br>")[2].strip("`"): (bool(why), lost) for what, why, lost in rows}
    assert lost_by_name == {
        seam.target.partition(":")[2]: (True, f"{'refused' if seam.refuses else 'a warning'}: {seam.without}")
        for seam in SEAMS
    }


# ---------------------------------------------------------------------- what happens with another lm_eval


def test_a_task_manager_with_other_parameters_is_left_unchanged_with_a_warning(caplog) -> None:
    class Manager:
        def __init__(self, folders=()) -> None:
            self.folders = folders

        def match_tasks(self, task_list):
            return task_list

    before = Manager.__init__
    find_audits(Manager)
    assert Manager.__init__ is before
    (sentence,) = caplog.messages
    assert sentence.startswith("leakage tasks are found only with `--include_path")
    assert "has no parameter verbosity, include_path, include_defaults, metadata" in sentence


def test_a_task_manager_that_another_package_has_wrapped_is_extended_too() -> None:
    class Manager(FakeManager):
        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **kwargs)

    find_audits(Manager)
    assert Manager(include_path="mine").searched == [task_configs_path(), "mine"]


@pytest.mark.parametrize(
    ("target", "use"),
    [
        ("lm_eval.config.evaluate_config:EvaluatorConfig.process_tasks", lambda: check_options(pytest.fail)),
        ("lm_eval._cli:HarnessCLI.__init__", CommandLine),
        ("lm_eval.evaluator:get_git_commit_hash", ask_git_only_in_repositories),
        ("lm_eval.models.huggingface:HFLM._model_call", lambda: hf_model.offer_method(None, "token_scores", len)),
        ("lm_eval.tasks._yaml_loader:load_yaml", lambda: task_settings(task_configs_path() / "_leakage_perm_yaml")),
        ("lm_eval.evaluator_utils:EvalAcc._to_eval_results", lambda: on_results(lambda results: None)),
    ],
)
def test_what_is_lost_or_refused_without_it_is_said_where_it_is_used(target, use, caplog, monkeypatch) -> None:
    monkeypatch.delattr(target.replace(":", "."))
    seam = patching.seam_of(target)
    with pytest.raises(UnsupportedHarness, match=seam.without) if seam.refuses else nullcontext():
        assert not use()
    assert [text.startswith(seam.without) for text in caplog.messages] == [True] * (not seam.refuses)


def test_without_a_private_module_the_rest_works(caplog, monkeypatch) -> None:
    class Manager(FakeManager):
        pass

    monkeypatch.delitem(sys.modules, "lm_eval_leakage.harness.seams.tasks")
    monkeypatch.setitem(sys.modules, "lm_eval.tasks._factory", None)
    find_audits(Manager)
    assert Manager().searched == [task_configs_path()]
    (sentence,) = caplog.messages
    assert sentence.startswith("audits of any task by name are not available")
    assert "lm_eval.tasks._factory" in sentence


def test_a_simple_evaluate_with_other_parameters_loses_the_saved_answers_and_says_so(caplog, monkeypatch) -> None:
    monkeypatch.setattr("lm_eval.evaluator.simple_evaluate", lambda lm, tracker: None)

    def evaluate(lm, eval_tasks):
        return current_evaluation()

    met = evaluate("a model", {"task": 1})
    assert (met.lm, met.tasks, met.output_path) == ("a model", {"task": 1}, None)
    (sentence,) = caplog.messages
    assert sentence.startswith("answers are not saved for resuming a run")


def test_an_evaluate_with_other_variables_is_refused_before_the_model_works(questions_file, monkeypatch) -> None:
    (task,) = loaded(questions_file([GOOD]))["tasks"].values()

    def evaluate(model, tasks) -> None:
        for task in tasks:
            task.build_all_requests()

    evaluate.__module__ = "lm_eval.evaluator"
    monkeypatch.setattr("lm_eval.evaluator.evaluate", evaluate)
    with pytest.raises(UnsupportedHarness, match="a leakage task cannot find the model that will answer its requests"):
        evaluate(FakeLM(by_hash), [task])


def test_without_the_template_environment_rows_are_read_more_slowly(caplog, monkeypatch) -> None:
    monkeypatch.delattr("lm_eval.utils.env")
    compile_templates_once.cache_clear()
    for _ in range(2):
        compile_templates_once()
    compile_templates_once.cache_clear()
    (sentence,) = caplog.messages  # and not for every row
    assert sentence.startswith("rows of tasks are read more slowly")


def test_templates_are_compiled_once() -> None:
    from lm_eval.utils import env

    compile_templates_once()
    assert env.from_string("{{a}}") is env.from_string("{{a}}") is not env.from_string("{{b}}")


def test_git_is_asked_for_the_commit_in_repositories_only(tmp_path, capfd, monkeypatch) -> None:
    from lm_eval import evaluator

    monkeypatch.setattr(evaluator, "get_git_commit_hash", inspect.unwrap(evaluator.get_git_commit_hash))
    monkeypatch.chdir(tmp_path)
    assert evaluator.get_git_commit_hash() is None
    assert "fatal" in capfd.readouterr().err
    ask_git_only_in_repositories()
    assert evaluator.get_git_commit_hash() is None
    assert capfd.readouterr().err == ""
    (tmp_path / ".git").mkdir()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setattr(subprocess, "check_output", lambda command: b"commit")
    assert evaluator.get_git_commit_hash() == "commit"
