"""What is done, what was tried, and that nothing is there twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, attempt_of
from lm_eval_leakage.jobs.plan import Unit
from lm_eval_leakage.texts import in_one_sentence

ONE, OTHER = Unit("a", "t", "run", 0, 2), Unit("a", "t", "run", 1, 2)


def attempt(unit: Unit, second: int, *, ok: bool = False, worker: str = "w") -> Attempt:
    time = f"2026-01-01T00:00:{second:02}.000000+00:00"
    return Attempt(unit, ok, 1.5, 2, 3, None if ok else "why", False, worker, time)


def complete(folder: CampaignFolder, unit: Unit, text: str) -> None:
    folder.work_of(unit).mkdir(parents=True)
    (folder.work_of(unit) / "results.json").write_text(text)


def test_a_unit_is_done_when_its_files_are_moved_and_not_before(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path)
    complete(folder, ONE, "x")
    assert folder.left([ONE, OTHER]) == [ONE, OTHER]
    assert folder.publish(ONE)
    assert folder.left([ONE, OTHER]) == [OTHER]
    assert (folder.run_of(ONE) / "results.json").read_text() == "x"
    assert not folder.work_of(ONE).exists()


def test_a_unit_that_is_done_is_not_replaced(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path)
    complete(folder, ONE, "first")
    folder.publish(ONE)
    complete(folder, ONE, "second")
    assert not folder.publish(ONE)
    assert (folder.run_of(ONE) / "results.json").read_text() == "first"


def test_attempts_of_all_workers_are_read_in_their_order(tmp_path: Path) -> None:
    told = [attempt(ONE, 3, worker="v"), attempt(OTHER, 1), attempt(ONE, 2)]
    for own in told:
        CampaignFolder(tmp_path).record(own)
    assert CampaignFolder(tmp_path).attempts() == [told[1], told[2], told[0]]
    assert len(list((tmp_path / "attempts").iterdir())) == 3


def test_an_incomplete_line_is_passed_over(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path)
    folder.record(attempt(ONE, 1))
    (file,) = (tmp_path / "attempts").iterdir()
    file.write_text(file.read_text() + file.read_text()[:40])
    assert folder.attempts() == [attempt(ONE, 1)]


def test_a_unit_failed_if_its_last_attempt_did_and_it_is_not_done(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path)
    for own in (attempt(ONE, 1), attempt(OTHER, 2), attempt(ONE, 3), attempt(OTHER, 4, ok=True)):
        folder.record(own)
    complete(folder, OTHER, "x")
    folder.publish(OTHER)
    assert folder.failed([ONE, OTHER]) == [attempt(ONE, 3)]


def test_the_lock_of_a_unit_is_free_when_its_process_is_killed(tmp_path: Path) -> None:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with CampaignFolder(tmp_path).sole_use(ONE):
            os.write(write, b"x")
            os.kill(os.getpid(), 9)
    os.read(read, 1)
    os.waitpid(child, 0)
    with CampaignFolder(tmp_path).sole_use(ONE):
        pass
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("two\nlines"), "ValueError: two lines"),
        (RuntimeError(), "RuntimeError"),
        (SystemExit("choose another"), "choose another"),
        (ValueError("x" * 1000), f"ValueError: {'x' * 288}..."),
    ],
)
def test_an_error_is_told_on_one_line(error: BaseException, sentence: str) -> None:
    assert in_one_sentence(error) == sentence


@pytest.mark.parametrize("line", ["", "{}", "[]", '{"unit": 1}', '{"unit": "a/t/run/0of1", "more": 1}'])
def test_what_is_not_an_attempt_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="is not the line of an attempt"):
        attempt_of(line)
