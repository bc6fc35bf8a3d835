"""Every plan has given runs, a reference, unseen questions and verdicts, and that of one model in this process also a
status."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.jobs.steps import StepStatus
from lm_eval_leakage.jobs.units import Unit
from tests.campaign.campaigns import benchmark, model
from tests.campaign.scripted_model import ASKED, lines
from tests.checking.conftest import checked, fakes, only_given_tasks, questions, written  # noqa: F401 (fixtures)

pytestmark = pytest.mark.model
Run = Callable[..., CheckOutcome]
PERM = "leakage_perm"


@pytest.fixture
def several(settings: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Two models on 30 questions."""
    benchmark(tmp_path / "own", "trivia", n=30)
    models = [model(name, pretrained="m", seed=name, counts=tmp_path / "counts") for name in ("a", "b")]
    return settings | {"models": models, "tasks": ["trivia"], "include_path": str(tmp_path / "own")}


def n_requests(tmp_path: Path) -> int:
    return len(lines(tmp_path / "counts", ASKED))


def test_a_reference_is_audited_once_for_all_models_and_unseen_questions_by_each(
    here: Run, several: dict[str, Any], tmp_path: Path
) -> None:
    unseen = written(tmp_path, questions(60, seed=5), "private.jsonl")
    options = {"reference": f"pretrained=r,counts={tmp_path / 'counts'}", "unseen": str(unseen)}
    outcome = here(several, audits=[PERM, "leakage_tokens"], **options)
    assert (outcome.lost, outcome.n_done) == ((), outcome.n_units)
    assert [verdict.basis for verdict in outcome.verdicts] == ["reference", "reference"]
    folders = [file.parent.parent for file in (tmp_path / "out").rglob("results_*.json")]
    ids = sorted(file.relative_to(tmp_path / "out").as_posix() for file in folders)
    assert ids == [
        f"reference/r/trivia/reference-{PERM}",
        *(f"runs/{name}/trivia/{kind}" for name in ("a", "b") for kind in (PERM, "run")),
        *(f"unseen/{name}/trivia/unseen-{PERM}" for name in ("a", "b")),
    ]
    tokens = outcome.folder.step_of(Unit.of("a", "trivia", "unseen-leakage_tokens"))
    assert (tokens.status, "next-token distribution" in tokens.note) == (StepStatus.NOT_POSSIBLE, True)


def test_given_runs_are_used_by_each_model_and_nothing_is_asked(
    here: Run, several: dict[str, Any], tmp_path: Path
) -> None:
    first = here(several)
    n_asked = n_requests(tmp_path)
    again = here(several, runs=[str(tmp_path / "out" / "runs")], output_path=str(tmp_path / "again"))
    assert n_requests(tmp_path) == n_asked
    assert again.verdicts == first.verdicts
    assert {again.folder.step_of(Unit.of(name, "trivia", PERM)).status for name in ("a", "b")} == {StepStatus.THERE}
    once_more = here(several, runs=[str(tmp_path / "out" / "runs")], output_path=str(tmp_path / "again"))
    assert once_more.n_done == 4


def test_an_audit_whose_log_lost_lines_is_asked_again_from_its_kept_answers(
    here: Run, several: dict[str, Any], tmp_path: Path
) -> None:
    first = here(several)
    assert [(verdict.verdict, verdict.look) for verdict in first.verdicts] == [("inconclusive", 1)] * 2
    n_asked = n_requests(tmp_path)
    (log,) = first.folder.run_of(Unit.of("a", "trivia", PERM)).rglob("samples_*.jsonl")
    lines_kept = log.read_text().splitlines(keepends=True)[:25]  # of 60; 25 questions would be enough for a verdict
    log.write_text("".join(lines_kept))
    again = here(several, fail_on="evidence")
    assert again.verdicts == first.verdicts
    assert n_requests(tmp_path) == n_asked
    (note,) = again.problems
    assert note.startswith(
        "1 unit of a will be run again (other questions, rows or settings of the audit, or lines that"
    )


def test_a_check_of_one_model_does_not_replace_the_plan_of_several(here: Run, several: dict[str, Any]) -> None:
    here(several)
    single = {"model": "scripted", "model_args": several["models"][0]["model_args"], "models": None}
    with pytest.raises(
        ValueError, match="out has another campaign: .*the model 'a' is missing.*; give another output"
    ):
        here(several | single)
    assert here(several).n_done == 4


def test_a_file_whose_rows_were_changed_is_asked_again(here: Run, several: dict[str, Any], tmp_path: Path) -> None:
    tasks = {"tasks": [str(written(tmp_path, questions(30, seed=3)))]}
    here(several, **tasks)
    n_asked = n_requests(tmp_path)
    here(several, **tasks)
    assert n_requests(tmp_path) == n_asked
    written(tmp_path, questions(32, seed=4))
    assert [verdict.n for verdict in here(several, **tasks).verdicts] == [32, 32]
