from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from lm_eval_leakage import cli


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
