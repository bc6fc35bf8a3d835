"""A run with a calibration that says nothing about what was seen prints no calibrated row, says why, and goes on."""

from __future__ import annotations

import math

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.logs.calibration_file import write_calibration
from lm_eval_leakage.questions.families import described
from lm_eval_leakage.records import Question
from lm_eval_leakage.stats.known_scores import (
    CALIBRATED_ROWS,
    COPY,
    EVERY_CLASS,
    NOT_CALIBRATED,
    OWN,
    Calibrated,
    Calibration,
    KnownScores,
)
from tests.fakes import FakeLM, by_hash

extend_harness(TaskManager)
TASK = "fresh_leakage_perm"
DOCS = [{"question": f"Which, {i}?", "choices": [f"red {i}", "blue", "lime"], "answer": 0} for i in range(100, 130)]
KNOWN = {"max_order": KnownScores({EVERY_CLASS: [i / 10 - 2.5 for i in range(50)]}, [3.0] * 40)}


class Named(FakeLM):
    pretrained = "M"


def audit(data: dict[str, str], file, whose: str, stem: str = "Which, {}?", limit: int | None = None):
    questions = [(Question(str(i), stem.format(i), (f"red {i}", "blue", "lime")), False) for i in range(500, 540)]
    write_calibration(file, Calibration("M", "fresh", whose, "by hand", KNOWN, unseen=described(questions)))
    metadata = data | {"calibration": str(file)}
    ours = TaskManager(include_path=str(task_configs_path()), include_defaults=False, metadata=metadata)
    results = simple_evaluate(model=Named(by_hash), tasks=[TASK], task_manager=ours, limit=limit)
    return results["results"][TASK], results["samples"][TASK]


def test_the_models_own_scores_of_questions_of_the_same_kind_give_rates(questions_file, tmp_path, caplog) -> None:
    row, samples = audit(questions_file(DOCS), tmp_path / "c.json", OWN)
    assert {"calibrated_rate,max_order", "identified_rate,max_order", "prevalence,max_order"} <= set(row)
    assert sum(line["calibrated_flagged"] is not None for line in samples) == len(DOCS)
    assert "withheld" not in caplog.text


@pytest.mark.parametrize(
    ("whose", "stem", "limit", "said"),
    [
        (COPY, "Which, {}?", None, "holds scores of a copy of 'M'"),
        (OWN, "Consider, and say which it is: {}?", None, "of another kind than those that were asked: characters of"),
        (OWN, "Which, {}?", 7, "7 asked questions are too few"),
    ],
)
def test_otherwise_the_run_says_why_it_prints_none(
    questions_file, tmp_path, caplog, whose: str, stem: str, limit: int | None, said: str
) -> None:
    row, samples = audit(questions_file(DOCS), tmp_path / "c.json", whose, stem, limit)
    assert f"{TASK}: calibrated rates are withheld: " in caplog.text
    assert said in caplog.text
    numbers = [name for name, value in row.items() if isinstance(value, float)]
    assert not [name for name in numbers if name.startswith(("calibrated", "identified", "prevalence"))]
    assert {line["calibrated_flagged"] for line in samples} == {None}
    assert "flagged_rate,max_order" in row


def test_a_group_with_a_task_whose_rates_are_withheld_has_no_rate_of_the_others() -> None:
    verdicts = [Calibrated(i < 4, 0.01 if i < 4 else 0.5, 0.05, (30, 40), (2, 40)) for i in range(20)]
    for row in CALIBRATED_ROWS:
        assert math.isfinite(row.compute(verdicts))
        assert math.isnan(row.compute([*verdicts, NOT_CALIBRATED]))
