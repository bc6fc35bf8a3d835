"""Errors that a simulation would end in are raised before a model is loaded, without any work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lm_eval_leakage.files import sole_use
from lm_eval_leakage.lab import simulation
from lm_eval_leakage.lab.settings import Simulation
from lm_eval_leakage.lab.training import Recipe
from tests.checking.conftest import questions, written

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class AtWorkError(Exception):
    """Raised when a model or the trainer is loaded."""


@pytest.fixture(autouse=True)
def _no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_at_work(*_: object, **__: object) -> None:
        raise AtWorkError

    monkeypatch.setattr("lm_eval_leakage.harness.saved_run.run_saved", raise_at_work)
    monkeypatch.setattr(simulation, "train", raise_at_work)


@pytest.fixture
def settings(tmp_path: Path) -> Simulation:
    file = written(tmp_path, questions(10))
    return Simulation("pretrained=nowhere", str(file), n_questions=8, epochs=(1,), detectors=("leakage_perm",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_questions": 40}, "n_questions is 40, but 10 of 10 are eligible; ask for fewer"),
        ({"n_questions": 40, "select": "hard"}, "n_questions is 40, but 10 of 10 are eligible; ask for fewer"),
        ({"detectors": ("leakage_prem",)}, "'leakage_prem' is not an audit; choose one of: .*leakage_perm"),
        ({"model": "hff"}, "'hff'"),
        ({"detectors": ("leakage_tokens",), "model": "local-completions"}, "leakage_tokens cannot run: local-comple"),
        ({"select": "hard", "model": "local-completions"}, "leakage_tokens cannot run: local-completions does not"),
        ({"metadata": {"max_orders": 0}}, "max_orders"),
        ({"detectors": ("leakage_shared_likelihood",)}, "examples is 1; it must be a whole number of at least 2"),
        ({"versions": "nowhere.jsonl"}, "nowhere.jsonl cannot be read .*; give a text file in UTF-8"),
        ({"ordinary": "nowhere.txt"}, "nowhere.txt cannot be read .*; give a text file in UTF-8"),
        ({"epochs": (0,)}, r"epochs is \(0,\); give whole numbers of at least 1"),
        ({"epochs": ()}, r"epochs is \(\)"),
        ({"model_args": "dtype=float32"}, "it must name the model as pretrained="),
        ({"reference": "OTHER"}, "reference is 'OTHER'; it must name the model as pretrained="),
        ({"reference": "pretrained=M"}, r"none of the audits that use it \(leakage_relative\) is among"),
    ],
    ids=str,
)
def test_invalid_settings_are_an_error_before_any_work(
    settings: Simulation, tmp_path: Path, change, message: str, monkeypatch
) -> None:
    from lm_eval.tasks import TaskManager

    from lm_eval_leakage.harness.tasks import given_questions

    quick = lambda **options: TaskManager(**options | {"include_defaults": False})  # noqa: E731
    monkeypatch.setattr(given_questions, "TaskManager", quick)
    with pytest.raises(ValueError, match=message):
        simulation.simulate(replace(settings, **change), tmp_path / "lab")
    # no settings are recorded, so that the corrected command may use the folder
    with pytest.raises(AtWorkError):
        simulation.simulate(settings, tmp_path / "lab")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"\n\n"])
@pytest.mark.parametrize("name", ["versions", "ordinary"])
def test_an_unusable_file_is_an_error_before_any_work(settings, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "file.txt").write_bytes(content)
    wanted = replace(settings, **{name: str(tmp_path / "file.txt")})
    with pytest.raises(ValueError, match="file.txt (cannot be read|has no text|has no version of question)"):
        simulation.simulate(wanted, tmp_path / "lab")


@pytest.mark.parametrize(
    ("package", "recipe"),
    [("accelerate", Recipe()), ("peft", Recipe(lora_rank=8))],
)
def test_a_missing_package_is_an_error_before_any_work(settings, tmp_path: Path, monkeypatch, package, recipe) -> None:
    monkeypatch.setattr("lm_eval_leakage.lab.settings.find_spec", lambda name: name != package or None)
    message = f"{package}: needed but not installed; `pip install 'lm-eval-leakage.lab.'`"
    with pytest.raises(ImportError, match=message):
        simulation.simulate(replace(settings, recipe=recipe), tmp_path / "lab")
    assert not (tmp_path / "lab").exists()


# ---------------------------------------------------------------------- the folder


def test_two_simulations_in_one_folder_are_refused_in_a_sentence(settings: Simulation, tmp_path: Path) -> None:
    with (
        sole_use(tmp_path / "lab"),
        pytest.raises(ValueError, match="lab is in use by another command; wait until it ends, or give another"),
    ):
        simulation.simulate(settings, tmp_path / "lab")
    with pytest.raises(AtWorkError):
        simulation.simulate(settings, tmp_path / "lab")
