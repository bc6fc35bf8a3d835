"""A unit is done only if the model that its name stands for now answered it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.folder import UNIT_FILE, CampaignFolder, read_json
from lm_eval_leakage.jobs.manifest import IDENTITY_OF_UNIT, UNKNOWN, differs, refuse_another
from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.logs.run import REPLACED
from tests.campaign.scripted_model import ASKED, lines

Run = Callable[..., CheckOutcome]
UNITS = [f"a/{task}/{kind}" for task in ("quiz", "riddle") for kind in ("run", "leakage_perm")]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    file = tmp_path / "weights.bin"
    file.write_text("1")
    return file


@pytest.fixture
def trained(settings: dict[str, Any], weights: Path) -> dict[str, Any]:
    """A plan of a model whose answers depend on a file."""
    (model,) = settings["models"]
    return settings | {"models": [model | {"model_args": f"{model['model_args']},weights={weights}"}]}


def table(folder: Path) -> str:
    return (folder / "leaderboard.csv").read_text()


def n_asked(tmp_path: Path) -> int:
    return len(lines(tmp_path / "counts", ASKED))


def identities(folder: CampaignFolder) -> dict[str, Any]:
    return {name: folder.unit_file(Unit.of_id(name))[IDENTITY_OF_UNIT] for name in UNITS}


@pytest.mark.model
def test_units_of_weights_that_were_retrained_under_the_same_path_are_run_again_and_the_earlier_are_moved(
    here: Run, trained: dict[str, Any], weights: Path, tmp_path: Path
) -> None:
    from lm_eval_leakage.jobs import driver

    first = here(trained)
    before, n_before, earlier = table(first.folder.path), n_asked(tmp_path), identities(first.folder)
    assert earlier == dict.fromkeys(UNITS, earlier[UNITS[0]])
    weights.write_text("2")
    said: list[str] = []
    again = driver.run_plan(check_plan(trained), say=said.append)
    fresh = here(trained | {"output_path": str(tmp_path / "fresh")})
    assert (again.n_done, again.lost) == (4, ())
    assert n_asked(tmp_path) == 3 * n_before
    assert table(again.folder.path) == table(fresh.folder.path) != before
    after = identities(again.folder)
    assert after == identities(fresh.folder)
    assert all(after[name]["weights"] != earlier[name]["weights"] for name in UNITS)
    moved = {name: again.folder.earlier_of(Unit.of_id(name)) for name in UNITS}
    assert {name: read_json(place / UNIT_FILE)[IDENTITY_OF_UNIT] for name, (place,) in moved.items()} == earlier
    (sentence,) = [text for text in said if "run again" in text]
    assert sentence.startswith("4 units of a will be run again (another model answered: weights ")
    assert f"the earlier files are now in {trained['output_path']}/{REPLACED}/" in sentence
    refuse_another(again.folder, "a", after[UNITS[0]])
    with pytest.raises(ValueError, match="a is not the model that answered a/quiz/.* start the campaign again"):
        refuse_another(again.folder, "a", earlier[UNITS[0]])


@pytest.mark.model
def test_a_complete_unit_that_a_kill_left_unpublished_counts_only_if_its_model_is_the_same(
    here: Run, trained: dict[str, Any], weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, unit = CampaignFolder(trained["output_path"]), Unit.of_id(UNITS[0])

    def interrupted_when_complete() -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(CampaignFolder, "publish", interrupt)
            with pytest.raises(KeyboardInterrupt):
                here(trained)

    interrupted_when_complete()
    (work,) = [file.parent for file in folder.work_of(unit).glob(f"*/{UNIT_FILE}")]
    name = f".leakage_answers.{'0' * 8}.{'1' * 32}"  # answers that another machine, which was lost, was removing
    (work / f"{name}.part").touch()
    (work / f"{name}.files.part").mkdir()
    (work / f"{name}.files.part" / "a.sqlite").write_text("some answers")
    assert here(trained).n_done == 4
    requests = lines(tmp_path / "counts", ASKED)
    assert len(requests) == len(set(requests))
    folder.path.rename(tmp_path / "whole")
    interrupted_when_complete()
    weights.write_text("2")
    assert here(trained).n_done == 4
    assert identities(folder) == dict.fromkeys(UNITS, identities(folder)[UNITS[0]])


@pytest.mark.model
@pytest.mark.parametrize("kind", ["run", "leakage_perm"])
def test_a_unit_whose_results_file_is_gone_is_run_again(here: Run, trained: dict[str, Any], kind: str) -> None:
    first = here(trained)
    before = table(first.folder.path)
    (file,) = (first.folder.path / "runs" / "a" / "quiz" / kind).rglob("results_*.json")
    file.unlink()
    again = here(trained)
    assert (again.n_done, again.lost) == (4, ())
    (sentence,) = again.problems
    assert sentence.startswith("1 unit of a will be run again (its results file is gone); the earlier files are ")
    assert sorted(table(again.folder.path).splitlines()) == sorted(before.splitlines())  # rows by their time


# ---------------------------------------------------------------------- what differs


def test_what_this_machine_does_not_see_is_no_difference_and_anything_else_is() -> None:
    seen = {"pretrained": "/models/m (0a1b)", "dtype": "bfloat16"}
    assert differs(seen, seen) == ""
    assert differs(seen, {**seen, "pretrained": "/models/m"}) == ""
    assert differs({**seen, "pretrained": "/models/m"}, seen) == "pretrained /models/m, now /models/m (0a1b)"
    assert differs(seen, {**seen, "pretrained": "/models/m (ffff)"})
    assert differs(seen, {**seen, "dtype": "float16"}) == "dtype bfloat16, now float16"
    assert differs(seen, {**seen, "apply_chat_template": "True"}) == "apply_chat_template not given, now True"
    assert differs({}, seen) == UNKNOWN
