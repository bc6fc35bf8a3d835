from __future__ import annotations

import json

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from lm_eval.utils import make_table

from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.harness.finished_results import add_columns
from tests.fakes import FakeLM, fond_of

YAML = """
task: capitals
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}\\nA. {{{{choices[0]}}}}\\nB. {{{{choices[1]}}}}\\nC. {{{{choices[2]}}}}\\nAnswer:"
doc_to_choice: [A, B, C]
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1
"""
ROWS = [{"question": f"Capital {i}?", "choices": [f"p{i}", f"q{i}", f"r{i}"], "answer": 0} for i in range(8)]
SEEN = 3


@pytest.fixture
def tasks(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "capitals.yaml").write_text(YAML.format(file=file))
    extend_harness(TaskManager)
    return TaskManager(include_path=str(tmp_path), include_defaults=False)


@pytest.fixture
def model():
    """A model that has seen the first questions with their options as published, and knows their answers."""
    texts = []
    for row in ROWS[:SEEN]:
        shown = "".join(f"\n{letter}. {option}" for letter, option in zip("ABC", row["choices"], strict=True))
        texts += [
            f"{row['question']}{shown}",
            f"{row['question']}{shown}\nAnswer:",
            f"{row['question']}{shown}\nAnswer: A",
        ]
    return FakeLM(fond_of(*texts))


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
