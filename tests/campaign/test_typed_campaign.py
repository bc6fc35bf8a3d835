"""A campaign of which a unit fails, as a user types it on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lm_eval_leakage import cli
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.units import Unit
from tests.faults.children import child, has_traceback


@pytest.mark.model
def test_a_unit_that_fails_is_reported_with_its_log_and_the_rest_is_done(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """The run with a question at which the model fails. Its audit leaves that question out."""
    settings["models"][0]["model_args"] += ",fails_at=Which of 1-3"
    plan, out = tmp_path / "plan.yaml", tmp_path / "elsewhere"
    plan.write_text(yaml.safe_dump(settings | {"retries": 0}))

    def typed() -> None:
        sys.argv = ["lm-eval-leakage", "check", str(plan), "--engine", "local", "--output_path", str(out)]
        cli.main()

    ended = child(typed, tmp_path / "log")
    assert not has_traceback(ended), ended.output
    assert ended.code == 2
    assert "3 of 4 units are done" in ended.output
    place = CampaignFolder(out).log_of(Unit.of("a", "riddle", "run"))
    assert f"failed: a/riddle/run: RuntimeError: cannot answer Which of 1-3 (log: {place})" in ended.output
    assert "cannot answer Which of 1-3" in place.read_text()
    assert {file.suffix for file in out.glob("leaderboard.*")} == {".html", ".json", ".csv", ".md"}
