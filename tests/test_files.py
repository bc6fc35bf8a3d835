from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from lm_eval_leakage import files
from lm_eval_leakage.files import (
    atomic_file,
    atomic_remove,
    atomic_write,
    check_writable,
    publish_files,
    published,
    try_to_write,
)
from tests.limits import full_disk


def write_and_fail(stream: IO, what: str) -> None:
    stream.write(what)
    raise RuntimeError


def test_an_error_in_the_middle_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a.txt", "old")
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "a.txt") as stream:
        write_and_fail(stream, "new" * 100_000)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a.txt", "old")
    with full_disk(1 << 16), pytest.raises(OSError, match="too large"):
        atomic_write(tmp_path / "a.txt", "new" * 100_000)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a.txt", "old")
    kill_in(lambda: atomic_write(tmp_path / "a.txt", "new" * 100_000))
    assert (tmp_path / "a.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    atomic_write(tmp_path / "b.txt", "another file")
    assert names(tmp_path) == ["a.txt", "b.txt"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a.txt", "old")
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    atomic_write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize("piped", [True, False])
def test_standard_output_is_written_to_whatever_it_is(tmp_path: Path, piped: bool) -> None:
    script = "from pathlib import Path; from lm_eval_leakage.files import atomic_write\n"
    script += "atomic_write(Path('/dev/stdout'), 'text')"
    with (tmp_path / "out").open("wb") as file:
        to = subprocess.PIPE if piped else file
        done = subprocess.run([sys.executable, "-c", script], check=True, stdout=to)
    assert (done.stdout if piped else (tmp_path / "out").read_bytes()) == b"text"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_what_is_written_is_what_is_read_but_for_a_lone_surrogate(tmp_path: Path) -> None:
    atomic_write(tmp_path / "new" / "folder" / "a.txt", "öne\r\na\ud800b")
    assert (tmp_path / "new" / "folder" / "a.txt").read_bytes() == "öne\r\na?b".encode()


def folder_with(place: Path, text: str = "text") -> Path:
    atomic_write(place / "file", text)
    return place


def test_a_finished_folder_takes_its_place_with_nothing_beside_it(tmp_path: Path) -> None:
    assert published(folder_with(tmp_path / "made"), tmp_path / "there")
    assert not published(folder_with(tmp_path / "made", "another text"), tmp_path / "there")
    atomic_remove(tmp_path / "made")
    assert [file.name for file in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there" / "file").read_text() == "text"


def test_what_is_removed_is_gone_with_nothing_left_and_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    atomic_remove(folder_with(tmp_path / "a"))
    atomic_remove(tmp_path / "a")
    atomic_remove(tmp_path / "no" / "such")
    assert not list(tmp_path.iterdir())


def test_what_can_be_written_is_known_without_writing(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "folder" / "a.txt")
    check_writable(tmp_path / "new" / "folder", folder=True)
    check_writable(tmp_path, folder=True)
    check_writable(Path("/dev/stdout"))
    assert not list(tmp_path.iterdir())
    atomic_write(tmp_path / "a.txt", "old")
    check_writable(tmp_path / "a.txt")


@pytest.mark.parametrize(("place", "folder"), [("a.txt", False), ("new.txt", False), ("", True), ("new", True)])
def test_a_read_only_place_is_reported_before(tmp_path: Path, monkeypatch, place: str, folder: bool) -> None:
    atomic_write(tmp_path / "a.txt", "old")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)  # root may write anywhere
    with pytest.raises(ValueError, match="read-only.; choose another place"):
        check_writable(tmp_path / place, folder=folder)


# ---------------------------------------------------------------------- a folder with secrets


def test_secrets_can_be_read_by_their_owner_only_and_all_files_have_one_time(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        assert publish_files(tmp_path / "new" / "made", {"open/a": b"a", "secret/b": b"b"}, "secret")
    finally:
        os.umask(umask)
    made = tmp_path / "new" / "made"
    modes = {str(path.relative_to(made)): path.stat().st_mode & 0o777 for path in made.rglob("*")}
    assert modes == {"open": 0o755, "open/a": 0o644, "secret": 0o700, "secret/b": 0o600}
    times = {path.stat().st_mtime_ns for path in made.rglob("*/*")}
    assert len(times) == 1
    assert times.pop() % 10**9 == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["made"]


def test_a_folder_with_files_is_not_replaced_and_an_empty_one_is_filled(tmp_path: Path) -> None:
    assert publish_files(tmp_path / "made", {"secret/b": b"old"}, "secret")
    assert not publish_files(tmp_path / "made", {"secret/b": b"new"}, "secret")
    assert (tmp_path / "made" / "secret" / "b").read_bytes() == b"old"
    (tmp_path / "empty").mkdir()
    assert publish_files(tmp_path / "empty", {"open/a": b"a"}, "secret")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "made"]


def test_a_full_disk_leaves_no_folder(tmp_path: Path) -> None:
    with full_disk(1_000), pytest.raises(OSError, match="File too large"):
        publish_files(tmp_path / "made", {"open/a": b"a", "secret/b": b"b" * 2_000}, "secret")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- kills


def kill_in(run: Callable[[], object], owner: object = os, name: str = "fsync") -> None:
    """Run `run` in a process that is killed at its first call of `owner.name`."""
    child = os.fork()
    if child == 0:
        setattr(owner, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        run()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_removal_that_was_killed_is_completed_by_the_next_write(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a" / "file", "text")
    kill_in(lambda: atomic_remove(tmp_path / "a"), files.shutil, "rmtree")
    assert "a" not in names(tmp_path)
    assert len(names(tmp_path)) == 2
    atomic_write(tmp_path / "b", "")
    assert names(tmp_path) == ["b"]


def test_a_part_that_is_being_written_is_never_removed_however_old_it_is(tmp_path: Path) -> None:
    with files.new_part(tmp_path / "slow") as (part, stream):
        os.utime(part, (0, 0))
        atomic_write(tmp_path / "other", "")
        stream.write(b"end")
        stream.flush()
        assert part.read_bytes() == b"end"


@pytest.mark.parametrize(("days", "stays"), [(0.9, True), (1.1, False)])
def test_a_part_of_another_machine_stays_for_a_day_since_its_lock_may_not_be_seen(
    tmp_path: Path, days: float, stays: bool
) -> None:
    part = tmp_path / f".a.json.{'0' * 8}.{'a' * 32}{files.PART}"
    part.write_text("half")
    then = time.time() - days * files.DAY
    os.utime(part, (then, then))
    atomic_write(tmp_path / "b", "")
    assert part.exists() == stays


def test_where_a_file_system_has_no_locks_files_are_written_and_no_part_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    kill_in(lambda: atomic_write(tmp_path / "a", "half"))
    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    atomic_write(tmp_path / "a", "whole")
    assert (tmp_path / "a").read_text() == "whole"
    assert len(names(tmp_path)) == 2


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
    lock, tries = files.fcntl.flock, []

    def at_first_removed(stream, how: int) -> None:
        if not tries:
            Path(stream.name).unlink()
        tries.append(stream.name)
        lock(stream, how)

    monkeypatch.setattr(files.fcntl, "flock", at_first_removed)
    atomic_write(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"
    assert len(set(tries)) == 2
