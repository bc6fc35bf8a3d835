"""The program as typed: versions, names, suggestions, completion, colours, quiet."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest

from lm_eval_leakage.cli import commands, output
from lm_eval_leakage.cli.completion import SHELLS
from lm_eval_leakage.cli.output import shows_colours, with_coloured_verdicts
from lm_eval_leakage.harness.seams.command_line import iter_arguments
from lm_eval_leakage.results.verdict import VerdictWord
from tests.cli.reference import PAGE, reference

pytestmark = pytest.mark.usefixtures("hub_cache")


def test_the_versions_are_ours_the_harnesss_and_pythons(typed) -> None:
    code, out, _ = typed("--version")
    assert code == 0
    assert [part.split()[0] for part in out.split(", ")] == ["lm_eval_leakage", "lm_eval", "Python"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("anotate", "runs"), "'anotate' is not a command; did you mean annotate"),
        (("xyzzy",), "'xyzzy' is not a command\n"),
        (("report", "runs", "--output", "x"), "unrecognized arguments: --output x; did you mean --output_path"),
        (("--modle", "hf", "--tasks", "mmlu"), "did you mean --model"),
    ],
)
def test_misspelled_commands_and_options_get_the_nearest(typed, words, said) -> None:
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert "lm-eval-leakage: error: " in err


def test_our_commands_are_eight_beside_the_three_of_lm_eval() -> None:
    ours = {"annotate", "check", "clean", "leaderboard", "plugin", "report", "seal", "simulate"}
    assert {*commands().commands} == ours | {"ls", "run", "validate"}


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "mmul", "--orders"),
        ("ls", "mmul"),
        ("validate", "--tasks", "mmul"),
        ("run", "--tasks", "mmul", "--model_args", "pretrained=gpt2"),
        ("--tasks", "mmul", "--model", "dummy"),
        ("simulate", "--tasks", "mmul", "--model_args", "pretrained=gpt2", "--output_path", "x"),
    ],
    ids=" ".join,
)
def test_a_misspelled_task_is_reported_by_every_command(typed, words) -> None:
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert err.startswith("'mmul' is not a task, group, tag or audit; did you mean mmlu")


def test_the_help_of_check_fits_on_one_screen_and_has_all_options_on_demand(typed, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, brief, _ = typed("check", "--help")
    assert code == 0
    assert len(brief.splitlines()) <= 24
    _, whole, _ = typed("check", "--help-all")
    names = {name for action in iter_arguments(commands().commands["check"]) for name in action.option_strings}
    assert {"--model", "--tasks", "--help-all"} <= {name for name in names if name in brief}
    assert all(name in whole for name in names)
    assert "--engine" not in brief


def test_the_page_is_what_the_parser_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `python -m tests.cli.reference`"


# ---------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_is_printed_for_each_shell(typed, shell) -> None:
    code, out, err = typed("--print-completion", shell)
    assert (code, err) == (0, "")
    assert "annotate" in out


COMPLETE = """
source "$1"; shift; COMP_WORDS=(lm-eval-leakage "$@"); COMP_CWORD=$#
$(complete -p lm-eval-leakage | sed 's/.*-F \\([^ ]*\\).*/\\1/'); printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ann", {"annotate"}),
        ("annotate --out", {"--output_path"}),
        ("annotate --format mark", {"markdown"}),
        ("run --mod", {"--model", "--model_args"}),
    ],
)
def test_bash_completes_commands_options_and_choices(typed, tmp_path: Path, words: str, expected: set[str]) -> None:
    script = tmp_path / "script"
    script.write_text(typed("--print-completion", "bash")[1])
    command = ["bash", "-c", COMPLETE, "bash", script, *words.split()]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(process.stdout.split()) == expected, process.stderr


def test_folders_and_files_are_completed_as_such() -> None:
    kinds = {action.dest: getattr(action, "complete", None) for action in iter_arguments(commands().parser)}
    assert kinds["runs"] == kinds["include_path"] == kinds["reference"] != kinds["unseen"] is not None


# ---------------------------------------------------------------------- colours


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def colourful(monkeypatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("colourful")
def test_colours_are_for_terminals_that_have_them_and_users_who_want_them(monkeypatch) -> None:
    assert shows_colours(Terminal())
    assert not shows_colours(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not shows_colours(Terminal())
    monkeypatch.setenv("NO_COLOR", "")
    assert shows_colours(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not shows_colours(Terminal())


@pytest.mark.usefixtures("colourful")
def test_only_verdicts_are_coloured_not_the_same_words_in_sentences() -> None:
    table = "model  verdict          p\nm      strong evidence  1e-9\nm, x: none found: no evidence of leakage\n"
    shown = with_coloured_verdicts(table, Terminal())
    assert shown.count("\x1b[0m") == 2
    assert "no evidence of" in shown
    for word in VerdictWord:
        assert with_coloured_verdicts(f"task  {word}  2", Terminal()).count(f"m{word}\x1b[0m") == 1
        as_in_a_check = f"m on quiz: {word.upper()}\n  Only 3 of 4"
        assert with_coloured_verdicts(as_in_a_check, Terminal()).count(f"m{word.upper()}\x1b[0m") == 1
    assert with_coloured_verdicts(table, io.StringIO()) == table


@pytest.mark.usefixtures("colourful")
def test_an_error_on_a_terminal_is_red_and_still_escaped(monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    output.warn("a\x1b[31mb", "31")
    assert output.sys.stderr.getvalue() == "\x1b[31ma\\x1b[31mb\x1b[0m\n"


# ---------------------------------------------------------------------- quiet


def test_quiet_prints_the_result_only(folder: Path, typed) -> None:
    loud, quiet = (typed("annotate", folder, *more) for more in ((), ("--quiet",)))
    assert loud[:2] == quiet[:2]
    assert "written: " in loud[2]
    assert quiet[2] == ""
    assert "written: " in typed("annotate", folder)[2]  # in the same process


def test_quiet_keeps_errors_met_conditions_and_lost_questions(folder: Path, typed) -> None:
    code, _, err = typed("annotate", folder, "--quiet", "--dry_run", "--fail-on", "accuracy<0.9")
    assert (code, err.count("\n"), err.startswith("fails: ")) == (1, 1, True)
    (log,) = folder.rglob("samples_bench_leakage_perm_*")
    log.write_text(log.read_text().splitlines(keepends=True)[0])
    assert "lacks questions of bench_leakage_perm" in typed("annotate", folder, "--quiet", "--dry_run")[2]
    code, _, err = typed("annotate", folder / "nowhere", "--quiet")
    assert (code, "does not exist" in err) == (2, True)


def refused_early(typed, monkeypatch, *words: object) -> str:
    monkeypatch.setattr("lm_eval.tasks.manager.TaskManager.load", lambda *_: pytest.fail("a task is loaded"))
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    return err


@pytest.mark.parametrize("command", ["ls", "simulate"])
def test_a_file_without_questions_is_refused_early_by_every_command(typed, monkeypatch, tmp_path, command) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "Which?"}\n')
    words = ("ls", file, "--orders")
    if command == "simulate":
        words = ("simulate", "--tasks", file, "--model_args", "pretrained=gpt2", "--output_path", tmp_path / "out")
    assert "no question can be read" in refused_early(typed, monkeypatch, *words)


def test_a_task_without_options_is_not_sealed_and_that_is_said_early(typed, monkeypatch) -> None:
    assert "boolq cannot be audited: the options are words" in refused_early(typed, monkeypatch, "seal", "boolq")


def test_an_output_path_that_cannot_be_written_is_refused_before_any_run(typed, monkeypatch, tmp_path) -> None:
    (file := tmp_path / "file").touch()
    (plan := tmp_path / "plan.yaml").write_text(
        "tasks: [arc_easy]\naudits: [leakage_perm]\nmodels: [{name: one, model: hf, model_args: {pretrained: gpt2}}]\n"
    )
    run = ("run", "--model", "hf", "--model_args", "pretrained=gpt2", "--tasks", "arc_easy", "--output_path", file)
    simulate = ("simulate", "--tasks", "arc_easy", "--model_args", "pretrained=gpt2", "--output_path", file)
    for words in (run, simulate, ("check", plan, "--output_path", file)):
        assert str(file) in refused_early(typed, monkeypatch, *words)
