from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_eval_leakage import cli
from tests.results.harness_files import answered, audited, row, write_run


@pytest.fixture
def typed(monkeypatch, capsys):
    """Runs a command as typed; returns its exit code, stdout and stderr."""

    def run(*words: object, main: Callable[[], None] = cli.main) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lm-eval-leakage", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run, in `runs`, and an audit, in `audits`, of six questions, of which three are flagged and answered
    correctly."""
    docs = [row(i) for i in range(6)]
    write_run(tmp_path / "runs", "m", {"bench": [answered(i, doc, i < 3) for i, doc in enumerate(docs)]})
    write_run(tmp_path / "audits", "m", {"bench_leakage_perm": [audited(doc, i < 3) for i, doc in enumerate(docs)]})
    return tmp_path
