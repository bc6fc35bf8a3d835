"""The commands that read runs, called as typed."""

from __future__ import annotations

import json

import pytest

from tests.results.harness_files import answered, row, write_run


@pytest.mark.parametrize(
    ("condition", "code", "said"),
    [
        ("pvalue<0.01", 1, "m, bench: pvalue is"),
        ("pvalue", 2, "verdict>=evidence"),
        ("pvalue<0.01", 1, "note: pvalue tests a null hypothesis that does not hold for options in written orders"),
        ("verdict>=evidence", 2, "not judged, since it has no verdict: these are orders"),
        ("verdict>=evidence --allow-no-verdict", 0, "m, bench: not judged, since it has no verdict"),
    ],
)
def test_exit_codes_distinguish_a_met_condition_from_one_that_cannot_be_checked(
    folder, typed, condition, code, said
) -> None:
    exit_code, _, err = typed("annotate", folder, "--fail-on", *condition.split())
    assert exit_code == code
    assert said in err


def test_notes_name_the_model_where_there_are_several(folder, typed) -> None:
    write_run(folder / "runs", "other", {"bench": [answered(0, row(0), True)]})
    _, _, err = typed("annotate", folder, "--dry_run")
    assert "note: other: no audit of this model was found" in err


def test_an_alias_joins_a_model_with_its_audit_under_another_name(folder, typed) -> None:
    (folder / "audits" / "m").rename(folder / "audits" / "else")
    for file in (folder / "audits").rglob("results_*"):
        file.write_text(file.read_text().replace('"model_name": "m"', '"model_name": "my/m"'))
    _, out, err = typed("annotate", folder, "--dry_run")
    assert "--alias OTHER=MODEL" in err
    _, out, _ = typed("annotate", folder, "--dry_run", "--format", "json", "--alias", "my/m=m")
    (only,) = json.loads(out)
    assert (only["model"], only["n_tested"]) == ("m", 6)
    assert typed("annotate", folder, "--alias", "m")[0] == 2


def test_without_an_audit_no_leaderboard_is_written_and_a_command_that_makes_one_is_named(tmp_path, typed) -> None:
    write_run(tmp_path / "runs", "m", {"bench": [answered(0, row(0), True)]})
    board = tmp_path / "board.html"
    code, out, err = typed("leaderboard", tmp_path / "runs", "--output_path", board)
    assert (code, out, board.exists()) == (2, "", False)
    assert f"no run in {tmp_path / 'runs'} is an audit" in err
    assert "lm-eval-leakage check --model hf" in err
    assert f"--runs {tmp_path}" in err


def test_an_unknown_column_of_a_leaderboard_is_reported_before_anything_is_read(typed) -> None:
    code, _, err = typed("leaderboard", "nowhere", "--columns", "verdikt")
    assert code == 2
    assert "--columns has 'verdikt', which is no column; did you mean verdict" in err
    assert "nowhere" not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("annotate", "RUNS", "--output_path", "FILE"), "file is a file; choose a folder"),
        (("clean", "RUNS", "--output_path", "FILE"), "file is a file; choose a folder"),
        (("report", "RUNS", "--output_path", "FOLDER"), "folder is a folder; choose a file"),
        (("leaderboard", "RUNS", "--output_path", "FOLDER"), "folder is a folder; choose a file"),
        (("leaderboard", "RUNS", "--format", "csv", "--output_path", "FILE/a.csv"), "cannot be written, since"),
    ],
)
def test_a_place_that_cannot_be_written_is_reported_before_anything_is_read(
    typed, tmp_path, monkeypatch, words, message
):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    named = {"RUNS": "nowhere", "FILE": "file", "FOLDER": "folder"}
    code, out, err = typed(*("/".join(named.get(part, part) for part in word.split("/")) for word in words))
    assert (code, out) == (2, "")
    assert message in err
    assert "nowhere" not in err


@pytest.mark.parametrize("command", ["annotate", "report", "leaderboard", "clean"])
def test_runs_without_audits_are_refused_with_the_command_that_audits_them(folder, typed, monkeypatch, command):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    words = ("--output_path", "cleaned") if command == "clean" else ()
    code, out, err = typed(command, "runs", *words)
    assert (code, out) == (2, "")
    assert err.startswith("no run in runs is an audit; this audits the questions of the runs and gives the verdict: ")
    assert "lm-eval-leakage check " in err
    assert "--runs runs" in err
    assert sorted(folder.rglob("*")) == before
