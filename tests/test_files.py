from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lm_eval_leakage.files import whole_file, write_whole


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "folder" / "a.txt", "öne\r\ntwo\n")
    assert (tmp_path / "new" / "folder" / "a.txt").read_bytes() == "öne\r\ntwo\n".encode()


def test_an_error_in_the_middle_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.txt", "old")
    with pytest.raises(RuntimeError), whole_file(tmp_path / "a.txt") as stream:
        stream.write("new" * 100_000)
        raise RuntimeError
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A limit on the size of files stands in for it: both raise OSError in the middle of the writing."""
    write_whole(tmp_path / "a.txt", "old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limit[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_whole(tmp_path / "a.txt", "new" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.txt", "old")
    script = (
        "import os, signal, sys; from pathlib import Path; from lm_eval_leakage.files import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as stream:\n"
        "    stream.write('new' * 100_000); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.txt")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.txt", "old")
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "new"


def test_what_is_no_regular_file_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    write_whole(tmp_path / "pipe", "text")
    assert reader.communicate()[0] == b"text"
    assert (tmp_path / "pipe").is_fifo()


def test_a_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.txt", "a\ud800b")
    assert (tmp_path / "a.txt").read_text() == "a?b"


def test_the_helper_hides_nothing_of_the_package() -> None:
    """A module of the package is an attribute of it, instead of what the package imported under that name."""
    import lm_eval_leakage

    assert lm_eval_leakage.files.write_whole is write_whole
    assert (lm_eval_leakage.task_configs_path() / "fresh" / "fresh.jsonl").is_file()
