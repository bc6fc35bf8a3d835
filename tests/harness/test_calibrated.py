"""Audits with a calibration file, through the harness."""

from __future__ import annotations

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.harness.tasks.judging import Calibrator
from lm_eval_leakage.logs.calibration_file import write_calibration
from lm_eval_leakage.stats.known_scores import EVERY_CLASS, OWN, Calibration, KnownScores
from tests.fakes import FakeLM, by_hash, fond_of

pytestmark = pytest.mark.usefixtures("calibrations_are_admitted")

extend_harness(TaskManager)
TASK = "fresh_leakage_perm"
DOCS = [{"question": f"Which, {i}?", "choices": ["red", "blue", "lime", "grey"], "answer": 0} for i in range(20)]
KEY = "max_order"


@pytest.fixture
def file(tmp_path):
    """Scores of known-unseen questions from -2.5 to 2.4; a question of which only the published order is remembered
    has 3."""
    known = KnownScores({EVERY_CLASS: [i / 10 - 2.5 for i in range(50)]}, [3.0] * 40)
    write_calibration(tmp_path / "c.json", Calibration("M", "fresh", OWN, "by hand", {KEY: known}))
    return str(tmp_path / "c.json")


class Named(FakeLM):
    pretrained = "M"


def audit(lm: FakeLM, data: dict[str, str], **metadata: object):
    ours = TaskManager(include_path=str(task_configs_path()), include_defaults=False, metadata=data | metadata)
    results = simple_evaluate(model=lm, tasks=[TASK], task_manager=ours)
    return results["results"][TASK], results["samples"][TASK]


def test_calibrated_rates_are_reported_with_the_published_ones(questions_file, file) -> None:
    seen = [f"Which, {i}?\nA. red\nB. blue\nC. lime\nD. grey" for i in range(5)]
    row, samples = audit(Named(fond_of(*seen)), questions_file(DOCS), calibration=file)
    lines = [line for line in samples if line["filter"] == "max_order"]
    assert [line["calibrated_flagged"] for line in lines[:5]] == [True] * 5
    assert {line["calibrated_pvalue"] for line in lines[:5]} == {1 / 51}
    assert row["calibrated_rate,max_order"] == sum(line["calibrated_flagged"] for line in lines) / 20
    assert row["identified_rate,max_order"] == pytest.approx(5 / 20)
    assert row["calibrated_rate_stderr,max_order"] > 0
    assert 0 <= row["prevalence_low,max_order"] < row["prevalence,max_order"] < row["prevalence_high,max_order"] < 0.6


def test_a_statistic_without_known_scores_has_no_calibrated_rate(questions_file, file) -> None:
    row, samples = audit(Named(by_hash), questions_file(DOCS), calibration=file)
    assert "calibrated_rate,outlier" not in row  # it has no value
    assert next(line for line in samples if line["filter"] == "outlier")["calibrated_pvalue"] is None


def test_the_false_positive_rate_can_be_set(questions_file, file) -> None:
    seen = [f"Which, {i}?\nA. red\nB. blue\nC. lime\nD. grey" for i in range(5)]
    row, _ = audit(Named(fond_of(*seen)), questions_file(DOCS), calibration=file, fpr=0.01)
    assert row["calibrated_rate,max_order"] == 0  # 1 / 51 is the lowest p-value that 50 known questions allow
    with pytest.raises(ValueError, match="fpr is 2; it is a false-positive rate"):
        audit(Named(by_hash), questions_file(DOCS), calibration=file, fpr=2)


def test_without_a_calibration_no_row_is_added(questions_file) -> None:
    row, _ = audit(FakeLM(by_hash), questions_file(DOCS))
    assert not [name for name in row if name.startswith("calibrated")]


def test_with_other_parameters_of_the_probe_there_is_a_warning_of_another_detector(
    questions_file, file, caplog
) -> None:
    row, _ = audit(Named(by_hash), questions_file(DOCS), calibration=file, orders=12)
    assert "calibrated_rate,max_order" not in row
    told = "the calibration of 'M' has scores of max_order, but the run has max_order:orders=12, outlier"
    assert told in caplog.text


def test_a_calibration_of_another_model_is_refused_before_anything_is_computed(questions_file, file) -> None:
    lm = Named(by_hash)
    lm.pretrained = "N"
    with pytest.raises(ValueError, match="the calibration is of the model 'M', but this run's model is 'N'"):
        audit(lm, questions_file(DOCS), calibration=file)
    assert not lm.asked


def test_a_model_without_a_known_name_gets_a_warning(questions_file, file, caplog) -> None:
    audit(FakeLM(by_hash), questions_file(DOCS), calibration=file)
    assert "FakeLM has no known name; the calibration is of the model 'M'" in caplog.text


def test_a_benchmark_name_that_only_begins_the_same_gets_a_warning(tmp_path, caplog) -> None:
    write_calibration(tmp_path / "c.json", Calibration("M", "mmlu", OWN, "by hand", {}))
    metadata = {"calibration": str(tmp_path / "c.json")}
    assert Calibrator.of(metadata | {"audit_of": "mmlu"}, "t") is not None
    assert not caplog.text
    Calibrator.of(metadata | {"audit_of": "mmlu_pro"}, "t")
    assert "t audits 'mmlu_pro' with a calibration made on 'mmlu'" in caplog.text
    with pytest.raises(ValueError, match="made on 'mmlu', but t audits 'mmlux'"):
        Calibrator.of(metadata | {"audit_of": "mmlux"}, "t")


def test_a_calibration_of_another_benchmark_is_refused(questions_file, tmp_path) -> None:
    write_calibration(tmp_path / "c.json", Calibration("M", "mmlu", OWN, "by hand", {}))
    with pytest.raises(ValueError, match="made on 'mmlu', but fresh_leakage_perm audits"):
        audit(Named(by_hash), questions_file(DOCS), calibration=str(tmp_path / "c.json"))


def test_a_calibration_without_scores_of_any_detector_of_the_run_gets_a_warning(file) -> None:
    calibrator = Calibrator.of({"calibration": file, "audit_of": "fresh"}, "t")
    assert calibrator.unmatched([KEY, "outlier"]) is None
    said = calibrator.unmatched([f"{KEY}:max_orders=12"])
    assert f"the calibration of 'M' has scores of {KEY}, but the run has {KEY}:max_orders=12" in said
