"""A check uses what is there only if the model that its name stands for now gave it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.driver import run_plan
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.jobs.steps import StepStatus
from lm_eval_leakage.results.annotate import annotate
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
    """Train the model on the benchmark, under the same path."""
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
    assert [statuses(again)[step] for step in RUN_STEPS] == [StepStatus.TO_RUN] * 3
    assert any("another model answered: pretrained" in problem for problem in again.problems)
    (folder / "model" / "model.safetensors").write_bytes(b"1" * 100)
    fakes.score = by_hash
    fakes.requests.clear()
    restored = checked(folder)
    assert fakes.requests == []
    assert (restored.verdicts, restored.failed) == (before.verdicts, before.failed)


@pytest.mark.parametrize("argument", ["dtype=float16", "add_bos_token=True", "revision=step-1000"])
def test_what_changes_answers_makes_it_another_model_and_how_it_runs_does_not(folder: Path, argument: str) -> None:
    checked(folder)
    plain = f"pretrained={folder / 'model'}"
    for given, status in (
        ({"model_args": f"{plain},{argument}"}, StepStatus.TO_RUN),
        ({"apply_chat_template": True}, StepStatus.TO_RUN),
        ({"model_args": plain, "batch_size": 8, "device": "cpu"}, StepStatus.THERE),
    ):
        assert [statuses(checked(folder, dry_run=True, **given))[step] for step in RUN_STEPS] == [status] * 3
    (folder / "model" / "chat_template.jinja").write_text("{{ messages }}")
    assert statuses(checked(folder, dry_run=True))["accuracy"] == StepStatus.TO_RUN


def test_unseen_questions_are_asked_again_of_a_model_that_was_retrained(fakes: type[NamedFake], folder: Path) -> None:
    file = written(folder, questions(60, seed=7), "unseen.jsonl")
    checked(folder, unseen=file)
    assert statuses(checked(folder, unseen=file, dry_run=True))[UNSEEN] == StepStatus.THERE
    retrained(folder, fakes)
    assert statuses(checked(folder, unseen=file, dry_run=True))[UNSEEN] == StepStatus.TO_RUN


def test_a_reference_that_was_retrained_is_audited_again(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "pytorch_model.bin").write_bytes(b"1")
    checked(folder, reference=f"pretrained={other}")
    assert statuses(checked(folder, reference=f"pretrained={other}", dry_run=True))[REFERENCE] == StepStatus.THERE
    (other / "pytorch_model.bin").write_bytes(b"2")
    assert statuses(checked(folder, reference=f"pretrained={other}", dry_run=True))[REFERENCE] == StepStatus.TO_RUN


# ---------------------------------------------------------------------- runs that do not say


def without_identity(folder: Path) -> None:
    for name, key in (("results_*.json", "leakage_identity"), ("unit.json", "identity")):
        for file in folder.rglob(name):
            record = json.loads(file.read_text())
            record.pop(key, None)
            file.write_text(json.dumps(record))


def test_runs_of_a_check_that_do_not_say_their_model_are_not_taken_for_it(folder: Path) -> None:
    checked(folder)
    without_identity(folder / "out")
    again = checked(folder)
    assert [statuses(again)[step] for step in RUN_STEPS] == [StepStatus.TO_RUN] * 3
    assert any("no file says which model answered" in problem for problem in again.problems)


def test_runs_that_the_user_names_are_used_and_said_to_be_unknown(folder: Path) -> None:
    checked(folder, output_path=folder / "earlier")
    without_identity(folder / "earlier")
    outcome = checked(folder, runs=folder / "earlier" / "runs")
    assert [statuses(outcome)[step] for step in RUN_STEPS] == [StepStatus.THERE] * 3
    assert any("are not recorded in 3 runs" in problem for problem in outcome.problems)


def test_a_verdict_is_adjusted_for_the_other_benchmarks_in_runs_that_the_user_names(folder: Path) -> None:
    both = [str(folder / "quiz.jsonl"), str(written(folder, questions(60, seed=7), "riddle.jsonl"))]
    checked(folder, tasks=both, output_path=folder / "earlier")
    outcome = checked(folder, runs=folder / "earlier" / "runs")
    assert [verdict.task for verdict in outcome.verdicts] == ["quiz"]
    assert {row.task for annotation in outcome.annotations for row in annotation.rows} == {"quiz", "riddle"}


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


# ---------------------------------------------------------------------- the same files under another path


@pytest.fixture
def paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the ways to name a model's folder."""
    monkeypatch.chdir(folder)
    (folder / "link").symlink_to(folder / "model")
    (folder / "elsewhere").mkdir()
    shutil.copytree(folder / "model", folder / "elsewhere" / "copy")
    places = {"relative": "model", "dotted": "./model", "a folder": "model/", "absolute": str(folder / "model")}
    return places | {"a symbolic link": "link", "a copy": "elsewhere/copy"}


SPELLED = ("dotted", "a folder", "absolute", "a symbolic link", "a copy")


NAMING = ("time", "model", "summary", "citation")  # name the moment, or paths and commands as the user gave them


def said(outcome: Any) -> dict[str, Any]:
    """Return the record of the only verdict, whatever its model is called."""
    (verdict,) = outcome.verdicts
    return {name: value for name, value in verdict.as_record.items() if name not in NAMING}


@pytest.mark.parametrize("spelled", SPELLED)
def test_the_same_files_under_another_path_are_not_asked_again_and_a_second_look_is_the_second(
    fakes: type[NamedFake], folder: Path, paths: dict[str, str], spelled: str
) -> None:
    first = checked(folder, model_args="pretrained=model", questions=40)
    fakes.requests.clear()
    again = checked(folder, model_args=f"pretrained={paths[spelled]}", questions=40)
    assert fakes.requests == []
    assert said(again) == said(first)
    assert again.others == ()
    second = checked(folder, model_args=f"pretrained={paths[spelled]}", questions=60)
    n_asked = len(fakes.requests)
    same = checked(folder, model_args="pretrained=model", questions=60, out="same_name")
    assert (second.verdicts[0].look, second.verdicts[0].pvalue) == (2, same.verdicts[0].pvalue)
    assert second.others == ()
    assert n_asked < len(fakes.requests) - n_asked  # the answers to the first 40 were kept
    assert checked(folder, model_args="pretrained=model", questions=40).verdicts[0].look == 1


def test_other_files_under_another_path_are_another_model(folder: Path, paths: dict[str, str]) -> None:
    checked(folder, model_args="pretrained=model", questions=40)
    (folder / "elsewhere" / "copy" / "model.safetensors").write_bytes(b"3" * 100)
    other = checked(folder, model_args=f"pretrained={paths['a copy']}", questions=60)
    assert other.verdicts[0].look == 1
    assert (
        statuses(checked(folder, model_args="pretrained=model", questions=40, dry_run=True))["accuracy"]
        == StepStatus.THERE
    )


def test_a_reference_under_another_path_is_not_audited_again_and_the_model_itself_is_refused(
    fakes: type[NamedFake], folder: Path, paths: dict[str, str]
) -> None:
    shutil.copytree(folder / "model", folder / "other")
    (folder / "other" / "model.safetensors").write_bytes(b"3" * 100)
    given = {"model_args": "pretrained=model", "questions": 40}
    first = checked(folder, reference="pretrained=other", **given)
    fakes.requests.clear()
    again = checked(folder, reference=f"pretrained={folder / 'other'}", **given)
    assert fakes.requests == []
    assert said(again) == said(first)
    for name in SPELLED:
        with pytest.raises(ValueError, match="which is the model itself"):
            checked(folder, reference=f"pretrained={paths[name]}", **given)


def test_runs_of_one_model_under_several_paths_are_one_model(folder: Path, paths: dict[str, str]) -> None:
    places = [folder / f"of {name}" for name in paths]
    for place, path in zip(places, paths.values(), strict=True):
        checked(folder, model_args=f"pretrained={path}", output_path=place)
    (annotation,) = annotate([place / "runs" for place in places])
    assert annotation.model == "model"
    given = checked(folder, model_args="pretrained=./model", runs=[places[0] / "runs"], out="later")
    assert [statuses(given)[step] for step in RUN_STEPS] == [StepStatus.THERE] * 3


def test_a_campaign_goes_on_with_its_models_under_other_paths(folder: Path, paths: dict[str, str]) -> None:
    def run(path: str) -> Any:
        models = [{"name": "a", "model": "fake", "model_args": {"pretrained": path}}]
        plan = {"models": models, "tasks": str(folder / "quiz.jsonl"), "engine": "inline", "output_path": folder / "c"}
        return run_plan(check_plan(plan))

    first = run("model")
    for path in (*paths.values(), "model"):
        again = run(path)
        assert (again.n_done, said(again)) == (first.n_done, said(first))
    (folder / "model" / "model.safetensors").write_bytes(b"3" * 100)
    assert not (folder / "c" / "replaced").exists()
    run("model")
    assert [*(folder / "c" / "replaced").rglob("unit.json")]


# ---------------------------------------------------------------------- files that are replaced meanwhile


@pytest.mark.parametrize("whose", ["model", "reference"])
def test_weights_that_are_replaced_while_they_are_loaded_are_refused(
    fakes: type[NamedFake], folder: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    place = folder / whose
    place.mkdir(exist_ok=True)
    (place / "model-00002-of-00002.safetensors").write_bytes(b"3" * 100)
    load = fakes.__init__

    def replacing(self: NamedFake, **arguments: Any) -> None:
        load(self, **arguments)
        if arguments["pretrained"] == str(place):
            (place / "model-00002-of-00002.safetensors").write_bytes(b"4" * 100)

    monkeypatch.setattr(fakes, "__init__", replacing)
    given = {} if whose == "model" else {"reference": f"pretrained={place}"}
    with pytest.raises(ValueError, match=f"pretrained is '{place}', whose files changed while the model was loaded"):
        checked(folder, **given)
    assert not [file for file in (folder / "out").rglob("results_*.json") if f"/{whose}" in str(file)]
    monkeypatch.setattr(fakes, "__init__", load)
    fresh = checked(folder, **given, out="fresh")
    assert said(checked(folder, **given)) == said(fresh)
