"""`lm-eval-leakage ls TASK`, called as typed: whether published orders are random."""

from __future__ import annotations

import random

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mmlu_leakag_perm",), "did you mean mmlu_leakage_perm"),
        (("FILE", "--orders", "--documented", "shuffled", "README"), "the documented status is 'shuffled'; choose"),
        (("FILE", "--orders", "--documented", "random", ""), "the documented status has no source"),
        (("FILE", "--orders", "--metadata", "data_files=FILE"), "give only one of them"),
        (
            ("FILE", "--orders", "--fields", "question=title"),
            "rows have no field 'title', which fields gives as question",
        ),
        (("FILE", "--orders", "--fields", "title"), "fields is 'title'; write PART=FIELD with commas between"),
        (("arc_easy", "--orders", "--fields", "answer=key"), "no file of questions is named; name one, or leave out"),
        (("nowhere.jsonl", "--orders"), "there is no such file"),
        (("tasks", "--orders"), "--orders is for a task; name it"),
    ],
    ids=str,
)
def test_what_cannot_be_decided_is_refused_in_one_sentence(typed, file_of, words, message: str) -> None:
    file = file_of(docs(5))
    code, out, err = typed("ls", *(word.replace("FILE", file) for word in words))
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def docs(n_questions: int) -> list[dict]:
    """Questions with four sorted numbers."""
    rng = random.Random(0)
    docs = []
    for number in range(n_questions):
        options = [str(value) for value in sorted(int(10 ** rng.uniform(1, 8)) for _ in range(4))]
        docs.append({"question": f"How many are {number}?", "choices": options, "answer": rng.randrange(4)})
    return docs


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


def test_fields_are_named_and_rows_that_hold_no_question_are_reported(typed, file_of) -> None:
    rows = [{"text": doc["question"], "choices": doc["choices"], "key": doc["answer"]} for doc in docs(60)]
    file = file_of([{"text": "Which?", "choices": ["red", ""], "key": 0}, *rows])
    code, out, err = typed("ls", file, "--orders", "--fields", "question=text,answer=key")
    assert (code, "| numbers sorted | 60 |" in out) == (0, True)
    assert "1 of 61 rows is left out: option B is empty; it must have text (row 1)" in err
