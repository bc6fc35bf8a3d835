from __future__ import annotations

import logging
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.harness.models.question_requests import request_key
from lm_eval_leakage.logs.answer_store import AnswerStore, decoded, encoded
from lm_eval_leakage.records import TokenScores

MODEL = {"backend": "hf", "pretrained": "a"}
ANSWERS = {
    request_key("loglikelihood", ("a", "b")): (-1.25, True),
    request_key("generate_until", ("a", {"until": []})): "text\u2028 with \ud800 anything",
    request_key("token_scores", ("a",)): TokenScores((-1.0, -2.5), (-3.0, -0.1), (0.5, 0.25)),
}


def keep(folder: Path, answers=ANSWERS) -> None:
    store = AnswerStore(folder, MODEL, "a")
    for key, answer in answers.items():
        store.add(key, answer)
    store.close()


@given(st.one_of(st.tuples(st.floats(allow_nan=False), st.booleans()), st.text()))
def test_an_answer_survives_to_the_last_bit(answer) -> None:
    assert decoded(encoded(answer)) == answer


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_different_requests_have_different_keys(request, other) -> None:
    assert (request_key("loglikelihood", request) == request_key("loglikelihood", other)) == (request == other)
    assert request_key("loglikelihood", request) != request_key("generate_until", request)


def test_many_processes_keep_side_by_side(tmp_path: Path) -> None:
    stores = [AnswerStore(tmp_path, MODEL) for _ in range(5)]
    for number, store in enumerate(stores):
        for text in range(700):
            store.add(request_key("loglikelihood", (str(number), str(text))), (-float(text), False))
    for store in stores:
        store.flush()
    keys = [request_key("loglikelihood", (str(number), str(text))) for number in range(5) for text in range(700)]
    assert len(AnswerStore(tmp_path, MODEL).find(keys)) == 3500
    for store in stores:
        store.close()


def test_answers_of_another_model_are_never_found_and_the_difference_is_reported(tmp_path: Path) -> None:
    keep(tmp_path)
    other = AnswerStore(tmp_path, MODEL | {"pretrained": "b"}, "b")
    assert other.find(ANSWERS) == {}
    assert other.others() == []  # nobody expects the answers of a model of another name
    other = AnswerStore(tmp_path, MODEL | {"pretrained": "a (digest)", "dtype": "float16"}, "a")
    assert other.find(ANSWERS) == {}
    assert other.others() == ["dtype not given, now float16; pretrained a, now a (digest)"]
    assert AnswerStore(tmp_path, MODEL, "a").others() == []


def test_a_later_answer_counts(tmp_path: Path) -> None:
    key = request_key("loglikelihood", ("a", "b"))
    store = AnswerStore(tmp_path, MODEL)
    store.add(key, (-1.0, False))
    store.flush()
    store.add(key, (-2.0, False))
    store.close()
    assert AnswerStore(tmp_path, MODEL).find([key]) == {key: (-2.0, False)}


def test_what_one_process_keeps_any_other_finds_but_no_row_that_was_changed(tmp_path: Path) -> None:
    keep(tmp_path)
    assert AnswerStore(tmp_path, MODEL).find(ANSWERS) == ANSWERS
    (file,) = tmp_path.glob("*.sqlite")
    with sqlite3.connect(file) as database:
        database.execute("UPDATE answers SET answer = CAST('[-0.5, true]' AS BLOB)")
    database.close()
    assert AnswerStore(tmp_path, MODEL).find(ANSWERS) == {}


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_gives_right_answers_or_none(tmp_path: Path, seed: int, caplog) -> None:
    import random

    rng = random.Random(seed)
    right = {request_key("loglikelihood", ("q", str(number))): (-float(number), False) for number in range(300)}
    keep(tmp_path, right)
    (file,) = tmp_path.glob("*.sqlite")
    content = bytearray(file.read_bytes())
    if seed % 2:
        content = content[: rng.randrange(len(content))]
    for _ in range(rng.randrange(1, 200) if len(content) else 0):
        content[rng.randrange(len(content))] = rng.randrange(256)
    file.write_bytes(content)
    answers = AnswerStore(tmp_path, MODEL).find(right)
    assert all(right[key] == answer for key, answer in answers.items())


def test_a_kill_in_the_middle_of_a_commit_loses_that_commit_only(tmp_path: Path) -> None:
    keys = [b"%d" % number for number in range(2000)]
    living = AnswerStore(tmp_path / "living", {"model": "a"})
    for key in keys:
        living.add(key, (1.0, True))
    living.flush()
    database = living._database
    assert database is not None
    database.execute("PRAGMA cache_size=1")  # a transaction writes to the file before it is committed
    database.execute("BEGIN")
    rows = [(b"later %d" % number, b"x" * 100, b"") for number in range(3000)]
    database.executemany("INSERT INTO answers VALUES (?, ?, ?)", rows)
    shutil.copytree(tmp_path / "living", tmp_path / "killed")  # as SIGKILL would leave them
    assert list((tmp_path / "killed").glob("*-journal"))
    killed = AnswerStore(tmp_path / "killed", {"model": "a"})
    assert len(killed.find(keys)) == len(keys)
    assert not killed.others()
    assert not list((tmp_path / "killed").glob("*-journal"))
    database.commit()
    assert len(living.find(keys)) == len(keys)
    living.close()


def test_a_full_disk_is_named_once_and_ends_nothing(tmp_path: Path, caplog) -> None:
    place = tmp_path / "file"
    place.write_text("where the folder should be")
    store = AnswerStore(place, MODEL)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            store.add(request_key("loglikelihood", ("a", "b")), (-1.0, False))
            store.flush()
    assert caplog.text.count("answers can no longer be stored") == 1
    assert store.n_kept == 0
