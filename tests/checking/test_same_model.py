"""A check uses what is there only if the model that its name stands for now gave it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.planning import THERE, TO_RUN
from tests.checking.conftest import NamedFake, OptionOrders, questions, statuses, written
from tests.checking.conftest import checked as checked_with
from tests.fakes import by_hash

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks", "fakes")]

DOCS = questions(60)
RUN_STEPS = ("accuracy", "option orders", "choice confusion")
REFERENCE, UNSEEN = "reference: option orders", "unseen questions: option orders"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder, whose weights are retrained by writing others, and a benchmark beside it."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"1" * 100)
    written(tmp_path, DOCS)
    return tmp_path


def retrained(folder: Path, fakes: type[NamedFake]) -> None:
    """On the benchmark, under the same path."""
    (folder / "model" / "model.safetensors").write_bytes(b"2" * 100)
    fakes.score = OptionOrders(DOCS, memory=(4.0, 0.0))


def checked(folder: Path, **given: Any) -> Any:
    return checked_with(folder, **{"model_args": f"pretrained={folder / 'model'}", "fail_on": "evidence"} | given)


def test_weights_retrained_under_the_same_path_get_the_verdict_of_a_fresh_folder_and_restored_ones_their_own(
    fakes: type[NamedFake], folder: Path
) -> None:
    before = checked(folder)
    assert (before.verdicts[0].verdict, before.failed) == ("none found", ())
    retrained(folder, fakes)
    again, fresh = checked(folder), checked(folder, output_path=folder / "fresh")
    assert fresh.failed
    assert (again.verdicts, again.failed) == (fresh.verdicts, fresh.failed)
    assert [statuses(again)[step] for step in RUN_STEPS] == [TO_RUN] * 3
    assert any("another model answered: pretrained" in problem for problem in again.problems)
    (folder / "model" / "model.safetensors").write_bytes(b"1" * 100)
    fakes.score = by_hash
    fakes.asked.clear()
    restored = checked(folder)
    assert fakes.asked == []
    assert (restored.verdicts, restored.failed) == (before.verdicts, before.failed)


@pytest.mark.parametrize("argument", ["dtype=float16", "add_bos_token=True", "revision=step-1000"])
def test_what_changes_answers_makes_it_another_model_and_how_it_runs_does_not(folder: Path, argument: str) -> None:
    checked(folder)
    plain = f"pretrained={folder / 'model'}"
    for given, status in (
        ({"model_args": f"{plain},{argument}"}, TO_RUN),
        ({"apply_chat_template": True}, TO_RUN),
        ({"model_args": plain, "batch_size": 8, "device": "cpu"}, THERE),
    ):
        assert [statuses(checked(folder, dry_run=True, **given))[step] for step in RUN_STEPS] == [status] * 3
    (folder / "model" / "chat_template.jinja").write_text("{{ messages }}")
    assert statuses(checked(folder, dry_run=True))["accuracy"] == TO_RUN


def test_unseen_questions_are_asked_again_of_a_model_that_was_retrained(fakes: type[NamedFake], folder: Path) -> None:
    file = written(folder, questions(60, seed=7), "unseen.jsonl")
    checked(folder, unseen=file)
    assert statuses(checked(folder, unseen=file, dry_run=True))[UNSEEN] == THERE
    retrained(folder, fakes)
    assert statuses(checked(folder, unseen=file, dry_run=True))[UNSEEN] == TO_RUN


def test_a_reference_that_was_retrained_is_audited_again(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "pytorch_model.bin").write_bytes(b"1")
    checked(folder, reference=f"pretrained={other}")
    assert statuses(checked(folder, reference=f"pretrained={other}", dry_run=True))[REFERENCE] == THERE
    (other / "pytorch_model.bin").write_bytes(b"2")
    assert statuses(checked(folder, reference=f"pretrained={other}", dry_run=True))[REFERENCE] == TO_RUN


# ---------------------------------------------------------------------- runs that do not say


def without_identity(folder: Path) -> None:
    for name, key in (("results_*.json", "leakage_identity"), ("unit.json", "identity")):
        for file in folder.rglob(name):
            told = json.loads(file.read_text())
            told.pop(key, None)
            file.write_text(json.dumps(told))


def test_runs_of_a_check_that_do_not_say_their_model_are_not_taken_for_it(folder: Path) -> None:
    checked(folder)
    without_identity(folder / "out")
    again = checked(folder)
    assert [statuses(again)[step] for step in RUN_STEPS] == [TO_RUN] * 3
    assert any("no file says which model answered" in problem for problem in again.problems)


def test_runs_that_the_user_names_are_used_and_said_to_be_unknown(folder: Path) -> None:
    checked(folder, output_path=folder / "earlier")
    without_identity(folder / "earlier")
    outcome = checked(folder, runs=folder / "earlier" / "runs")
    assert [statuses(outcome)[step] for step in RUN_STEPS] == [THERE] * 3
    assert any("do not say" in problem for problem in outcome.problems)


def test_a_verdict_is_adjusted_for_the_other_benchmarks_in_runs_that_the_user_names(folder: Path) -> None:
    both = [str(folder / "quiz.jsonl"), str(written(folder, questions(60, seed=7), "riddle.jsonl"))]
    checked(folder, tasks=both, output_path=folder / "earlier")
    outcome = checked(folder, runs=folder / "earlier" / "runs")
    assert [verdict.task for verdict in outcome.verdicts] == ["quiz"]
    assert {row.task for one in outcome.annotations for row in one.rows} == {"quiz", "riddle"}


def test_runs_that_the_user_names_and_that_say_another_model_are_refused(fakes: type[NamedFake], folder: Path) -> None:
    checked(folder, output_path=folder / "earlier")
    retrained(folder, fakes)
    with pytest.raises(ValueError, match="only runs of another model that is called .* leave it out"):
        checked(folder, runs=folder / "earlier" / "runs")


def test_plain_runs_that_the_user_names_and_that_contradict_the_command_are_refused_with_the_difference(
    folder: Path,
) -> None:
    checked(folder, output_path=folder / "earlier")
    without_identity(folder / "earlier")
    for file in (folder / "earlier").rglob("results_*.json"):
        content = json.loads(file.read_text())
        content["config"]["model_args"] = {**content["config"]["model_args"], "load_in_8bit": True}
        file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"only runs of another model .*: load_in_8bit \(True, not given\)"):
        checked(folder, runs=folder / "earlier" / "runs")
