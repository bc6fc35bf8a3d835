from __future__ import annotations

import gc
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import tests.forks  # noqa: F401

# Tests run in parallel, one process per core; their small models are no faster on several cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shared machine may stall any example; CI tries the same examples each time, developers new ones.
hypothesis.settings.register_profile("here", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("here")


LONGEST = (  # files, the longest first, or all wait for one of them at the end
    *("model/test_tutorial.py", "campaign/test_ray_engine.py", "faults/test_core.py", "checking/test_stages.py"),
    *("model/test_real_run.py", "campaign/test_slurm_runs.py", "model/test_distribution.py"),
    *("checking/test_same_questions.py", "campaign/test_ray_campaign.py", "checking/test_others.py"),
    *("golden/test_golden.py", "checking/test_names.py"),  # whose tests share what one process has run
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests after pytest-randomly has shuffled them."""
    items.sort(key=lambda item: [not str(item.path).endswith(name) for name in LONGEST])


def pytest_collection_finish() -> None:
    """A run frees its model's memory by collecting garbage, and would search all modules each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def questions_file(tmp_path: Path):
    """Writes docs as a local benchmark and returns the metadata that makes a task read them."""

    def write(docs: list[dict]) -> dict[str, str]:
        file = tmp_path / "questions.jsonl"
        file.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
        return {"data_files": str(file)}

    return write


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the Hugging Face Hub that has gpt2 and EleutherAI/pythia-70m, as far as names of files go."""
    import huggingface_hub.constants

    cache = tmp_path / "hub"
    for name in ("gpt2", "EleutherAI/pythia-70m"):
        folder = cache / f"models--{name.replace('/', '--')}"
        (folder / "snapshots" / "abc").mkdir(parents=True)
        (folder / "snapshots" / "abc" / "config.json").write_text("{}")
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    return cache


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    import datasets.config

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.getbasetemp() / "datasets")


@pytest.fixture(autouse=True)
def _no_description_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness asks a dozen programs about the machine at the end of each run, pip among them, which takes longer
    than most runs of a test."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda storage: None)


@pytest.fixture(autouse=True)
def _logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands set up logging for their process: levels of the harness's, datasets' and our loggers, and a handler on
    a stream that pytest closes. What later tests log, and count, would depend on them."""
    logger = logging.getLogger("lm_eval")
    levels, handlers, propagate = levels_of_loggers(), [*logger.handlers], logger.propagate
    monkeypatch.setattr("lm_eval.utils._LOGGING_CONFIGURED", False)
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    for name, level in levels_of_loggers().items():
        before = levels.get(name, logging.NOTSET if name.startswith("lm_eval") else level)
        if level != before:
            logging.getLogger(name).setLevel(before)


def levels_of_loggers() -> dict[str, int]:
    loggers = logging.root.manager.loggerDict
    return {name: logger.level for name, logger in [*loggers.items()] if isinstance(logger, logging.Logger)}
