"""A campaign as a user types it, on this machine: plan, dry run, campaign, status, verification."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lm_eval_leakage import cli
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.plan import Unit
from tests.faults.children import Ended, child, has_traceback

pytestmark = pytest.mark.model


def typed(log: Path, *words: object) -> Ended:
    """Runs a command in a fork."""

    def run() -> None:
        sys.argv = ["lm-eval-leakage", *map(str, words)]
        cli.main()

    ended = child(run, log)
    assert not has_traceback(ended), ended.output
    return ended


def test_what_a_user_types_from_the_plan_to_the_verified_tables(settings: dict[str, Any], tmp_path: Path) -> None:
    """One unit always fails: the run with a question at which the model does. Its audit leaves that question out."""
    model = settings["models"][0]
    model["model_args"] += ",fails_at=Which of 1-3"
    plan, out, log = tmp_path / "plan.yaml", tmp_path / "elsewhere", tmp_path / "log"
    plan.write_text(yaml.safe_dump(settings | {"retries": 0, "shards": 2}))

    foreseen = typed(log, "check", plan, "--dry_run", "--output_path", out)
    assert foreseen.code == 0
    assert "8 units" in foreseen.output
    assert not out.exists()

    ended = typed(log, "check", plan, "--engine", "local", "--output_path", out)
    assert ended.code == 2
    assert "7 of 8 units are done" in ended.output
    place = CampaignFolder(out).log_of(Unit("a", "riddle", "run", 1, 2))
    assert f"failed: a/riddle/run/1of2: RuntimeError: cannot answer Which of 1-3 (log: {place})" in ended.output
    assert "cannot answer Which of 1-3" in place.read_text()
    assert {file.suffix for file in out.glob("leaderboard.*")} == {".html", ".json", ".csv", ".md"}

    status = typed(log, "check", "--status", out)
    assert (status.code, "7 of 8" in status.output) == (0, True)
    assert "nothing differs" in typed(log, "check", "--verify", out).output

    changed = plan.with_name("changed.yaml")
    changed.write_text(yaml.safe_dump(settings | {"retries": 0, "shards": 3}))
    refused = typed(log, "check", changed, "--output_path", out)
    assert refused.code == 2
    assert "shards was 2 and is 3" in refused.output
