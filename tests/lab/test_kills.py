"""A few real kills of a simulation; `python -m tests.lab.kills 20` makes many."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.model


def test_a_killed_simulation_resumes_to_the_result_of_an_uninterrupted_one() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab.kills", "2"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(trials) == 4
    for trial in trials:
        assert (trial["resumed"], trial["same"], trial["left"]) == (True, True, []), trial
    assert any(trial["killed"] for trial in trials)
