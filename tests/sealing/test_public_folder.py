"""Nothing that is public reveals the key, the private versions, or the order in which the author wrote."""

from __future__ import annotations

import base64
import json
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from pyarrow import parquet

from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.seal import drawn as drawing
from lm_eval_leakage.seal.drawn import KeyedDraws
from lm_eval_leakage.seal.folders import COMMITMENT_FILE, differences, public_files
from tests.sealing.made import KEY, key, numbered, original, seal_of, some_originals

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
    """Draws that are the same under every key."""

    def __init__(self, key: bytes, purpose, content: bytes) -> None:
        super().__init__(KEY, purpose, content)


def without_hash(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files, the commitment's 64 digits replaced."""
    commitment = json.loads(files[COMMITMENT_FILE])["commitment"].encode()
    return {name: content.replace(commitment, b"commitment") for name, content in files.items()}


@pytest.fixture
def one_draw(monkeypatch):
    monkeypatch.setattr(drawing, "KeyedDraws", OneDraw)


def test_two_keys_with_the_same_draws_give_the_same_bytes_but_for_the_commitment(one_draw) -> None:
    files, others = (public_files(seal_of(ORIGINALS, one)) for one in (key(1), key(2)))
    assert files[COMMITMENT_FILE] != others[COMMITMENT_FILE]
    assert without_hash(files) == without_hash(others)
    commitment, other = (json.loads(one[COMMITMENT_FILE]) for one in (files, others))
    assert {name for name in commitment if commitment[name] != other[name]} == {"commitment"}


def test_no_public_file_has_the_key_or_a_part_of_it() -> None:
    secret = key(0)
    whole = b"\n".join(public_files(seal_of(ORIGINALS, secret)).values())
    spellings = [
        secret,
        secret.hex().encode(),
        base64.b64encode(secret),
        base64.urlsafe_b64encode(secret),
        secret[::-1],
    ]
    for spelling in spellings:
        parts = {spelling[place : place + 8] for place in range(len(spelling) - 7)}
        assert not [part for part in parts if part.lower() in whole.lower()]


def test_no_public_file_has_a_private_wording_or_a_held_out_question() -> None:
    seal = seal_of(ORIGINALS)
    files = public_files(seal)
    whole = b"\n".join(files.values()).decode("utf-8", "replace") + str(rows_of(files))
    private = [wording for one in seal.questions for wording in one.wordings[1:]]
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
    assert lines == table
    assert differences(seal, [question_from_doc(row) for row in lines]) == []
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


def test_no_bit_of_the_key_goes_with_where_a_public_answer_stands() -> None:
    """300 keys, 256 bits, 8 answers: of 2,048 correlations, none is beyond 5 standard errors."""
    keys = [key(number) for number in range(300)]
    bits = np.array([np.unpackbits(np.frombuffer(one, np.uint8)) for one in keys]) - 0.5
    answers = []
    for one in keys:
        by_text = sorted(seal_of(numbered(8), one).questions, key=lambda question: question.wordings)
        answers.append([question.answer % 2 - 0.5 for question in by_text])
    z = 4 * bits.T @ np.array(answers) / np.sqrt(len(keys))
    assert z.shape == (256, 8)
    assert 2 < np.abs(z).max() < 5
