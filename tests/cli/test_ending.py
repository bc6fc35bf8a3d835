"""How commands end: exit codes, closed pipes, narrow encodings, hostile names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import requests
from tqdm import tqdm

from lm_eval_leakage import cli
from lm_eval_leakage.cli.ending import os_error_in_words, run_or_exit
from lm_eval_leakage.cli.output import note, say, warn
from lm_eval_leakage.harness.seams.refusals import Refusal
from tests.checking.conftest import GivenTasksOnly
from tests.results.harness_files import audited, row, write_run

EVIL = "m\x1b[31m\x9b1m\x7f\r\n|x\u202e\u2028\ud800"


@dataclass(frozen=True)
class Process:
    code: int
    out: str
    err: str


def child(
    run: Callable[[], object], reader: str = "cat", *, encoding: str = "utf-8", together: bool = False
) -> Process:
    """Runs `run` as a command in a fork whose stdout is piped to `reader` in a shell; together: with stderr, by line,
    as on a terminal."""
    with TemporaryFile("w+") as errors:
        shell = subprocess.Popen(["bash", "-c", reader], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def work() -> None:
            os.dup2(shell.stdin.fileno(), 1)
            os.dup2(1 if together else errors.fileno(), 2)
            shell.stdin.close()
            sys.stdout = open(1, "w", 1 if together else -1, encoding=encoding, closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
            run_or_exit(run)

        process = get_context("fork").Process(target=work)
        process.start()
        out, _ = shell.communicate()
        process.join()
        errors.seek(0)
        return Process(process.exitcode, out.decode(encoding), errors.read())


@pytest.mark.parametrize(
    "words",
    [
        ("annotate", "{}/empty"),
        *((command, "{}/nowhere") for command in ("annotate", "report", "leaderboard")),
        ("simulate", "--model_args", "dtype=float32", "--tasks", "mmlu", "--output_path", "{}/new"),
    ],
    ids=lambda words: " ".join(words),
)
def test_an_error_that_the_user_can_fix_is_one_sentence_and_exit_2(folder, typed, words) -> None:
    (folder / "file").write_text("")
    (folder / "empty").mkdir()
    code, _, err = typed(*(word.format(folder) for word in words))
    assert (code, "Traceback" in err) == (2, False)
    assert err.strip()


def test_an_incomplete_audit_is_reported_by_every_command_and_judged_by_none(folder, typed) -> None:
    (log,) = folder.rglob("samples_bench_leakage_perm_*")
    log.write_text(log.read_text().splitlines(keepends=True)[0])
    said = "lacks questions of bench_leakage_perm: it holds 1 of 6 by max_order"
    page, board = folder / "page.html", folder / "board.html"
    for words in (
        ("annotate", folder, "--dry_run"),
        ("report", folder, "--output_path", page),
        ("leaderboard", folder, "--output_path", board),
    ):
        code, _, err = typed(*words)
        assert (code, said in err) == (0, True), words
    assert said in page.read_text().partition('<section id="by-task">')[0]
    assert said in board.read_text().partition('<section id="standings">')[0]
    code, _, err = typed("annotate", folder, "--dry_run", "--fail-on", "pvalue<0.9")
    assert code == 2
    assert "--fail-on does not judge incomplete logs" in err


def many_lines(print_one: Callable[[str], object]) -> None:
    for _ in range(5000):
        print_one("x" * 100)


@pytest.mark.parametrize(
    ("run", "reader", "code"),
    [
        (lambda: (many_lines(say), sys.exit(1)), "true", 1),
        (lambda: many_lines(print), "true", 141),
        (lambda: many_lines(print), "head -1", 141),
    ],
    ids=["say", "print", "print to head"],
)
def test_a_closed_pipe_ends_quietly_and_does_not_change_the_exit_code_of_what_is_said(run, reader, code) -> None:
    ending = child(run, reader)
    assert (ending.code, ending.err) == (code, "")


def test_notes_to_a_closed_pipe_are_no_error() -> None:
    assert child(lambda: many_lines(note), "true", together=True).code == 0


def test_a_full_disk_is_a_sentence() -> None:
    def fill() -> None:
        sys.stdout = Path("/dev/full").open("w")  # noqa: SIM115
        print("x" * 100_000)

    ending = child(fill)
    assert ending.code == 2
    assert "No space left" in ending.err
    assert "Traceback" not in ending.err


def test_characters_that_the_encoding_lacks_are_replaced() -> None:
    ending = child(lambda: (say("a – ± \ud800"), note("b – \udc80")), encoding="ascii")
    assert (ending.code, ending.out, ending.err) == (0, "a ? ? ?\n", "b ? \\udc80\n")
    assert child(lambda: say("\ud800")).out == "?\n"


def test_ctrl_c_while_the_harness_is_imported_is_no_traceback_either(monkeypatch, typed) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_main", stop)
    assert typed("annotate") == (130, "", "interrupted\n")


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


class RetryError(Exception):
    """An error as tenacity has it: what the last attempt raised is in a future."""

    def __init__(self, last: Exception) -> None:
        super().__init__("<Future at 0x7f>")
        self.last_attempt: Future[None] = Future()
        self.last_attempt.set_exception(last)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (AttributeError("module 'torch' has no attribute 'bfloat'"), "AttributeError: module 'torch' has no attrib"),
        (ValueError("of the harness"), "ValueError: of the harness"),
        (RetryError(RuntimeError("500, server error")), "RuntimeError: 500, server error"),
        (RuntimeError("two\nlines\x1b"), "RuntimeError: two lines\\x1b"),
        (MemoryError(), "MemoryError"),
    ],
    ids=repr,
)
def test_an_error_that_nobody_foresaw_is_exit_2_and_a_sentence_with_the_file_of_its_traceback(
    error: Exception, sentence: str, capsys, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        run_or_exit(raising(error))
    (file,) = tmp_path.iterdir()
    said = capsys.readouterr().err
    assert (end.value.code, said.count("\n")) == (2, 1)
    assert said.startswith(sentence)
    assert said.endswith(f" (traceback: {file})\n")
    assert "in fail\n" in file.read_text()


def test_a_traceback_that_cannot_be_written_is_printed(monkeypatch, capsys) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/null/none")
    with pytest.raises(SystemExit) as end:
        run_or_exit(raising(KeyError("x")))
    assert end.value.code == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [Refusal("a sentence"), SystemExit("a sentence")], ids=repr)
def test_what_is_meant_for_users_is_exit_2_and_nothing_else(error, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        run_or_exit(raising(error))
    assert (end.value.code, capsys.readouterr().err) == (2, "a sentence\n")


def test_a_file_error_names_the_file_and_the_reason(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        run_or_exit(lambda: (tmp_path / "gone").read_text())
    assert capsys.readouterr().err.startswith(f"cannot use {tmp_path / 'gone'} (No such file or directory)")


def test_no_name_reaches_the_terminal_unescaped(tmp_path, monkeypatch, capfd) -> None:
    lines = [audited(row(i, subject=(EVIL, "s")[i % 2]), i < 3) for i in range(6)]
    places = [write_run(tmp_path, model, {"bench_leakage_perm": lines}) for model in ("m", "n")]
    (file,) = places[0].glob("results_*")
    file.write_text(file.read_text().replace('"model_name": "m"', f'"model_name": {json.dumps(EVIL)}'))
    (places[1] / "samples_bench_leakage_perm_2027-01-01T00-00-00.jsonl").write_text('{"a": "\x1b"}\n')
    for style in ("table", "markdown", "csv", "latex", "json"):
        words = ["annotate", str(tmp_path), "--dry_run", "--subjects", "--format", style]
        _assert_harmless(monkeypatch, capfd, words)
    for style in ("markdown", "csv"):
        _assert_harmless(monkeypatch, capfd, ["leaderboard", str(tmp_path), "--format", style])


def _assert_harmless(monkeypatch, capfd, words) -> None:
    monkeypatch.setattr(sys, "argv", ["lm-eval-leakage", *words])
    cli.main()
    out, err = capfd.readouterr()
    assert "31m" in out, words
    assert not set(out + err) & set("\x1b\x9b\x7f\r\u202e\u2028\ud800"), words
    assert not [line for line in (out + err).splitlines() if line.startswith(("|x", "\\|x"))], words


def test_what_is_printed_beside_a_progress_bar_has_a_line_of_its_own() -> None:
    def work() -> None:
        bar = tqdm(total=3, mininterval=0, position=0)  # whatever bar another test has left
        bar.update(1)
        say("8 of 300 requests")
        warn("refused")
        bar.update(1)

    lines = child(work, together=True).out.replace("\r", "\n").split("\n")
    assert {"8 of 300 requests", "refused"} <= set(lines), lines


def test_a_server_that_cannot_be_reached_is_named_with_the_reason_and_the_remedy() -> None:
    address = "http://127.0.0.1:1/v1/completions"
    with pytest.raises(requests.ConnectionError) as raised:
        requests.post(address, json={}, timeout=9)
    said = os_error_in_words(raised.value)
    assert said.startswith(f"{address} cannot be reached (")
    assert said.endswith("Connection refused); start the server, or correct base_url")
    assert "HTTPConnection" not in said


def test_lm_evals_exit_code_1_is_none_of_a_condition_that_was_met(typed, monkeypatch) -> None:
    monkeypatch.setattr("lm_eval.tasks.TaskManager", GivenTasksOnly)
    assert typed("validate", "--tasks", "nosuch_*")[0] == 2


@pytest.mark.model  # processes
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_output_is_closed_ends_as_with_an_open_one(folder: Path, closed: str) -> None:
    program = f"{sys.executable} -c 'from lm_eval_leakage.cli import main; main()'"
    command = f"{program} annotate {folder} --output_path {{}} --fail-on {{}} {closed}"

    def ended(to: str, condition: str) -> int:
        words = command.format(folder / to, condition)
        return subprocess.run(["bash", "-c", words], capture_output=True, check=False).returncode

    assert ended("kept", "'flagged_rate>=0'") == 1
    assert list((folder / "kept").rglob("*_leakage.json"))
    assert ended("also", "nonsense") == 2
