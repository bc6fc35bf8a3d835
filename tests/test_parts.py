"""Writers that cannot be told apart by their process ids, and what kills leave of their files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_eval_leakage import files as parts
from lm_eval_leakage.files import atomic_remove, atomic_write, publish_files, try_to_write
from tests import forks  # noqa: F401

N_WRITERS, N_WRITES, SIZE = 4, 25, 50_000


def forked(run: Callable[[], object]) -> int:
    """The process id of a child that runs `run`, sees this process's id as its own, and exits with 1 if it raises."""
    own = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.getpid = lambda: own  # as in containers, where every process is number 1
        run()
    except BaseException:
        os._exit(1)
    os._exit(0)


def exit_codes(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def kill_in(run: Callable[[], object]) -> None:
    """Runs `run` in a process that is killed when it flushes a file to disk."""

    child = os.fork()
    if child == 0:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        run()
    assert exit_codes([child]) == [-signal.SIGKILL]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_writers_with_one_process_id_write_one_file_and_every_read_sees_a_whole_one(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.json"
    atomic_write(file, "0" * SIZE)

    def write(letter: str) -> None:
        for _ in range(N_WRITES):
            atomic_write(file, letter * SIZE)

    children = [forked(lambda letter=letter: write(letter)) for letter in "1234"[:N_WRITERS]]
    seen = set()
    while any(os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None for child in children):
        text = file.read_text()
        seen.add((len(text), len(set(text))))
    assert exit_codes(children) == [0] * N_WRITERS
    assert seen <= {(SIZE, 1)}
    assert names(tmp_path) == ["verdicts.json"]


def test_of_writers_with_one_process_id_none_finds_a_folder_unwritable(tmp_path: Path) -> None:
    def look() -> None:
        for _ in range(N_WRITES):
            try_to_write(tmp_path)

    assert exit_codes([forked(look) for _ in range(N_WRITERS)]) == [0] * N_WRITERS


def test_a_key_that_a_kill_left_is_removed_by_the_next_write_into_that_folder(tmp_path: Path) -> None:
    kill_in(lambda: publish_files(tmp_path / "sealed", {"public/a": b"a", "private/key": b"secret"}, "private"))
    assert [path.read_bytes() for path in tmp_path.rglob("key")] == [b"secret"]
    try_to_write(tmp_path)
    assert names(tmp_path) == []


def test_a_removal_that_was_killed_is_completed_by_the_next_write(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a" / "file", "text")
    child = os.fork()
    if child == 0:
        parts.shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        atomic_remove(tmp_path / "a")
    assert exit_codes([child]) == [-signal.SIGKILL]
    assert "a" not in names(tmp_path)
    assert len(names(tmp_path)) == 2
    atomic_write(tmp_path / "b", "")
    assert names(tmp_path) == ["b"]


def test_a_part_that_is_being_written_is_never_removed_however_old_it_is(tmp_path: Path) -> None:
    with parts.own_part(tmp_path / "slow") as (part, stream):
        os.utime(part, (0, 0))
        atomic_write(tmp_path / "other", "")
        stream.write(b"end")
        stream.flush()
        assert part.read_bytes() == b"end"


@pytest.mark.parametrize(("days", "stays"), [(0.9, True), (1.1, False)])
def test_a_part_of_another_machine_stays_for_a_day_since_its_lock_may_not_be_seen(
    tmp_path: Path, days: float, stays: bool
) -> None:
    part = tmp_path / f".a.json.{'0' * 8}.{'a' * 32}{parts.PART}"
    part.write_text("half")
    then = time.time() - days * parts.DAY
    os.utime(part, (then, then))
    atomic_write(tmp_path / "b", "")
    assert part.exists() == stays


def test_where_a_file_system_has_no_locks_files_are_written_and_no_part_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    kill_in(lambda: atomic_write(tmp_path / "a", "half"))
    monkeypatch.setattr(parts.fcntl, "flock", no_locks)
    atomic_write(tmp_path / "a", "whole")
    assert (tmp_path / "a").read_text() == "whole"
    assert len(names(tmp_path)) == 2


def test_a_folder_that_cannot_be_listed_can_be_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(parts.os, "scandir", refused)
    atomic_write(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"


def test_other_files_that_end_like_parts_are_nobody_s_business(tmp_path: Path) -> None:
    for name in ("film.mp4.part", ".a.1234.part", f".a.{'g' * 8}.{'a' * 32}.part"):
        (tmp_path / name).write_text("")
    before = names(tmp_path)
    try_to_write(tmp_path)
    assert names(tmp_path) == before


@pytest.mark.parametrize("name", ["a" * 255, "ä" * 127, "🙂" * 63])
def test_a_file_may_have_the_longest_name_that_the_file_system_takes(tmp_path: Path, name: str) -> None:
    atomic_write(tmp_path / name, "text")
    assert (tmp_path / name).read_text() == "text"


def test_a_writer_whose_part_was_taken_for_abandoned_before_it_was_locked_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, tries = parts.fcntl.flock, []

    def at_first_removed(stream, how: int) -> None:
        if not tries:
            Path(stream.name).unlink()
        tries.append(stream.name)
        lock(stream, how)

    monkeypatch.setattr(parts.fcntl, "flock", at_first_removed)
    atomic_write(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"
    assert len(set(tries)) == 2
