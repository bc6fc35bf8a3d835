"""Real kills of a simulation, few of them: `python -m tests.lab.kills 20` makes many."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.model


def test_a_simulation_that_was_killed_goes_on_to_the_result_of_one_in_one_piece() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab.kills", "2"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(trials) == 6
    for trial in trials:
        assert (trial["resumed"], trial["same"], trial["left"]) == (True, True, []), trial
    assert any(trial["killed"] for trial in trials)
