"""Tasks by name: what several audits of one benchmark share."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets.exceptions import DatasetNotFoundError

from lm_eval_leakage.harness import task_shelf
from lm_eval_leakage.harness.own_benchmark import write_task
from lm_eval_leakage.harness.task_shelf import LoadedTask, TaskShelf
from tests.checking.conftest import GivenTasksOnly, questions, written
from tests.written_tasks import write_task as write_yaml

PERM, TOKENS = "quiz_leakage_perm", "quiz_leakage_tokens"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskShelf:
    monkeypatch.setattr(task_shelf, "TaskManager", GivenTasksOnly)
    write_task(written(tmp_path, questions(12)), tmp_path, "quiz")
    return TaskShelf([str(tmp_path)])


def base_of(loaded: LoadedTask) -> object:
    ((_, audit),) = loaded.leaves.items()
    return audit.base


def test_audits_of_a_task_share_it_and_read_its_questions_once(shelf: TaskShelf) -> None:
    orders, texts = shelf.load(PERM, {}), shelf.load(TOKENS, {})
    assert base_of(orders) is base_of(texts)
    read = [[doc.reading for doc in loaded.leaves[loaded.name].eval_docs] for loaded in (orders, texts)]
    assert all(rows is other for rows, other in zip(*read, strict=True))
    assert orders.leaves[PERM] is not texts.leaves[TOKENS]


def test_neither_the_task_itself_nor_one_with_other_settings_is_shared(shelf: TaskShelf) -> None:
    """lm_eval sets few shots on tasks of a run, and a task may build its data from the metadata."""
    audited = base_of(shelf.load(PERM, {}))
    assert audited is not shelf.load("quiz", {}).leaves["quiz"]
    assert shelf.load("quiz", {}).leaves["quiz"] is not shelf.load("quiz", {}).leaves["quiz"]
    assert audited is not base_of(shelf.load(PERM, {"orders": 6}))
    assert shelf.load(PERM, {}).leaves[PERM] is not shelf.load(PERM, {}).leaves[PERM]


def test_a_users_file_of_questions_is_read_anew(shelf: TaskShelf, tmp_path: Path) -> None:
    given = written(tmp_path, questions(3, seed=5), "given.jsonl")
    metadata = {"data_files": str(given)}
    assert len(shelf.load(PERM, metadata).rows) == 3
    written(tmp_path, questions(5, seed=5), "given.jsonl")
    assert len(shelf.load(PERM, metadata).rows) == 5


def test_the_index_is_built_once_and_only_when_a_task_is_asked_for(
    shelf: TaskShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    class Counted(GivenTasksOnly):
        def __init__(self, *args, **kwargs) -> None:
            built.append(kwargs)
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(task_shelf, "TaskManager", Counted)
    assert not built
    shelf.load(PERM, {})
    shelf.load(TOKENS, {"orders": 6})
    with pytest.raises(ValueError, match="tasks has 'quizz', which is not a task, group, tag or file; `lm-eval-leak"):
        shelf.names(["quizz"])
    assert len(built) == 1


def test_keys_are_equal_for_copies(tmp_path: Path, shelf: TaskShelf) -> None:
    docs = questions(3)
    copy = docs[0] | {"choices": docs[0]["choices"][::-1]}
    write_task(written(tmp_path, [*docs, copy], "copies.jsonl"), tmp_path, "copies")
    loaded = shelf.load("copies_leakage_perm", {})
    assert {row.key for row in loaded.rows} == {""}
    keys = [row.key for row in loaded.keyed(loaded.rows)]
    assert len({*keys[:3]}) == 3
    assert keys[3] == keys[0]


FAULTY = {
    "value": ("def text(doc): return [1].index(2)", "(ValueError: 2 is not in list)"),
    "key": ("def text(doc): return doc['nowhere']", "(KeyError: 'nowhere')"),
    "system": ("def text(doc): raise OSError('no dictionary')", "(OSError: no dictionary)"),
    "exit": ("raise SystemExit('install it')", "(install it)"),
}


@pytest.mark.parametrize(("module", "reason"), FAULTY.values(), ids=FAULTY.keys())
def test_whatever_a_tasks_own_module_raises_is_a_sentence_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, reason: str
) -> None:
    monkeypatch.setattr(task_shelf, "TaskManager", GivenTasksOnly)
    (tmp_path / "faulty.py").write_text(f"{module}\n")
    write_yaml(tmp_path, "odd", questions(3), text="!function faulty.text")
    with pytest.raises(ValueError, match="^odd cannot be loaded ") as error:
        TaskShelf([str(tmp_path)]).load("odd", {})
    assert str(error.value).startswith(f"odd cannot be loaded {reason}; leave it out, or provide")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ConnectionError("Couldn't reach 'openai/gsm8k' on the Hub (OfflineModeIsEnabled)"),
            "arc_easy cannot be loaded: its data are not in the cache of `datasets`, and cannot be downloaded "
            "(Couldn't reach 'openai/gsm8k' on the Hub (OfflineModeIsEnabled)); leave it out, or start this once with",
        ),
        (
            DatasetNotFoundError("Dataset 'opnai/gsm8k' doesn't exist on the Hub or cannot be accessed."),
            "arc_easy cannot be loaded: Dataset 'opnai/gsm8k' doesn't exist on the Hub or cannot be accessed. Correct "
            "dataset_path in its YAML, or leave it out",
        ),
    ],
    ids=["offline", "misspelled"],
)
def test_a_task_whose_data_cannot_be_loaded_is_named_with_the_remedy(shelf, monkeypatch, error, said) -> None:
    def load(*_: object) -> None:
        raise error

    monkeypatch.setattr("lm_eval.tasks.TaskManager.load", load)
    with pytest.raises(ValueError, match="^") as raised:
        shelf.load("arc_easy", {})
    assert str(raised.value).startswith(said)


def test_what_this_package_says_of_a_task_stays_as_it_is(shelf: TaskShelf, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^resume is 'no'; give true, or false"):
        shelf.load(PERM, {"resume": "no"})
    with pytest.raises(FileNotFoundError, match="^data_files is "):
        shelf.load(PERM, {"data_files": str(tmp_path / "nowhere.jsonl")})
