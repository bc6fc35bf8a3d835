"""Plans over small benchmarks of their own, and campaigns that run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.registry import model_registry

from lm_eval_leakage.harness.seams.registries import add_models
from lm_eval_leakage.jobs import driver
from lm_eval_leakage.jobs.inline_engine import InlineEngine
from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.jobs.plan_reading import check_plan
from tests.campaign.campaigns import model, settings_in
from tests.checking.conftest import GivenTasksOnly, without_environment

N = 12


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Return the settings of a campaign of one stand-in model on two benchmarks of twelve questions."""
    (tmp_path / "counts").mkdir()
    return settings_in(tmp_path, model("a", pretrained="m", counts=tmp_path / "counts"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CheckOutcome]:
    """Runs a campaign in this process; returns its outcome."""
    monkeypatch.setattr("lm_eval_leakage.harness.task_shelf.TaskManager", GivenTasksOnly)
    from tests.campaign.scripted_model import NAME, ScriptedModel

    add_models()
    without_environment(monkeypatch)
    monkeypatch.setitem(model_registry._objs, NAME, ScriptedModel)
    monkeypatch.setattr(driver, "engine_of", lambda name, address, plan, folder: InlineEngine(plan, folder))

    def run(settings: dict[str, Any], **given: Any) -> CheckOutcome:
        return driver.run_plan(check_plan(settings | given))

    return run
