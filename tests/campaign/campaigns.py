"""Small campaigns with a stand-in for models, as tests carry them out."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.jobs.checked_plan import CheckedPlan, units_of
from lm_eval_leakage.jobs.conclusion import conclude
from lm_eval_leakage.jobs.folder import PLAN, CampaignFolder
from lm_eval_leakage.jobs.inline_engine import InlineEngine
from lm_eval_leakage.jobs.loaded_tasks import LoadedTasks
from lm_eval_leakage.jobs.outcome import CheckOutcome, texts_of
from lm_eval_leakage.jobs.plan import Plan, plan_as_yaml
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.jobs.planner import Planner
from lm_eval_leakage.jobs.supervision import carry_out
from tests.checking.conftest import questions, written

QUIZZES = ("quiz", "riddle")
SHAPE = {
    "output_type": "multiple_choice",
    "dataset_path": "json",
    "test_split": "test",
    "doc_to_text": "{{question}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:",
    "doc_to_choice": ["A", "B", "C", "D"],
    "doc_to_target": "answer",
    "metric_list": [{"metric": "acc"}],
}


def benchmark(folder: Path, name: str, *, n: int = 12, seed: int = 1) -> None:
    """Write a task of questions `Which of SEED-0?` and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    file = written(folder, questions(n, seed=seed), f"{name}.jsonl")
    settings = {"task": name, **SHAPE, "dataset_kwargs": {"data_files": {"test": str(file)}}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))


def model(name: str, **arguments: object) -> dict[str, Any]:
    return {
        "name": name,
        "model": "scripted",
        "model_args": ",".join(f"{key}={argument}" for key, argument in arguments.items()),
    }


def settings_in(place: Path, *models: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A plan of two benchmarks of twelve questions in `place`/tasks, `quiz` and `riddle`, for these models."""
    for seed, name in enumerate(QUIZZES):
        benchmark(place / "tasks", name, seed=seed)
    return {
        "models": list(models),
        "tasks": list(QUIZZES),
        "audits": ["leakage_perm"],
        "questions": "all",
        "include_path": str(place / "tasks"),
        "imports": ["tests.campaign.scripted_model"],
        "output_path": str(place / "out"),
    } | more


def plan_for(place: Path, output: Path, *names: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Plan:
    """Return the plan for models of these names, each with one worker."""
    models = [model(name, seed=name, **(arguments or {})) | {"workers": 1} for name in names]
    return check_plan(settings_in(place, *models, **({"output_path": output, "metadata": {"orders": 4}} | more)))


def small_plan(**given: Any) -> Plan:
    """Return a plan of one model that is never loaded."""
    model = {"name": "a", "model_args": "pretrained=m"}
    settings = {"models": [model], "tasks": ["mmlu"], "audits": ["leakage_perm"], "questions": "all"}
    return check_plan(settings | given)


def prepared_folder(plan: Plan, lost: Path | None = None) -> CampaignFolder:
    """Return the folder of a campaign, with its plan and the files of its units, as a driver leaves it for workers.

    lost: a file that is removed once the units are planned
    """
    for module in plan.imports:
        import_module(module)
    folder, units = CampaignFolder(plan.output_path), units_of(plan)
    atomic_write(folder.path / PLAN, plan_as_yaml(plan))
    prepared = CheckedPlan(plan, TaskShelf(plan.include_paths))
    planner = Planner(prepared, LoadedTasks(prepared.shelf))
    folder.make_ready(planner.ready(unit, planner.step(unit), place) for place, unit in enumerate(units))
    if lost is not None:
        lost.unlink()
    return folder


def in_one_process(plan: Plan, lost: Path | None = None) -> CampaignFolder:
    """Carry out a plan here, by one worker."""
    folder = prepared_folder(plan, lost)
    carry_out(InlineEngine(plan.changed(workers=None, minutes=None), folder))
    return folder


def written_again(folder: CampaignFolder) -> CheckOutcome:
    """Return what the units that are done give now, written as at the end of a plan."""
    plan = folder.plan
    return conclude(plan, CheckedPlan(plan, TaskShelf()), folder, {})


def numbers(folder: CampaignFolder) -> dict[str, str]:
    """The tables that have nothing but numbers and names."""
    outcome = written_again(folder)
    assert not outcome.problems
    texts = texts_of(outcome)
    return {name: texts[name] for name in ("leaderboard.csv", "leaderboard.json", "leaderboard.md")}
