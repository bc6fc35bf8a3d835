"""`lm-eval-leakage ls TASK --orders`, called as typed."""

from __future__ import annotations

import random

import pytest


@pytest.fixture
def typed(typed):
    """Runs `ls --orders` as typed; returns its exit code, stdout and stderr."""
    return lambda *words: typed("ls", *words, "--orders")


def docs(n_questions: int, *, is_sorted: bool) -> list[dict]:
    """Questions with four numbers, sorted or shuffled."""
    rng = random.Random(0)
    found = []
    for number in range(n_questions):
        options = [str(value) for value in sorted(int(10 ** rng.uniform(1, 8)) for _ in range(4))]
        if not is_sorted:
            rng.shuffle(options)
        found.append({"question": f"How many are {number}?", "choices": options, "answer": rng.randrange(4)})
    return found


@pytest.fixture
def file_of(questions_file):
    return lambda rows: questions_file(rows)["data_files"]


def test_five_questions_and_single_options_get_a_sentence(file_of, typed) -> None:
    code, out, _ = typed(file_of([*docs(5, is_sorted=True), {"question": "Why?", "choices": ["so"], "answer": 0}]))
    assert code == 0
    assert "`too few to say`: there are 5 different questions" in out
    assert "|" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("FILE", "--documented", "shuffled", "README"), "the documented status is 'shuffled'; choose one of"),
        (("FILE", "--documented", "random", ""), "the documented status has no source"),
        (("FILE", "--metadata", "data_files=FILE"), "give only one of them"),
        (("nowhere.jsonl",), "there is no such file"),
        (("tasks",), "--orders and --tokenizer are for a task; name it"),
        (("FILE", "--tokenizer", "gpt2"), "ask for different things; give one of them"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(file_of, typed, words, message) -> None:
    file = file_of(docs(5, is_sorted=True))
    code, out, err = typed(*(word.replace("FILE", file) for word in words))
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.model  # indexes all tasks of the harness
def test_unknown_tasks_and_tasks_without_orders_are_refused(typed, tmp_path, file_of) -> None:
    code, _, err = typed("no_such_task")
    assert (code, err.startswith("'no_such_task' is not a task, group, tag or audit")) == (2, True)
    rows = file_of([{"question": f"Is {i} even?", "choices": ["x", "y"], "answer": i % 2} for i in range(30)])
    (tmp_path / "parity.yaml").write_text(
        f"task: parity\ndataset_path: json\ndataset_kwargs: {{data_files: {rows}}}\ntest_split: train\n"
        'output_type: multiple_choice\ndoc_to_text: "{{question}}"\ndoc_to_choice: ["yes", "no"]\n'
        'doc_to_target: "{{answer}}"\n'
    )
    code, out, err = typed("parity", "--include_path", tmp_path)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert "same" in err


@pytest.mark.model  # indexes all tasks of the harness
def test_a_file_is_read_instead_of_the_data_of_a_task(typed, file_of) -> None:
    code, out, _ = typed("mmlu", "--metadata", f"data_files={file_of(docs(60, is_sorted=True))}")
    assert (code, "| numbers sorted | 60 |" in out) == (0, True)
