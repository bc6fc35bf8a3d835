"""The ledger on disk: nothing is lost, and nothing that was changed is believed."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lm_eval_leakage.inference.looks import Look
from lm_eval_leakage.sealing.looks_file import LOOKS_FILE, add_looks, read_looks


def look(digest: str = "a", model: str = "org/one") -> Look:
    return Look(0, model, digest, 0.01, 0.3, math.nan, "0-9", "2026-01-01T00:00:00+00:00")


def test_a_ledger_begins_empty_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_looks(tmp_path) == []
    added = add_looks(tmp_path, [look("a"), look("b", "org/two"), look("a")])
    assert [(own.number, is_new) for own, is_new in added] == [(1, True), (2, True), (1, False)]
    first, second = read_looks(tmp_path)
    assert (first.model, second.model, second.digest) == ("org/one", "org/two", "b")
    assert math.isnan(first.log_evalue)
    kept = json.loads((tmp_path / LOOKS_FILE).read_text().splitlines()[1])
    assert (kept["log_evalue"], kept["level"]) == (None, pytest.approx(0.01 / 6))


def test_authors_who_look_at_the_same_time_lose_no_look_and_share_no_number(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: add_looks(tmp_path, [look(f"d{n}")]), range(24)))
    numbers = sorted(own.number for added in found for own, _ in added)
    assert numbers == list(range(1, 25))
    assert [one.number for one in read_looks(tmp_path)] == numbers


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[1:], "line 1 is not as this package wrote it .it is look 2."),
        (lambda lines: [lines[0], "{}"], "line 2 .*KeyError"),
        (lambda lines: [lines[0], lines[1][:30]], "line 2 .*JSONDecodeError"),
        (lambda lines: [lines[0].replace('"0-9"', '"all"'), lines[1]], "line 1 .*invalid literal"),
        (lambda lines: [lines[0].replace('"alpha": 0.01', '"alpha": 7'), lines[1]], "line 1 .*alpha is 7"),
        (lambda lines: ["[]", lines[1]], "line 1"),
    ],
)
def test_a_ledger_that_was_changed_is_refused_with_the_place_and_the_remedy(tmp_path: Path, change, why: str) -> None:
    add_looks(tmp_path, [look("a"), look("b")])
    file = tmp_path / LOOKS_FILE
    file.write_text("\n".join(change(file.read_text().splitlines())) + "\n")
    before = file.read_text()
    with pytest.raises(ValueError, match=f"{why}.*restore the file from a backup"):
        add_looks(tmp_path, [look("c")])
    assert file.read_text() == before


def test_a_folder_that_cannot_be_written_is_an_error_since_an_uncounted_look_spoils_all_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written .*make the private folder writable"):
        add_looks(tmp_path / "file", [look()])
