"""The small core of the campaign."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.model  # dozens of processes
def test_nothing_is_lost_doubled_or_silently_wrong() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--small"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout
    assert done.stdout.count("| 0 | 0 | 0 |") == 23
