"""Misspelled task names are refused with the nearest ones, and no name of the index is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.harness.tasks.audit_names import AuditIndex, check_task_names


@pytest.fixture(scope="module")
def index() -> AuditIndex:
    return TaskShelf().index


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("hellaswg", "hellaswag"),
        ("mmlu_leakag_perm", "mmlu_leakage_perm"),
        ("arc_esay_leakage_perm", "arc_easy_leakage_perm"),
        ("arc_easy_leakge_tokens", "arc_easy_leakage_tokens"),
        ("arc_easy_choice_confusoin", "arc_easy_choice_confusion"),
    ],
)
def test_a_misspelled_name_is_refused_in_a_sentence_that_begins_with_the_nearest(name, nearest, index) -> None:
    said = re.escape(f"{name!r} is not a task, group, tag or audit; did you mean {nearest}")
    with pytest.raises(ValueError, match=rf"{said}( \(|,| or )"):
        check_task_names([name], index)


def test_every_misspelled_name_of_a_list_is_reported(index: AuditIndex) -> None:
    with pytest.raises(ValueError, match=r"'mmul' is not .*; 'zzqqzz' is not a task, group, tag or audit \(`lm-eval"):
        check_task_names(["mmul", "mmlu", "zzqqzz"], index)


def test_names_of_tasks_audits_our_data_sets_patterns_and_files_pass(index: AuditIndex) -> None:
    check_task_names(index, index)
    audits = ["arc_easy_leakage_perm", "fresh_leakage_perm", "fresh_leakage_tokens", "leakage_perm"]
    check_task_names([*audits, "cmb", "mmlu_*", "a.yaml"], index)


@pytest.mark.parametrize(
    "text",
    [
        "task: farbtonx\n",
        "group: farbtonx\ntask: [x]\n",
        "task: x\ntag:\n  - farbtonx\n",
        "include: _shape\ntask: x\n",
    ],
)
def test_a_users_own_names_are_known_with_their_folder(tmp_path: Path, text: str, index: AuditIndex) -> None:
    (tmp_path / "one.yaml").write_text(text)
    (tmp_path / "_shape").write_text('tag: ["farbtonx"]  # of the rainbow\n')
    names = ["farbtonx", "farbtonx_leakage_perm"]
    with pytest.raises(ValueError, match="'farbtonx' is not"):
        check_task_names(names, index)
    with_theirs = TaskShelf([str(tmp_path)]).index
    check_task_names(names, with_theirs)
    with pytest.raises(ValueError, match="did you mean farbtonx"):
        check_task_names(["fabrtonx"], with_theirs)
