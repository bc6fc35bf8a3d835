"""A private folder is read as it was written or refused, and a public one reveals nothing."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from pyarrow import parquet

from lm_eval_leakage.seal import drawn as drawing
from lm_eval_leakage.seal.drawn import KeyedDraws, public_rows
from lm_eval_leakage.seal.folders import (
    COMMITMENT_FILE,
    public_files,
    read_seal,
)
from tests.sealing.made import KEY, TOOL, key, numbered, original, seal_of, some_originals, written

FEW = [*numbered(3), original("Held out?", order="held out")]


@given(some_originals())
@settings(max_examples=15)
def test_a_seal_is_read_as_it_was_written(tmp_path_factory, originals) -> None:
    assert read_seal(written(tmp_path_factory.mktemp("private"), originals)) == seal_of(originals)


def change_key(folder: Path, **changed: object) -> None:
    file = folder / "key.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))


OTHER_COMMITMENT = "its commitment is now .*, and was"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        *(({name: "other"}, OTHER_COMMITMENT) for name in ("name", "tool", "commitment")),
        ({"key": "00" * 32}, OTHER_COMMITMENT),
        *(({"key": key}, "") for key in ("00" * 16, "xy" * 32, 7, None)),
    ],
)
def test_a_changed_key_file_is_refused_with_both_commitments(tmp_path: Path, changed, why: str) -> None:
    change_key(written(tmp_path, FEW), **changed)
    with pytest.raises(ValueError, match=f"changed after sealing; restore .*{why}"):
        read_seal(tmp_path)


@pytest.mark.parametrize("name", ["questions.jsonl", "held_out.jsonl"])
@pytest.mark.parametrize(
    "change",
    [
        None,
        lambda text: "",
        lambda text: text + text,
        lambda text: text.replace('"subject":""', '"subject":"maths"'),
        lambda text: text.replace('"answers":[0]', '"answers":[7]'),
        lambda text: text.replace('"answers":[0]', '"answers":[]'),
        lambda text: text.replace("{", ""),
        lambda text: "[]\n" + text,
        lambda text: "{}\n" + text,
        lambda text: "\x00" + text,
    ],
)
def test_changed_questions_are_refused_and_missing_ones_named(tmp_path: Path, name: str, change) -> None:
    file = written(tmp_path, FEW) / name
    if change is None:
        file.unlink()
    else:
        file.write_text(change(file.read_text()))
    with pytest.raises(ValueError, match=f"changed after sealing; restore .*{name if change is None else ''}"):
        read_seal(tmp_path)


def test_a_later_format_names_the_version_that_wrote_it(tmp_path: Path) -> None:
    change_key(written(tmp_path, FEW), format=3)
    with pytest.raises(ValueError, match=f"format is 3; this version reads format 2: install .*{TOOL}"):
        read_seal(tmp_path)


# ---------------------------------------------------------------------- the public folder

ORIGINALS = [
    *numbered(30),
    *(
        original(f"Public or {n}?", [f"{n} {m}" for m in "wxyz"], wordings=(f"Or {n}?",), answers=(0, 1))
        for n in range(9)
    ),
    original("Kept?", ["2", "3", "Both A and B"], order="kept"),
    original("Secret question?", ["secret option", "3"], order="held out"),
]


class OneDraw(KeyedDraws):
    """Makes draws that are the same under every key."""

    def __init__(self, key: bytes, purpose, content: bytes) -> None:
        super().__init__(KEY, purpose, content)


def without_hash(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files with the commitment's 64 digits replaced."""
    commitment = json.loads(files[COMMITMENT_FILE])["commitment"].encode()
    return {name: content.replace(commitment, b"commitment") for name, content in files.items()}


@pytest.fixture
def one_draw(monkeypatch):
    monkeypatch.setattr(drawing, "KeyedDraws", OneDraw)


def test_two_keys_with_the_same_draws_give_the_same_bytes_but_for_the_commitment(one_draw) -> None:
    files, others = (public_files(seal_of(ORIGINALS, version)) for version in (key(1), key(2)))
    assert files[COMMITMENT_FILE] != others[COMMITMENT_FILE]
    assert without_hash(files) == without_hash(others)
    commitment, other = (json.loads(version[COMMITMENT_FILE]) for version in (files, others))
    assert {name for name in commitment if commitment[name] != other[name]} == {"commitment"}


def test_no_public_file_has_a_private_wording_or_a_held_out_question() -> None:
    seal = seal_of(ORIGINALS)
    files = public_files(seal)
    whole = b"\n".join(files.values()).decode("utf-8", "replace") + str(rows_of(files))
    private = [wording for question in seal.questions for wording in question.wordings[1:]]
    assert len(private) == 9
    assert not [text for text in [*private, "Secret question?", "secret option"] if text in whole]


def rows_of(files: dict[str, bytes]) -> tuple[list[dict], list[dict]]:
    lines = [json.loads(line) for line in files["mine.jsonl"].decode().split("\n") if line]
    return lines, parquet.read_table(BytesIO(files["mine.parquet"])).to_pylist()


@given(some_originals())
@settings(max_examples=15)
def test_both_files_have_the_sealed_rows_and_nothing_else(originals) -> None:
    seal = seal_of(originals)
    lines, table = rows_of(public_files(seal))
    assert lines == table == public_rows(seal.questions)
    assert {name for row in lines for name in row} <= {"question", "choices", "answer", "subject"}


def test_the_parquet_file_has_one_row_group_no_statistics_and_no_metadata() -> None:
    file = parquet.ParquetFile(BytesIO(public_files(seal_of(ORIGINALS))["mine.parquet"]))
    assert file.metadata.num_row_groups == 1
    assert not file.schema_arrow.metadata
    group = file.metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    assert not [column for column in columns if column.is_stats_set or column.has_offset_index]
    assert file.metadata.metadata is None
    assert set(file.metadata.created_by.split()[:2]) == {"parquet-cpp-arrow", "version"}
