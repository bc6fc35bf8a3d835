"""The small core of the campaign."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.audits import AIMS


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
    assert done.stdout.count("| 0 | 0 | 0 |") == 45


def test_each_call_at_which_an_audit_is_killed_is_in_the_package() -> None:
    assert not [(owner, method) for _, owner, method, _ in AIMS if not hasattr(owner, method)]
