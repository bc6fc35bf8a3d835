"""Audits with a calibration file, through the harness; where its rates would say nothing about what was seen, none is
printed, the run says why, and goes on."""

from __future__ import annotations

import math

import pytest

from lm_eval_leakage.harness.tasks.judging import Calibrator
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
from tests.fakes import FakeLM, by_hash, fond_of
from tests.harness.test_task import evaluate
from tests.written_tasks import published

TASK = "fresh_leakage_perm"
DOCS = [
    {"question": f"Which, {i}?", "choices": [f"red {i}", "blue", "lime", "grey"], "answer": 0} for i in range(100, 130)
]
SEEN = [*map(published, DOCS[:8])]
# scores of known-unseen questions from -2.5 to 2.4; one of which only the published order is remembered has more
KNOWN = {"max_order": KnownScores({EVERY_CLASS: [i / 10 - 2.5 for i in range(50)]}, [3.0] * 40)}


class Named(FakeLM):
    pretrained = "M"


@pytest.fixture
def audit(questions_file, tmp_path):
    """A run with a calibration of unseen questions whose texts are like `stem`."""

    def run(lm: FakeLM, whose: str = OWN, stem: str = "Which, {}?", limit: int | None = None, **metadata: object):
        options = [(f"red {i}", "blue", "lime", "grey") for i in range(500, 540)]
        asked = [(Question(one[0], stem.format(one[0][4:]), one), False) for one in options]
        file = tmp_path / "c.json"
        write_calibration(file, Calibration("M", "fresh", whose, "by hand", KNOWN, unseen=described(asked)))
        given = questions_file(DOCS) | {"calibration": str(file)} | metadata
        results = evaluate(lm, given, [TASK], limit=limit)
        return results["results"][TASK], results["samples"][TASK]

    return run


def test_calibrated_rates_are_reported_with_the_published_ones(audit, caplog) -> None:
    row, samples = audit(Named(fond_of(*SEEN)))
    lines = [line for line in samples if line["filter"] == "max_order"]
    assert [line["calibrated_flagged"] for line in lines[:8]] == [True] * 8
    assert {line["calibrated_pvalue"] for line in lines[:8]} == {1 / 51}
    assert row["calibrated_rate,max_order"] == sum(line["calibrated_flagged"] for line in lines) / len(DOCS)
    lowest = [line for line in lines if line["calibrated_pvalue"] == 1 / 51]
    assert row["identified_rate,max_order"] == pytest.approx(len(lowest) / len(DOCS))
    assert row["calibrated_rate_stderr,max_order"] > 0
    assert "calibrated_rate,outlier" not in row  # its scores are not known
    assert next(line for line in samples if line["filter"] == "outlier")["calibrated_pvalue"] is None
    assert 0 <= row["prevalence_low,max_order"] < row["prevalence,max_order"] < row["prevalence_high,max_order"] < 0.6
    assert "withheld" not in caplog.text


def test_the_false_positive_rate_can_be_set(audit) -> None:
    row, _ = audit(Named(fond_of(*SEEN)), fpr=0.01)
    assert row["calibrated_rate,max_order"] == 0  # 1 / 51 is the lowest p-value that 50 known questions allow
    with pytest.raises(ValueError, match="fpr is 2; it is a false-positive rate"):
        audit(Named(by_hash), fpr=2)


def test_with_other_parameters_of_the_probe_there_is_a_warning_of_another_detector(audit, caplog) -> None:
    row, _ = audit(Named(by_hash), orders=12)
    assert "calibrated_rate,max_order" not in row
    told = "the calibration of 'M' has scores of max_order, but the run has max_order:orders=12, outlier"
    assert told in caplog.text


def test_a_calibration_of_another_model_is_refused_before_anything_is_computed(audit, caplog) -> None:
    lm = Named(by_hash)
    lm.pretrained = "N"
    with pytest.raises(ValueError, match="the calibration is of the model 'M', but this run's model is 'N'"):
        audit(lm)
    assert not lm.asked
    audit(FakeLM(by_hash))
    assert "FakeLM has no known name; the calibration is of the model 'M'" in caplog.text


def test_a_benchmark_name_that_only_begins_the_same_gets_a_warning_and_any_other_is_refused(tmp_path, caplog) -> None:
    write_calibration(tmp_path / "c.json", Calibration("M", "mmlu", OWN, "by hand", {}))
    metadata = {"calibration": str(tmp_path / "c.json")}
    assert Calibrator.of(metadata | {"audit_of": "mmlu"}, "t") is not None
    assert not caplog.text
    Calibrator.of(metadata | {"audit_of": "mmlu_pro"}, "t")
    assert "t audits 'mmlu_pro' with a calibration made on 'mmlu'" in caplog.text
    with pytest.raises(ValueError, match="made on 'mmlu', but t audits 'mmlux'"):
        Calibrator.of(metadata | {"audit_of": "mmlux"}, "t")


@pytest.mark.parametrize(
    ("whose", "stem", "limit", "said"),
    [
        (COPY, "Which, {}?", None, "holds scores of a copy of 'M'"),
        (OWN, "Consider, and say which it is: {}?", None, "of another kind than those that were asked: characters of"),
        (OWN, "Which, {}?", 7, "7 asked questions are too few"),
    ],
)
def test_where_rates_would_say_nothing_the_run_says_why_it_prints_none(
    audit, caplog, whose, stem, limit, said
) -> None:
    row, samples = audit(Named(by_hash), whose, stem, limit)
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
