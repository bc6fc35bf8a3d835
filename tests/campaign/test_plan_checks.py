"""A plan is checked and its faults are reported before a model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.driver import run_plan
from lm_eval_leakage.jobs.engines import engine_of, usual_engine
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.manifest import differences
from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.jobs.steps import StepStatus
from tests.campaign.campaigns import small_plan as plan

CHAT = {"name": "chat", "model": "openai-chat-completions", "model_args": "model=m,tokenizer=none"}


@pytest.fixture
def packages_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_eval_leakage.harness.model_checks.refuse_without_packages", lambda *_: None)


@pytest.mark.usefixtures("packages_are_there")
def test_units_that_a_backend_cannot_do_are_left_out_with_the_reason(
    settings: dict[str, Any], here: Callable[..., CheckOutcome]
) -> None:
    models = [*settings["models"], CHAT]
    outcome = here(settings, models=models)
    assert outcome.n_done == 8
    steps = {unit: outcome.folder.step_of(unit) for unit in units_of(outcome.folder.plan)}
    impossible = {unit: step.note for unit, step in steps.items() if step.status is StepStatus.NOT_POSSIBLE}
    assert {unit.id for unit in impossible} == {
        f"chat/{task}/{kind}" for task in settings["tasks"] for kind in ("run", "leakage_perm")
    }
    assert all("openai-chat-completions" in reason for reason in impossible.values())
    assert [verdict.verdict for verdict in outcome.verdicts if verdict.model == "chat"] == ["no verdict"] * 2


@pytest.mark.usefixtures("here", "packages_are_there")
def test_a_plan_of_which_nothing_can_be_done_is_refused(settings: dict[str, Any]) -> None:
    said = "leakage_perm cannot run: openai-chat-completions gives no .*; choose another model"
    with pytest.raises(ValueError, match=said):
        run_plan(check_plan(settings | {"models": [CHAT], "dry_run": True}))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tasks": ["quizz"]}, "'quizz' is not a task, group, tag or audit; did you mean quiz"),
        ({"imports": ["no.such.module"]}, "imports has 'no.such.module', which cannot be imported"),
        ({"models": [{"name": "a", "model": "hff"}]}, "'hff' is not a model of lm_eval; did you mean hf"),
        ({"metadata": {"max_order": 3}}, "the key 'max_order', which no audit knows; did you mean 'max_orders'"),
        ({"metadata": {"shard": "0/2"}}, "the key 'shard', which no audit knows; did you mean 'shards'"),
    ],
)
def test_a_mistake_is_reported_in_a_sentence(settings: dict[str, Any], given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run_plan(check_plan(settings | given | {"dry_run": True}))


def test_more_tokens_than_may_be_asked_of_all_models_together_are_refused(
    settings: dict[str, Any], here: Callable[..., CheckOutcome]
) -> None:
    planned = here(settings, engine="inline", dry_run=True).plan
    n_tokens = sum(step.n_tokens for step in planned.steps)
    twice = settings | {"models": [*settings["models"], {**settings["models"][0], "name": "b"}]}
    with pytest.raises(ValueError, match="max_tokens_asked is .*, but the requests that are left have about"):
        here(twice, max_tokens_asked=n_tokens)
    assert here(settings, max_tokens_asked=n_tokens).n_done == 4
    assert here(twice, max_tokens_asked=n_tokens).n_done == 8  # half of them are done


# ---------------------------------------------------------------------- plans that are another campaign


@pytest.mark.parametrize(
    "change",
    [
        {"retries": 3, "minutes": 5, "workers": 2, "output_path": "elsewhere"},
        {"tasks": ["arc_easy", "mmlu"], "audits": ["leakage_perm", "leakage_tokens"]},
        {"models": [{"name": "a", "model_args": "pretrained=m", "gpus": 2, "device": "cpu"}, {"name": "b"}]},
    ],
)
def test_how_units_are_run_may_change_and_plans_may_grow(change: dict[str, Any]) -> None:
    assert differences(plan(), plan(**change)) == []


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"questions": 5}, "questions was 'all' and is 5"),
        ({"tasks": ["arc_easy"]}, "tasks was ['mmlu'] and is ['arc_easy']"),
        ({"models": [{"name": "b"}]}, "the model 'a' is missing"),
        ({"models": [{"name": "a", "model_args": "pretrained=n"}]}, "the model 'a' was {"),
    ],
)
def test_any_other_change_is_named(change: dict[str, Any], part: str) -> None:
    (difference,) = differences(plan(), plan(**change))
    assert difference.startswith(part)


# ---------------------------------------------------------------------- engines


@pytest.mark.parametrize(("n", "installed", "used"), [(1, True, "local"), (8, True, "ray"), (8, False, "local")])
def test_several_accelerators_are_used_by_ray_if_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, n: int, installed: bool, used: str
) -> None:
    assert usual_engine("auto") == "ray"
    monkeypatch.setattr("lm_eval_leakage.jobs.engines.n_accelerators", lambda: n)
    monkeypatch.setattr("lm_eval_leakage.jobs.engines.find_spec", lambda name: "there" if installed else None)
    assert usual_engine(None) == used


def test_an_engine_of_another_package_is_found_by_its_entry_point(tmp_path: Any, monkeypatch) -> None:
    class Point:
        name, load = "mine", staticmethod(lambda: lambda *given: given)

    monkeypatch.setattr("lm_eval_leakage.jobs.engines.entry_points", lambda group: [Point])
    assert engine_of("mine", "there", settings := plan(), folder := CampaignFolder(tmp_path)) == (
        settings,
        folder,
        "there",
    )


@pytest.mark.parametrize(
    ("name", "given", "error", "remedy"),
    [
        ("dask", {}, ValueError, "engine is 'dask'; choose one of: inline, local, ray, slurm"),
        ("inline", {"workers": 2}, ValueError, "workers is 2, but --engine inline is this one process"),
        ("inline", {"minutes": 0.5}, ValueError, "minutes is 0.5, but --engine inline is this one process"),
        (
            "slurm",
            {},
            ImportError,
            r"needs submitit, which is not installed; run `pip install 'lm-eval-leakage\[slurm\]'",
        ),
        (
            "local",
            {"models": [{"name": "a", "gpus": 2}]},
            ValueError,
            "models has 'a' with gpus: 2, but this machine has 1",
        ),
    ],
    ids=["unknown", "workers", "minutes", "package", "gpus"],
)
def test_an_engine_that_cannot_be_used_is_refused(name, given, error, remedy, tmp_path: Any, monkeypatch) -> None:
    monkeypatch.setattr("lm_eval_leakage.jobs.engines.find_spec", lambda name: None)
    monkeypatch.setattr("lm_eval_leakage.jobs.local_engine.n_accelerators", lambda: 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(error, match=remedy):
        engine_of(name, None, plan(**given), CampaignFolder(tmp_path))
