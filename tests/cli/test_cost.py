"""`lm-eval-leakage ls TASK --tokenizer NAME`, called as typed."""

from __future__ import annotations

import json

import pytest

from tests.checking.conftest import GivenTasksOnly, questions
from tests.harness.test_prefix_tree_lm import tokenizer_over_bytes

TASK = "fresh_leakage_perm"


@pytest.fixture
def typed(typed, tmp_path, monkeypatch):
    """Runs `ls` with a tokenizer over bytes; returns its exit code, stdout and stderr."""
    monkeypatch.setattr("lm_eval_leakage.harness.task_shelf.TaskManager", GivenTasksOnly)
    tokenizer_over_bytes().save_pretrained(tmp_path / "tokenizer")
    return lambda *words: typed("ls", *words, "--tokenizer", tmp_path / "tokenizer")


def test_a_table_is_printed_without_a_model(typed, questions_file) -> None:
    file = questions_file(questions(9))["data_files"]
    given = f"data_files={file},control_form=false"
    code, out, err = typed(TASK, "--metadata", given, "--parameters", "1e9", "--tflops", "100")
    assert (code, err) == (0, "")
    assert f"| {TASK} | 9 | 216 | " in out
    assert "tokens: every shared prefix once" in out
    assert "1e+09 parameters at 100 TFLOP/s, which is 50,000 tokens/s" in out


def test_json_is_one_record_per_task(typed, questions_file) -> None:
    metadata = json.dumps(questions_file(questions(9)))
    words = ("--model", "hf", "--questions", "4", "--limit", "8", "--tokens_per_second", "50")
    code, out, err = typed(TASK, "--metadata", metadata, "--format", "json", *words)
    (record,) = json.loads(out)
    # of each task at least eight are measured
    assert (code, record["n_questions"], record["n_measured"]) == (0, 8, 8)
    assert err.endswith("8 of 9 questions, drawn at random with seed 0\n")
    assert record["seconds"] == record["n_read"] / 50


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((TASK, "--parameters", "8e9"), "--parameters and --tflops need each other"),
        (
            (TASK, "--metadata", "max_order=4"),
            "--metadata has the key 'max_order', which no audit knows; did you mean",
        ),
        ((TASK, "--questions", "none"), "'none' is not a number above 0"),
        (("mmlu_leakag_perm",), "did you mean mmlu_leakage_perm"),
        ((TASK, "--model", "hff"), "'hff' is not a model of lm_eval; did you mean hf"),
    ],
    ids=str,
)
def test_what_cannot_be_counted_is_refused_in_one_sentence(typed, words, message: str) -> None:
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert message in err
