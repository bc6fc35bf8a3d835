from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from datasets import load_dataset

from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.tables import as_text, write
from lm_eval_leakage.results.tabulating import STYLES
from lm_eval_leakage.stats.pooling import Estimate
from lm_eval_leakage.texts import visible
from tests.limits import full_disk
from tests.results.harness_files import answered, audited, confused, row, write_run


@pytest.fixture
def runs(tmp_path):
    docs = [row(i) for i in range(6)]
    place = write_run(
        tmp_path,
        "m",
        {"bench_a": [answered(i, doc, i < 3) for i, doc in enumerate(docs)]},
        groups={"bench": ["bench_a"]},
    )
    write_run(
        tmp_path, "m", {"bench_leakage_perm": [audited(doc, [True, False, None][i % 3]) for i, doc in enumerate(docs)]}
    )
    write_run(tmp_path, "m", {"bench_choice_confusion": [confused(doc, i < 3, i < 2) for i, doc in enumerate(docs)]})
    return place


def test_originals_stay_as_they_are_and_a_second_time_gives_the_same(runs) -> None:
    before = {file: file.read_bytes() for file in runs.iterdir()}
    (annotation,) = annotate([runs])
    first = {file: file.read_bytes() for file in write(annotation, "1")}
    assert {file.name.rpartition("_")[2] for file in first} == {"leakage.json", "leakage.jsonl"}
    assert {file: file.read_bytes() for file in before} == before
    (again,) = annotate([runs])
    assert {file: file.read_bytes() for file in write(again, "1")} == first


def test_a_full_disk_leaves_the_copies_of_before(runs) -> None:
    (annotation,) = annotate([runs])
    first = {file: file.read_bytes() for file in write(annotation, "1")}
    n_bytes = min(map(len, first.values())) // 2
    with full_disk(n_bytes), pytest.raises(OSError, match="too large"):
        write(annotation, "a later version")
    assert {file: file.read_bytes() for file in first} == first
    assert {file for file in runs.iterdir() if file not in first} == {
        file for file in runs.iterdir() if "_leakage." not in file.name
    }


def test_each_results_file_has_the_columns_of_its_own_run(tmp_path) -> None:
    for n_shot in (0, 5):
        lines = [answered(i, row(i), right=n_shot == 5) for i in range(4)]
        write_run(tmp_path / "runs", "m", {"bench": lines}, n_shot=n_shot)
    write_run(tmp_path / "audits", "m", {"bench_leakage_perm": [audited(row(i), i < 2) for i in range(4)]})
    (annotation,) = annotate([tmp_path / "runs"], [tmp_path / "audits"])
    files = [file for file in write(annotation, "1", tmp_path / "out") if file.suffix == ".json"]
    rows = [json.loads(file.read_text())["results"]["bench"] for file in files]
    assert sorted((row["acc,none"], row["acc_unflagged,leakage"]) for row in rows) == [(0, 0), (1, 1)]


def test_the_samples_file_loads_as_a_data_set(runs, tmp_path) -> None:
    (annotation,) = annotate([runs])
    files = [str(file) for file in write(annotation, "1", tmp_path / "out") if file.suffix == ".jsonl"]
    data_set = load_dataset("json", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert data_set["flagged"] == [True, False, None] * 2
    assert data_set["reason"] == [None, None, "two options read alike"] * 2
    assert data_set["right_generalized"] == [True, True, False, False, False, False]
    assert set(data_set["doc_hash"]) == {question.doc_hash for question in annotation.questions}


def test_what_latex_and_markdown_take_for_markup_is_written_as_text(tmp_path) -> None:
    write_run(tmp_path, "m", {"be|nch_a": [answered(0, row(0), True)]})
    (annotation,) = annotate([tmp_path])
    assert "be|nch\\_a" in as_text(annotation.rows, "latex")
    assert "be\\|nch_a" in as_text(annotation.rows, "markdown")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
def test_a_name_that_a_spreadsheet_would_compute_is_text_in_csv_and_numbers_stay_numbers(tmp_path, name) -> None:
    write_run(tmp_path, "m", {"bench": [answered(i, row(i), i < 1) for i in range(2)]})
    (annotation,) = annotate([tmp_path])
    gap = {"gap": Estimate(-0.5, 0.1, -0.7, -0.3)}
    hostile = replace(annotation.rows[0], model=name, task=name, values=gap)
    (record,) = csv.DictReader(io.StringIO(as_text([hostile], "csv")))
    assert record["model"] == record["task"] == f"'{visible(name)}"
    assert (record["gap"], record["gap_low"], record["metric"]) == ("-0.5", "-0.7", "acc,none")


def test_control_characters_and_line_ends_reach_no_table(tmp_path) -> None:
    write_run(tmp_path, "m", {"bench": [answered(0, row(0), True)]})
    (annotation,) = annotate([tmp_path])
    rows = [replace(annotation.rows[0], model=f"m\x1b[31m\n|{i}\x9b\u2028\u202e\ud800<b>") for i in range(2)]
    for style in STYLES:
        text = as_text(rows, style)
        assert not set(text) & set("\x1b\x9b\u2028\u202e\ud800"), style
        assert "31m" in text
        json.dumps(text).encode("ascii")
    table, _ = as_text(rows, "markdown").split("\n\n")
    assert [line.count(" | ") for line in table.splitlines()] == [6] * 4
    assert "<b>" not in as_text(rows, "markdown")
    assert json.loads(as_text(rows, "json"))[0]["model"] == rows[0].model
