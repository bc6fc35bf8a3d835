"""The ledger on disk: nothing is lost, and nothing that was changed is believed."""

from __future__ import annotations

import hmac
import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from filelock import FileLock

from lm_eval_leakage.seal import looks_file
from lm_eval_leakage.seal.looks_file import HEAD_FILE, LOOKS_FILE, Ledger, add_looks, head_text, read_ledger
from lm_eval_leakage.stats.looks import Look
from tests.sealing.made import numbered, seal_of

SEAL = seal_of(numbered(12))


def look(digest: str = "a", model: str = "org/one") -> Look:
    return Look(0, model, digest, 0.01, 0.3, math.nan, "0-9", "2026-01-01T00:00:00+00:00")


@pytest.fixture
def private(tmp_path: Path) -> Path:
    (tmp_path / HEAD_FILE).write_text(head_text(SEAL))
    return tmp_path


def add(folder: Path, *looks: Look) -> list[tuple[Look, Look | None]]:
    return add_looks(folder, SEAL, looks)


def refused(folder: Path, why: str) -> None:
    """Check that the ledger can be neither read nor added to, and that neither file is touched."""
    before = {path: path.read_bytes() for path in folder.glob("looks*") if path.suffix != ".lock"}
    for use in (lambda: read_ledger(folder, SEAL), lambda: add(folder, look("new"))):
        with pytest.raises(ValueError, match=f"(?s){why}.*from the newest backup"):
            use()
    assert {path: path.read_bytes() for path in folder.glob("looks*") if path.suffix != ".lock"} == before


def test_a_ledger_begins_empty_and_is_read_as_it_was_written(private: Path) -> None:
    assert read_ledger(private, SEAL).looks == ()
    added = add(private, look("a"), look("b", "org/two"), look("a"))
    assert [(new.number, written and written.number) for new, written in added] == [(1, None), (2, None), (1, 1)]
    first, second = read_ledger(private, SEAL).looks
    assert (first.model, second.model, second.digest) == ("org/one", "org/two", "b")
    assert math.isnan(first.log_evalue)
    kept = json.loads((private / LOOKS_FILE).read_text().splitlines()[1])
    assert (kept["log_evalue"], kept["share"]) == (None, pytest.approx(0.01 * 2 / 3))


def test_each_line_has_the_hmac_of_itself_and_of_the_line_before(private: Path) -> None:
    """The test computes the codes as anybody who has the key can."""
    add(private, look("a"), look("b"))

    def code(before: str, content: object) -> str:
        text = json.dumps(["looks", before, content], sort_keys=True, separators=(",", ":"))
        return hmac.new(SEAL.key, text.encode(), "sha256").hexdigest()

    heads = [code("ledger", SEAL.commitment)]
    for line in (private / LOOKS_FILE).read_text().splitlines():
        kept = json.loads(line)
        written = kept.pop("code")
        heads.append(code(heads[-1], kept))
        assert written == heads[-1]
    assert read_ledger(private, SEAL).heads == tuple(heads)
    assert json.loads((private / HEAD_FILE).read_text())["head"] == heads[-1]


def test_authors_who_look_at_the_same_time_lose_no_look_and_share_no_number(private: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: add(private, look(f"d{n}")), range(24)))
    numbers = sorted(new.number for added in results for new, _ in added)
    assert numbers == list(range(1, 25))
    assert [kept.number for kept in read_ledger(private, SEAL).looks] == numbers


MOVED = "was changed, added, removed or moved"
CHANGES = {
    "deleted, the first": (lambda lines: lines[1:], f"line 1 .*{MOVED}"),
    "deleted, in the middle": (lambda lines: [lines[0], lines[2]], f"line 2 .*{MOVED}"),
    "deleted, the last": (lambda lines: lines[:2], "has 2 of the 3 looks that looks_head.json counts"),
    "deleted, all": (lambda lines: [], "has 0 of the 3 looks"),
    "doubled": (lambda lines: [*lines, lines[2]], "line 4 "),
    "another p-value": (lambda lines: [lines[0], lines[1].replace("0.3", "0.002"), lines[2]], "line 2 "),
    "without a code": (lambda lines: [lines[0].replace('"code"', '"kode"'), *lines[1:]], "line 1 .*KeyError"),
    "cut": (lambda lines: [lines[0], lines[1][:30]], "line 2 "),
    **{
        f"in the order {order}": (lambda lines, order=order: [lines[place] for place in order], MOVED)
        for order in permutations(range(3))
        if order != (0, 1, 2)
    },
}


@pytest.mark.parametrize(("change", "why"), CHANGES.values(), ids=CHANGES)
def test_a_ledger_that_was_changed_is_refused_with_the_place_and_the_remedy(private: Path, change, why: str) -> None:
    add(private, look("a"), look("b"), look("c"))
    file = private / LOOKS_FILE
    file.write_text("".join(f"{line}\n" for line in change(file.read_text().splitlines())))
    refused(private, why)


@pytest.mark.parametrize("gone", [(LOOKS_FILE,), (HEAD_FILE,), (LOOKS_FILE, HEAD_FILE)])
def test_files_that_are_gone_are_no_empty_ledger(private: Path, gone) -> None:
    add(private, look("a"))
    for name in gone:
        (private / name).unlink()
    refused(private, "it is missing" if HEAD_FILE in gone else "has 0 of the 1 looks")


def test_a_ledger_that_went_back_is_refused_and_so_is_a_head_that_was_made_to_fit(private: Path) -> None:
    add(private, look("a"))
    earlier, head = (private / LOOKS_FILE).read_text(), read_ledger(private, SEAL).head
    add(private, look("b"))
    (private / LOOKS_FILE).write_text(earlier)
    refused(private, "has 1 of the 2 looks")
    record = json.loads((private / HEAD_FILE).read_text()) | {"looks": 1, "head": head}
    (private / HEAD_FILE).write_text(json.dumps(record))
    refused(private, "looks_head.json, which counts .*it was changed")


def test_a_ledger_of_one_copy_of_the_folder_with_the_head_of_another_is_refused(private: Path) -> None:
    head_of_none = (private / HEAD_FILE).read_text()
    add(private, look("a"))
    head = (private / HEAD_FILE).read_text()
    (private / LOOKS_FILE).unlink()
    (private / HEAD_FILE).write_text(head_of_none)
    add(private, look("b"), look("c"))
    (private / HEAD_FILE).write_text(head)
    refused(private, "has 2 of the 1 looks")


def test_another_seals_ledger_is_refused(private: Path) -> None:
    other = replace(SEAL, commitment="0" * 64)
    (private / HEAD_FILE).write_text(head_text(other))
    add_looks(private, other, [look("a")])
    refused(private, "line 1 .*was changed, added")


def test_a_kill_after_a_look_was_written_and_before_the_head_was_loses_nothing(private: Path) -> None:
    add(private, look("a"))
    head = (private / HEAD_FILE).read_text()
    add(private, look("b"))
    (private / HEAD_FILE).write_text(head)
    assert isinstance(read_ledger(private, SEAL), Ledger)
    assert [new.number for new, _ in add(private, look("b"), look("c"))] == [2, 3]
    assert json.loads((private / HEAD_FILE).read_text())["looks"] == 3


def test_a_folder_that_cannot_be_written_is_an_error_since_an_uncounted_look_spoils_all_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written .*make the private folder"):
        add(tmp_path / "file", look())


def test_a_ledger_that_another_process_writes_for_too_long_is_an_error_with_the_remedy(private, monkeypatch) -> None:
    monkeypatch.setattr(looks_file, "LOCK_SECONDS", 0.0)
    with FileLock(private / looks_file.LOOKS_LOCK), pytest.raises(ValueError, match="wait until no other command"):
        add(private, look())
