from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lm_eval_leakage.harness.tasks.data import load_questions
from lm_eval_leakage.harness.tasks.question_files import Rows, read_file, read_questions
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import UntestableQuestion

ROW = {"question": "Which é?", "choices": ["red", "blue"], "answer": 1}
LINE = json.dumps(ROW, ensure_ascii=False)

READ = {
    "lines": LINE + "\n" + LINE + "\n",
    "a list": json.dumps([ROW, ROW], indent=1),
    "a byte-order mark": "\ufeff" + LINE + "\n" + LINE,
    "lines that end as on Windows": LINE + "\r\n" + LINE + "\r\n",
    "empty lines": "\n" + LINE + "\n\n \n" + LINE,
}


@pytest.mark.parametrize("text", READ.values(), ids=READ.keys())
def test_json_is_read_in_the_forms_in_which_it_comes(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(text.encode())
    assert [dict(row) for row in read_file(file)] == [ROW, ROW]
    datasets.Dataset.from_list([ROW]).to_parquet(tmp_path / "mine.parquet")
    assert read_file(tmp_path / "mine.parquet")[0] == ROW


def test_columns_of_mixed_types_are_read_as_they_stand(tmp_path: Path) -> None:
    rows = [ROW, ROW | {"answer": "B"}, ROW | {"choices": {"text": ["a"]}}, {"question": 7}, {"id": 10**30}]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = read_file(str(tmp_path / "mine.jsonl"))
    assert isinstance(table, Rows)
    assert table == rows
    assert table.column_names == ["question", "choices", "answer", "id"]
    assert [
        row["question"] for row in table.filter(lambda row: "id" not in row).map(lambda row: {"question": "Q"})
    ] == ["Q"] * 4


def test_options_that_are_names_of_marks_keep_their_own_order(tmp_path: Path) -> None:
    """A table would give each row the options of all, in one order."""
    scores = [{"red": 0, "blue": 1}, {"blue": 0, "red": 1}, {"lime": 1, "grey": 0}]
    rows = [{"input": f"Which of {n}?", "target_scores": score} for n, score in enumerate(scores)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions = [question_from_doc(row) for row in read_questions(tmp_path / "mine.jsonl")]
    assert [question.options for question in questions] == [tuple(score) for score in scores]
    assert [question.answer for question in questions] == [1, 1, 0]
    table = datasets.Dataset.from_list(rows)
    with pytest.raises(
        UntestableQuestion, match="a table has the options of all rows in one order; write those of each"
    ):
        question_from_doc(table[0])


def test_half_surrogate_pairs_are_texts_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"question": "a\\ud800"}')
    assert read_file(tmp_path / "mine.jsonl")[0] == {"question": "a\ufffd"}


def test_a_parquet_file_that_was_edited_with_size_and_time_kept_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    for question in ("Which one?", "Which six?"):
        pq.write_table(pa.table({"question": [question]}), file, compression="none")
        os.utime(file, (1e9, 1e9))
        assert [dict(row) for row in read_file(file)] == [{"question": question}]


# ---------------------------------------------------------------------- tables


def table(folder: Path, text: str, name: str = "mine.csv") -> list[dict]:
    (folder / name).write_bytes(text.encode())
    return [dict(row) for row in read_file(folder / name)]


ANIMAL = {"question": 'Which "é", of these?', "A": "an owl", "B": "a fox,\nor two", "C": None, "answer": "B"}
TABLES = {
    "as CSV": ("mine.csv", '"Which ""é"", of these?",an owl,"a fox,\nor two",,B\n', ","),
    "as TSV": ("mine.tsv", '"Which ""é"", of these?"\tan owl\t"a fox,\nor two"\t\tB\n', "\t"),
    "with semicolons": ("mine.csv", '"Which ""é"", of these?";an owl;"a fox,\nor two";;B\n', ";"),
}


@pytest.mark.parametrize(("name", "line", "delimiter"), TABLES.values(), ids=TABLES.keys())
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_tables_are_read_with_their_quotation_marks_and_missing_cells(
    tmp_path: Path, name: str, line: str, delimiter: str, mark: str
) -> None:
    header = delimiter.join(["question", "A", " B", "C", "answer"])
    assert table(tmp_path, f"{mark}{header}\n{line}{line}", name) == [ANIMAL, ANIMAL]


def test_lines_of_tables_may_end_as_on_windows_be_empty_or_lack_the_last_cells(tmp_path: Path) -> None:
    text = "question,A,B,C,answer,\r\nWhich?,owl,fox,,A,\r\n\r\n,,,,,\r\nWhat?,red,blue,pink\r\n"
    assert table(tmp_path, text) == [
        {"question": "Which?", "A": "owl", "B": "fox", "C": None, "answer": "A"},
        {"question": "What?", "A": "red", "B": "blue", "C": "pink", "answer": None},
    ]


def test_only_columns_of_numbers_as_python_writes_them_have_numbers(tmp_path: Path) -> None:
    text = ",n,share,code,price,mixed,long\n0,1,0.5,007,1.50,3,12345678901234567890\n1,,1e-05,8,2,x,1\n"
    whole = {"n": 1, "share": 0.5, "code": "007", "price": "1.50", "mixed": "3", "long": "12345678901234567890"}
    assert table(tmp_path, text) == [
        whole,
        {"n": None, "share": 1e-05, "code": "8", "price": "2", "mixed": "x", "long": "1"},
    ]


LISTS = {
    "JSON": '"[""it\'s"", ""b, c""]"',
    "Python": '"[""it\'s"", \'b, c\']"',
    "a mapping": '"{""A"": ""it\'s"", ""B"": ""b, c""}"',
}


@pytest.mark.parametrize("cell", LISTS.values(), ids=LISTS.keys())
def test_a_cell_may_hold_a_list_of_options(tmp_path: Path, cell: str) -> None:
    (tmp_path / "mine.csv").write_text(f"question,choices,answer\nWhich?,{cell},1\nWhat?,{cell},0\n")
    questions = [question_from_doc(row) for row in read_questions(tmp_path / "mine.csv")]
    assert [(question.options, question.answer) for question in questions] == [
        (("it's", "b, c"), 1),
        (("it's", "b, c"), 0),
    ]


def test_a_list_without_commas_is_no_list_of_one_option(tmp_path: Path) -> None:
    (row,) = table(tmp_path, "question,choices,answer\nWhich?,['a' 'b'],1\n")
    with pytest.raises(UntestableQuestion, match="options are \"\\['a' 'b'\\]\"; they must be a list of texts"):
        question_from_doc(row)


def test_keys_of_a_table_are_read_like_those_of_json(tmp_path: Path) -> None:
    rows = "".join(f"Q{n},red,blue,pink,{n % 3 + 1}\n" for n in range(6))
    (tmp_path / "mine.tsv").write_text("question,A,B,C,answer\n".replace(",", "\t") + rows.replace(",", "\t"))
    questions = [question_from_doc(row) for row in read_questions(tmp_path / "mine.tsv")]
    assert [question.answer for question in questions] == [0, 1, 2, 0, 1, 2]


REFUSED_TABLES = {
    "nothing": ("", "which has no questions; give it one row per question"),
    "a first line alone": ("question,A,B,answer\n", "which has no questions; give it one row per question"),
    "a comma without quotation marks": (
        "question,A,B,answer\nWhich?,owl,fox,A\n\nWhich,then,owl,fox,A\n",
        "whose line 4 has 5 cells, and its first line 4; put a text with ',' in it into quotation marks",
    ),
    "a quotation mark that is not doubled": (
        'question,A,B,answer\n"Which?\n",owl,fox,A\n"The "owl" is?",b,c,A\n',
        "whose line 4 cannot be split into cells (',' expected after '\"'); put a text with quotation marks",
    ),
    "a quotation mark that never ends": (
        'question,A,B,answer\n"Which?,owl,fox,A\nWhat?,b,c,A\n',
        "whose line 2 cannot be split into cells (unexpected end of data)",
    ),
    "two columns of one name": ("question,A,A,answer\nWhich?,owl,fox,A\n", "whose first line has the name 'A' twice"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED_TABLES.values(), ids=REFUSED_TABLES.keys())
def test_a_table_that_cannot_be_read_is_refused_with_its_file_and_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="data_files is") as refused:
        table(tmp_path, text)
    assert reason in str(refused.value)


DEEP = b"[" * 100_000 + b"]" * 100_000
REFUSED = {
    "nothing": (b"", "has no questions; give it one row"),
    "an empty list": (b"[]", "has no questions; give it one row"),
    "Latin-1": (LINE.encode() + b"\n" + LINE.encode("latin-1"), "line 2 is not UTF-8 (byte 0xe9); save the file as"),
    "UTF-16": (LINE.encode("utf-16"), "line 1 is not UTF-8 (byte 0xff)"),
    "a broken line": (
        f"{LINE}\n\n{LINE[:20]}\n{LINE}".encode(),
        "line 3 is not valid JSON (Unterminated string starting at",
    ),
    "a broken list": (f"[{LINE},\n{LINE[:20]}]".encode(), "line 2 is not valid JSON"),
    "lists 100,000 deep": (
        LINE.encode() + b'\n{"question": ' + DEEP + b"}",
        "line 2 is not valid JSON (too deeply nested lists",
    ),
    "a list 100,000 deep": (DEEP, "line 1 is not valid JSON (too deeply nested lists"),
    "lists for rows": (b'{"a": 1}\n["a"]', "line 2 is ['a']; each must be an object"),
    "numbers in a list": (b"[1, 2]", "entry 1 is 1; each must be an object"),
    "a number of thousands of digits": (b'{"n": ' + b"1" * 5000 + b"}", "Exceeds the limit"),
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_json_is_refused_with_its_file_and_line(tmp_path: Path, data: bytes, reason: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(data)
    with pytest.raises(ValueError, match="data_files is") as refused:
        read_file(file)
    assert reason in str(refused.value)
    assert repr(str(file)) in str(refused.value)
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("folder.jsonl", "a folder; name one file in it"),
        ("none.jsonl", "there is no such file; check the path"),
        ("mine.jsonl.gz", "its name must end in one of: .jsonl, .json, .csv, .tsv, .parquet"),
        ("mine.parquet", "cannot be read as a table of questions"),
    ],
)
def test_a_file_that_is_not_a_question_file_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for written in ("mine.jsonl.gz", "mine.parquet"):
        (tmp_path / written).write_text("PAR1 or not")
    with pytest.raises((ValueError, OSError), match=reason):
        read_file(tmp_path / name)


@pytest.mark.parametrize("given", [3, None, ["a.jsonl"], ""])
def test_an_invalid_path_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="it must be the path of one file"):
        read_file(given)


def test_right_answers_of_a_file_become_indices_and_the_log_says_how(tmp_path: Path, caplog) -> None:
    file, documented = tmp_path / "mine.jsonl", tmp_path / "documented.jsonl"
    choices = ["red", "blue", "grey"]
    docs = [{"question": f"Which {n}?", "choices": choices, "answer": n % 3} for n in range(6)]
    file.write_text("".join(json.dumps(row | {"answer": choices[row["answer"]]}) + "\n" for row in docs))
    documented.write_text("".join(json.dumps(row) + "\n" for row in docs))
    assert [dict(row) for row in read_questions(file)] == docs == [dict(row) for row in read_questions(documented)]
    read_questions(file)
    assert caplog.messages == [f"{file}: right answers are read as texts of options"]


def test_a_file_with_wrong_right_answers_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(
        LINE + "\n" + json.dumps(ROW | {"answer": 2, "choices": ["a", "b"]}) + "\n" + json.dumps(ROW | {"answer": 0})
    )
    with pytest.raises(ValueError, match=r"data_files is '.*mine.jsonl', whose right answers cannot .* row 2 has 2"):
        read_questions(tmp_path / "mine.jsonl")


def test_metadata_names_the_fields_of_the_file_that_it_names(tmp_path: Path) -> None:
    file, doc = tmp_path / "mine.jsonl", {"question": "Which?", "choices": ["red", "blue"], "answer": "B"}
    file.write_text('{"text": "Which?", "choices": ["red", "blue"], "key": "B"}\n')
    metadata = {"data_files": str(file), "fields": {"question": "text", "answer": "key"}}
    assert [dict(row) for row in load_questions(config(metadata=metadata), "test")] == [doc]
    with pytest.raises(ValueError, match="fields has 3 as answer; give the name of a field"):
        load_questions(config(metadata={"data_files": str(file), "fields": {"answer": 3}}), "test")


# ---------------------------------------------------------------------- data of the hub


def config(**fields) -> SimpleNamespace:
    return SimpleNamespace(**({"metadata": {}, "dataset_path": "hub/set", "dataset_name": None} | fields))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub with one data set, whose subsets have two questions each."""

    def load_dataset(path: str, name: str | None, split: str) -> datasets.Dataset:
        assert path == "hub/set"
        return datasets.Dataset.from_list([{"question": f"{name} {split} {i}", "choices": ["a", "b"]} for i in (1, 2)])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)


def test_subjects_are_concatenated_with_a_column_that_names_them(hub) -> None:
    rows = load_questions(config(dataset_name=["law", "art"]), "val")
    assert rows["question"][:] == ["law val 1", "law val 2", "art val 1", "art val 2"]
    assert rows["subject"][:] == ["law", "law", "art", "art"]


def test_one_subset_is_read_as_it_stands(hub) -> None:
    rows = load_questions(config(dataset_name="all"), "test")
    assert rows.column_names == ["question", "choices"]
    assert rows["question"][0] == "all test 1"


def test_a_file_next_to_the_yaml_is_found_from_any_working_directory(tmp_path) -> None:
    (tmp_path / "own.jsonl").write_text('{"question": "Q?", "choices": ["a", "b"]}\n')
    source = {"config_source": str(tmp_path / "own.yaml")}
    rows = load_questions(
        config(dataset_path="json", dataset_kwargs={"data_files": "own.jsonl"}, metadata=source), "test"
    )
    assert rows["question"][:] == ["Q?"]
