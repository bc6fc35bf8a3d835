"""Misspelled task names are found before the index of tasks is built, and no name of the index is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lm_eval_leakage.harness.tasks.audit_names import check_task_names, names_in, task_texts


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
def test_a_misspelled_name_is_refused_in_a_sentence_that_begins_with_the_nearest(name, nearest) -> None:
    said = re.escape(f"{name!r} is not a task, group, tag or audit; did you mean {nearest}")
    with pytest.raises(ValueError, match=rf"{said}( \(|,| or )"):
        check_task_names([name])


def test_every_misspelled_name_of_a_list_is_told() -> None:
    with pytest.raises(ValueError, match=r"'mmul' is not .*; 'zzqqzz' is not a task, group, tag or audit \(`lm-eval"):
        check_task_names(["mmul", "mmlu", "zzqqzz"])


@pytest.mark.parametrize(
    "name",
    [
        "mmlu",
        "arc_easy_leakage_perm",
        "fresh_leakage_perm",
        "fresh_leakage_tokens",
        "leakage_perm",
        "mmlu_*",
        "a.yaml",
    ],
)
def test_names_of_tasks_audits_patterns_and_files_pass(name) -> None:
    check_task_names([name])


@pytest.mark.parametrize(
    "text",
    [
        "task: farbtonx\n",
        "group: farbtonx\ntask: [x]\n",
        "task: x\ntag:\n  - farbtonx\n",
        "include: _shape\ntask: x\n",
    ],
)
def test_a_users_own_names_are_known_with_their_folder(tmp_path: Path, text: str) -> None:
    (tmp_path / "one.yaml").write_text(text)
    (tmp_path / "_shape").write_text('tag: ["farbtonx"]  # of the rainbow\n')
    names = ["farbtonx", "farbtonx_leakage_perm"]
    with pytest.raises(ValueError, match="'farbtonx' is not"):
        check_task_names(names)
    check_task_names(names, tmp_path)
    with pytest.raises(ValueError, match="did you mean farbtonx"):
        check_task_names(["fabrtonx"], tmp_path)


@pytest.mark.model  # indexes all tasks of the harness
def test_every_name_of_the_index_is_found_by_reading_texts() -> None:
    from lm_eval.tasks import TaskManager

    from lm_eval_leakage.harness import extend_harness

    extend_harness(TaskManager)
    index = TaskManager().task_index
    assert len(index) > 14_000
    assert set(index) <= names_in(task_texts())
