"""`lm-eval-leakage ls TASK`, called as typed: what an audit will ask, and whether published orders are random."""

from __future__ import annotations

import json
import random

import pytest

from tests.checking.conftest import GivenTasksOnly, questions
from tests.harness.test_prefix_tree_lm import tokenizer_over_bytes

TASK = "fresh_leakage_perm"


@pytest.fixture
def counted(typed, tmp_path, monkeypatch):
    """Runs `ls` with a tokenizer over bytes; returns its exit code, stdout and stderr."""
    monkeypatch.setattr("lm_eval_leakage.harness.task_shelf.TaskManager", GivenTasksOnly)
    tokenizer_over_bytes().save_pretrained(tmp_path / "tokenizer")
    return lambda *words: typed("ls", *words, "--tokenizer", tmp_path / "tokenizer")


def test_a_table_is_printed_without_a_model(counted, questions_file) -> None:
    file = questions_file(questions(9))["data_files"]
    given = f"data_files={file},control_form=false"
    code, out, err = counted(TASK, "--metadata", given, "--parameters", "1e9", "--tflops", "100")
    assert (code, err) == (0, "")
    assert f"| {TASK} | 9 | 216 | " in out
    assert "tokens: every shared prefix once" in out
    assert "1e+09 parameters at 100 TFLOP/s, which is 50,000 tokens/s" in out


def test_json_is_one_record_per_task(counted, questions_file) -> None:
    metadata = json.dumps(questions_file(questions(9)))
    words = ("--model", "hf", "--questions", "4", "--limit", "8", "--tokens_per_second", "50")
    code, out, err = counted(TASK, "--metadata", metadata, "--format", "json", *words)
    (record,) = json.loads(out)
    # of each task at least eight are measured
    assert (code, record["n_questions"], record["n_measured"]) == (0, 8, 8)
    assert err.endswith("8 of 9 questions, drawn at random with seed 0\n")
    assert record["seconds"] == record["n_read"] / 50


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((TASK, "--parameters", "8e9"), "--parameters and --tflops need each other"),
        ((TASK, "--metadata", "max_order=4"), "has the key 'max_order', which no audit knows; did you mean"),
        ((TASK, "--questions", "none"), "'none' is not a number above 0"),
        (("mmlu_leakag_perm",), "did you mean mmlu_leakage_perm"),
        ((TASK, "--model", "hff"), "'hff' is not a model of lm_eval; did you mean hf"),
        (("FILE", "--orders", "--documented", "shuffled", "README"), "the documented status is 'shuffled'; choose"),
        (("FILE", "--orders", "--documented", "random", ""), "the documented status has no source"),
        (("FILE", "--orders", "--metadata", "data_files=FILE"), "give only one of them"),
        (("nowhere.jsonl", "--orders"), "there is no such file"),
        (("tasks", "--orders"), "--orders and --tokenizer are for a task; name it"),
        (("FILE", "--orders", "--tokenizer", "gpt2"), "ask for different things; give one of them"),
    ],
    ids=str,
)
def test_what_cannot_be_told_is_refused_in_one_sentence(typed, counted, file_of, words, message: str) -> None:
    file = file_of(docs(5))
    given = [word.replace("FILE", file) for word in words]
    code, out, err = typed("ls", *given) if "--orders" in words else counted(*given)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


# ---------------------------------------------------------------------- orders


def docs(n_questions: int) -> list[dict]:
    """Questions with four sorted numbers."""
    rng = random.Random(0)
    found = []
    for number in range(n_questions):
        options = [str(value) for value in sorted(int(10 ** rng.uniform(1, 8)) for _ in range(4))]
        found.append({"question": f"How many are {number}?", "choices": options, "answer": rng.randrange(4)})
    return found


@pytest.fixture
def file_of(questions_file):
    return lambda rows: questions_file(rows)["data_files"]


@pytest.mark.model  # indexes all tasks of the harness
def test_unknown_tasks_and_tasks_without_orders_are_refused(typed, tmp_path, file_of) -> None:
    code, _, err = typed("ls", "no_such_task", "--orders")
    assert (code, err.startswith("'no_such_task' is not a task, group, tag or audit")) == (2, True)
    rows = file_of([{"question": f"Is {i} even?", "choices": ["x", "y"], "answer": i % 2} for i in range(30)])
    (tmp_path / "parity.yaml").write_text(
        f"task: parity\ndataset_path: json\ndataset_kwargs: {{data_files: {rows}}}\ntest_split: train\n"
        'output_type: multiple_choice\ndoc_to_text: "{{question}}"\ndoc_to_choice: ["yes", "no"]\n'
        'doc_to_target: "{{answer}}"\n'
    )
    code, out, err = typed("ls", "parity", "--orders", "--include_path", tmp_path)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert "same" in err


@pytest.mark.model  # indexes all tasks of the harness
def test_a_file_is_read_instead_of_the_data_of_a_task(typed, file_of) -> None:
    code, out, _ = typed("ls", "mmlu", "--orders", "--metadata", f"data_files={file_of(docs(60))}")
    assert (code, "| numbers sorted | 60 |" in out) == (0, True)
