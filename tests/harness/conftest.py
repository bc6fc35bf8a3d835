from __future__ import annotations

import pytest
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness import extend_harness

extend_harness(TaskManager)


@pytest.fixture(autouse=True)
def _no_description_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness asks a dozen programs about the machine at the end of each run, which takes longer than most runs
    of a test."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda storage: None)
