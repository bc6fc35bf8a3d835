from __future__ import annotations

from types import SimpleNamespace

import datasets
import pytest

from lm_eval_leakage.harness.tasks.data import load_questions


def config(**fields) -> SimpleNamespace:
    return SimpleNamespace(**({"metadata": {}, "dataset_path": "hub/set", "dataset_name": None} | fields))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub with one data set, whose subsets have two questions each."""

    def load_dataset(path: str, name: str | None, split: str) -> datasets.Dataset:
        assert path == "hub/set"
        return datasets.Dataset.from_list([{"question": f"{name} {split} {i}", "choices": ["a", "b"]} for i in (1, 2)])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)


def test_subjects_are_concatenated_with_a_column_that_names_them(hub) -> None:
    rows = load_questions(config(dataset_name=["law", "art"]), "val")
    assert rows["question"][:] == ["law val 1", "law val 2", "art val 1", "art val 2"]
    assert rows["subject"][:] == ["law", "law", "art", "art"]


def test_one_subset_is_read_as_it_stands(hub) -> None:
    rows = load_questions(config(dataset_name="all"), "test")
    assert rows.column_names == ["question", "choices"]
    assert rows["question"][0] == "all test 1"


def test_a_file_next_to_the_yaml_is_found_from_any_working_directory(tmp_path) -> None:
    (tmp_path / "own.jsonl").write_text('{"question": "Q?", "choices": ["a", "b"]}\n')
    source = {"config_source": str(tmp_path / "own.yaml")}
    rows = load_questions(
        config(dataset_path="json", dataset_kwargs={"data_files": "own.jsonl"}, metadata=source), "test"
    )
    assert rows["question"][:] == ["Q?"]
