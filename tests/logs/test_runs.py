from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lm_eval_leakage.logs.run import OF_CHECK, json_lines, sanitized
from lm_eval_leakage.logs.runs import find_runs
from tests.results.harness_files import answered, row, time, write_run

LINES = [answered(0, row(0), True)]


def test_runs_are_found_at_any_depth_oldest_first(tmp_path) -> None:
    write_run(tmp_path / "deep" / "er", "org/m", {"b": LINES})
    write_run(tmp_path, "org/m", {"a": LINES, "c": LINES})
    first, second = find_runs([tmp_path], problems := [])
    assert (first.model, list(first.logs), sorted(second.logs)) == ("org/m", ["b"], ["a", "c"])
    assert first.time < second.time
    assert not problems


def test_a_revision_makes_another_model_and_main_does_not(tmp_path) -> None:
    for arguments in ({"pretrained": "m", "revision": "step1000"}, "pretrained=m,revision=main", {"pretrained": "m"}):
        write_run(tmp_path, "m", {"a": LINES}, arguments=arguments)
    assert [run.model for run in find_runs([tmp_path], [])] == ["m revision=step1000", "m", "m"]


def test_samples_whose_results_are_gone_keep_their_model_by_the_folder_or_the_runs_beside_them(tmp_path) -> None:
    write_run(tmp_path, "org/m", {"a": LINES}, results=False)
    (run,) = find_runs([tmp_path], problems := [])
    assert (run.model, run.key) == ("org__m", sanitized("org/m"))
    assert "no results file" in str(problems[0])
    write_run(tmp_path, "org/m", {"a": LINES}, arguments={"pretrained": "org/m", "revision": "r2"})
    assert {run.model for run in find_runs([tmp_path], [])} == {"org/m revision=r2"}


def test_our_own_annotated_files_are_no_runs(tmp_path) -> None:
    place = write_run(tmp_path, "m", {"a": LINES})
    for file in list(place.iterdir()):
        (place / f"{file.stem}_leakage{file.suffix}").write_text(file.read_text())
    (run,) = find_runs([tmp_path], [])
    assert list(run.logs) == ["a"]


@pytest.mark.parametrize("folder", ["replaced/2026-11-30", "work/m/quiz", "unseen/m", "positive/m", "reference/m"])
def test_in_the_folder_of_a_check_only_what_its_model_was_asked_of_the_benchmark_is_read(tmp_path, folder) -> None:
    write_run(tmp_path / "check" / "runs", "m", {"a": LINES})
    write_run(tmp_path / "check" / folder, "m", {"a": LINES, "b": LINES})
    assert len(find_runs([tmp_path], [])) == 2  # of any other folder all are read
    for name in OF_CHECK:
        (tmp_path / "check" / name).write_text("{}")
    for place in (tmp_path, tmp_path / "check"):
        (run,) = find_runs([place], problems := [])
        assert (run.logs.keys(), problems) == ({"a"}, [])
    assert len(find_runs([tmp_path / "check" / folder], [])) == 1


def test_a_folder_without_runs_or_that_is_not_there_says_what_to_name(tmp_path) -> None:
    (tmp_path / "notes_2026-01-01T00-00-00.json").write_text(json.dumps({"results": "none"}))
    with pytest.raises(ValueError, match="--output_path"):
        find_runs([tmp_path], [])
    with pytest.raises(ValueError, match="does not exist"):
        find_runs([tmp_path / "nowhere"], [])


def test_broken_lines_are_numbered_and_the_others_are_read(tmp_path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'{"a": 1}\n\n{"a": \n[1]\n\xff\xfe\n{"a": 2}\n{"a": 3')
    problems: list = []
    assert [(number, line["a"]) for number, line in json_lines(file, problems)] == [(1, 1), (6, 2)]
    assert [(problem.file, problem.line) for problem in problems] == [(file, 3), (file, 4), (file, 5), (file, 7)]
    assert "truncated" in problems[-1].what
    assert "truncated" not in problems[0].what


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch) -> None:
    write_run(tmp_path, "m", {"a": LINES})
    hidden = write_run(tmp_path, "hidden", {"a": LINES})
    scandir = os.scandir

    def denied(place):
        if Path(place) == hidden:
            raise PermissionError(13, "Permission denied", str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", denied)
    (run,) = find_runs([tmp_path], problems := [])
    assert run.model == "m"
    assert str(problems[0]) == f"{hidden}: left out: cannot be listed (Permission denied)"


@pytest.mark.parametrize("content", ['{"results":' * 100_000, "[" * 100_000])
def test_a_results_file_nested_too_deep_is_named(tmp_path, content) -> None:
    place = write_run(tmp_path, "m", {"a": LINES})
    (place / f"results_{time()}.json").write_text(content)
    find_runs([tmp_path], problems := [])
    assert "not a complete results file" in str(problems[0])


def test_runs_behind_symbolic_links_are_found_once_and_loops_end(tmp_path) -> None:
    write_run(tmp_path / "elsewhere", "far", {"a": LINES})
    place = write_run(tmp_path / "here", "near", {"a": LINES})
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere")
    (place / "loop").symlink_to(tmp_path / "here")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "here" / "link")
    runs = find_runs([tmp_path / "here"], problems := [])
    assert sorted(run.model for run in runs) == ["far", "near"]
    (tmp_path / "again").symlink_to(tmp_path / "here")
    assert len(find_runs([tmp_path / "here", tmp_path / "again", tmp_path / "here" / "link"], problems)) == 2
    assert not problems


def test_a_symbolic_link_to_nothing_is_named(tmp_path) -> None:
    write_run(tmp_path, "m", {"a": LINES})
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert len(find_runs([tmp_path], problems := [])) == 1
    assert str(problems[0]) == f"{tmp_path / 'gone'}: left out: a symbolic link to nothing"
