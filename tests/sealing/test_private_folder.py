"""The private folder: what was sealed is read again, and a lost or changed one is reported as what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from lm_eval_leakage.seal.folders import private_files, read_seal
from tests.sealing.made import TOOL, numbered, original, seal_of, some_originals

ORIGINALS = [*numbered(3), original("Held out?", order="held out")]


def written(folder: Path, originals=ORIGINALS) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in private_files(seal_of(originals), originals).items():
        (folder / name).write_bytes(content)
    return folder


@given(some_originals())
@settings(max_examples=15)
def test_a_seal_is_read_as_it_was_written(tmp_path_factory, originals) -> None:
    assert read_seal(written(tmp_path_factory.mktemp("private"), originals)) == seal_of(originals)


def change_key(folder: Path, **changed: object) -> None:
    file = folder / "key.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))


@pytest.mark.parametrize(
    "changed", [{"key": "00" * 32}, {"name": "other"}, {"tool": "other"}, {"commitment": "00" * 32}]
)
def test_a_changed_key_file_is_refused_with_both_commitments(tmp_path: Path, changed) -> None:
    change_key(written(tmp_path), **changed)
    with pytest.raises(ValueError, match=r"changed after sealing; restore .*its commitment is now .*, and was"):
        read_seal(tmp_path)


@pytest.mark.parametrize("key", ["00" * 16, "xy" * 32, 7, None])
def test_a_key_that_is_none_is_refused(tmp_path: Path, key) -> None:
    change_key(written(tmp_path), key=key)
    with pytest.raises(ValueError, match="changed after sealing"):
        read_seal(tmp_path)


@pytest.mark.parametrize("name", ["questions.jsonl", "held_out.jsonl"])
@pytest.mark.parametrize(
    "change",
    [
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
def test_changed_questions_are_refused(tmp_path: Path, name: str, change) -> None:
    file = written(tmp_path) / name
    file.write_text(change(file.read_text()))
    with pytest.raises(ValueError, match="changed after sealing; restore"):
        read_seal(tmp_path)


@pytest.mark.parametrize("name", ["questions.jsonl", "held_out.jsonl"])
def test_missing_questions_are_named(tmp_path: Path, name: str) -> None:
    (written(tmp_path) / name).unlink()
    with pytest.raises(ValueError, match=f"restore them from a backup .*{name}"):
        read_seal(tmp_path)


def test_a_later_format_names_the_version_that_wrote_it(tmp_path: Path) -> None:
    change_key(written(tmp_path), format=3)
    with pytest.raises(ValueError, match=f"format is 3; this version reads format 2: install .*{TOOL}"):
        read_seal(tmp_path)
