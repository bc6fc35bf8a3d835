from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import datasets
import pytest

from lm_eval_leakage.harness.tasks.data import KeptDocs, load_questions
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import UntestableQuestion
from tests.harness.test_task import GOOD, ONE, TWINS


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


def test_a_row_is_taken_out_of_its_table_and_read_only_once() -> None:
    taken, read = Counter(), Counter()

    class Table(list):
        def __iter__(self):
            for number in range(len(self)):
                taken[number] += 1
                yield self[number]

    def reading(doc):
        read[doc["question"]] += 1
        return question_from_doc(doc)

    docs = KeptDocs(Table([GOOD, ONE | {"choices": []}, TWINS]), reading)
    assert docs[1] is [*docs][1]
    assert docs[-1] == TWINS
    assert [doc["question"] for doc in docs[:2]] == [GOOD["question"], ONE["question"]]
    assert set(taken.values()) == {1}
    assert all(doc.reading is doc.reading for doc in docs)
    assert isinstance(docs[1].reading, UntestableQuestion)
    assert set(read.values()) == {1}
    assert list(docs.features) == list(GOOD)
    with pytest.raises(IndexError):
        docs[3]
