"""Attempts recorded elsewhere are heard of once each."""

from __future__ import annotations

from pathlib import Path

from lm_eval_leakage.files import add_record
from lm_eval_leakage.jobs.folder import Attempt, NewAttempts
from lm_eval_leakage.jobs.plan import Unit


def attempt(shard: int) -> Attempt:
    unit = Unit("m", "quiz", "run", shard, 9)
    return Attempt(unit, True, 1.0, 2, 3, None, False, "w", f"2026-01-01T00:00:0{shard}+00:00")


def test_each_attempt_is_heard_of_once_and_earlier_ones_never(tmp_path: Path) -> None:
    add_record(tmp_path / "a.jsonl", attempt(0).as_line)
    news = NewAttempts(tmp_path)
    assert news.look() == []
    add_record(tmp_path / "b.jsonl", attempt(2).as_line)
    add_record(tmp_path / "a.jsonl", attempt(1).as_line)
    assert news.look() == [attempt(1), attempt(2)]
    assert news.look() == []


def test_a_line_is_heard_of_when_it_is_complete(tmp_path: Path) -> None:
    news, file = NewAttempts(tmp_path), tmp_path / "a.jsonl"
    line = attempt(0).as_line.encode() + b"\n"
    file.write_bytes(line + line[:20])
    assert news.look() == [attempt(0)]
    file.write_bytes(line + line)
    assert news.look() == [attempt(0)]


def test_what_a_killed_worker_has_left_is_passed_over(tmp_path: Path) -> None:
    news = NewAttempts(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(b'{"unit": \n' + attempt(0).as_line.encode() + b"\n")
    assert news.look() == [attempt(0)]


def test_a_folder_that_does_not_exist_yet_has_no_attempts(tmp_path: Path) -> None:
    assert NewAttempts(tmp_path / "attempts").look() == []
