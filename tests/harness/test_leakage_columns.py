from __future__ import annotations

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from lm_eval.utils import make_table

from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.harness.table import add_columns
from tests.fakes import FakeLM, fond_of
from tests.written_tasks import LETTERED, published, write_task

ROWS = [{"question": f"Capital {i}?", "choices": [f"p{i}", f"q{i}", f"r{i}", f"s{i}"], "answer": 0} for i in range(8)]
SEEN = 3


@pytest.fixture
def tasks(tmp_path):
    write_task(tmp_path, "capitals", ROWS, **LETTERED)
    extend_harness(TaskManager)
    return TaskManager(include_path=str(tmp_path), include_defaults=False)


@pytest.fixture
def model():
    """A model that has seen the first questions with their options as published, and knows their answers."""
    endings = ("", "\nAnswer:", "\nAnswer: A")
    return FakeLM(fond_of(*(published(row) + ending for row in ROWS[:SEEN] for ending in endings)))


def test_a_task_in_the_same_run_as_its_audit_shows_the_columns_in_its_own_rows(tasks, model) -> None:
    results = simple_evaluate(model=model, tasks=["capitals", "capitals_leakage_perm"], task_manager=tasks)
    row = results["results"]["capitals"]
    flagged = [
        sample["flagged"] for sample in results["samples"]["capitals_leakage_perm"] if sample["filter"] == "max_order"
    ]
    assert flagged[:SEEN] == [True] * SEEN
    assert row["flagged_rate,leakage"] == pytest.approx(sum(flagged) / 8)
    right = [sample["acc"] for sample in results["samples"]["capitals"]]
    others = [score for score, flag in zip(right, flagged, strict=True) if not flag]
    assert row["acc_unflagged,leakage"] == pytest.approx(sum(others) / len(others))
    assert [line for line in make_table(results).splitlines() if "acc_unflagged" in line]


def test_without_samples_or_without_an_audit_nothing_is_added(tasks, model) -> None:
    for names, log_samples in ((["capitals", "capitals_leakage_perm"], False), (["capitals"], True)):
        results = simple_evaluate(model=model, tasks=names, task_manager=tasks, log_samples=log_samples)
        assert not [key for key in results["results"]["capitals"] if "leakage" in key]


def test_what_cannot_be_added_ends_no_run(caplog) -> None:
    results = {"results": {"t": {}}, "samples": {"t": [{"doc_id": 0, "doc": {}, "acc": 1.0}], "a": [{"ranks_by": 7}]}}
    add_columns(results, ["a"])
    assert results["results"] == {"t": {}}
    broken = {"results": 7, "samples": {"t": [{"doc_id": 0, "doc": {}, "acc": 1.0}], "a": [{"ranks_by": ""}]}}
    add_columns(broken, ["a"])
    assert "no leakage columns" in caplog.text


def test_what_an_audit_logs_of_a_question_is_flat_for_the_harness_loggers(tasks, model) -> None:
    results = simple_evaluate(model=model, tasks=["capitals", "capitals_leakage_perm"], task_manager=tasks)
    of_harness = set(results["samples"]["capitals"][0])
    for sample in results["samples"]["capitals_leakage_perm"]:
        own = {key: value for key, value in sample.items() if key not in of_harness}
        assert {"flagged", "pvalue", "margin" if sample["filter"] == "max_order" else "outlier_score"} <= own.keys()
        assert all(isinstance(value, (str, int, float, type(None))) for value in own.values())
    assert all(isinstance(value, (str, int, float)) for value in results["results"]["capitals"].values())
