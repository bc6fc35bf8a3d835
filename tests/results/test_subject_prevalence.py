from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import betabinom, binom

from lm_eval_leakage.results import columns
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.subject_prevalence import ALL_SUBJECTS, by_calibration, by_null, notes
from lm_eval_leakage.stats.known_scores import EVERY_CLASS, OWN, Calibration, KnownScores
from tests.results.harness_files import audited, row, write_run

pytestmark = pytest.mark.usefixtures("calibrations_are_admitted")

TEST = "max_order"
RANDOM = {
    "published_orders": "drawn",
    "n_orders": 3,
    "resps": [[["-1.0", "False"]], [["-2.0", "False"]], [["-2.5", "False"]]],
}


def line(number: int, subject: str, flagged: bool, statistic: float = 0.0, **more: Any) -> dict[str, Any]:
    return audited(row(number, subject), flagged, **RANDOM, statistic=statistic, **more)


def seen_by_half() -> list[dict[str, Any]]:
    """40 questions of a subject that was seen by half, 60 of one that was not."""
    rng = np.random.default_rng(5)
    rows = [("seen", i % 2 == 0, 4.0 * (i % 2 == 0)) for i in range(40)] + [("clean", i == 0, 0.0) for i in range(60)]
    return [line(i, name, flag, float(rng.normal() + shift)) for i, (name, flag, shift) in enumerate(rows)]


@pytest.fixture
def run(tmp_path):
    write_run(tmp_path, "M", {"b_leakage_perm": seen_by_half()})
    return tmp_path


def test_by_null_every_subject_has_its_exact_pvalue_and_a_lower_bound(run) -> None:
    rows = {row.subject: row for row in by_null(run, [])}
    assert [rows[name].flags.n_flagged for name in ("seen", "clean", ALL_SUBJECTS)] == [20, 1, 21]
    assert rows["seen"].pvalue == pytest.approx(binom.sf(19, 40, 1 / 24))
    assert rows["seen"].adjusted == pytest.approx(2 * rows["seen"].pvalue)
    assert rows["clean"].pvalue == pytest.approx(binom.sf(0, 60, 1 / 24))
    assert rows["seen"].share.low > 0.3
    assert rows["clean"].share.low == 0
    assert math.isnan(rows[ALL_SUBJECTS].adjusted)


def calibration() -> Calibration:
    rng = np.random.default_rng(1)
    known = KnownScores({EVERY_CLASS: rng.normal(size=199).tolist()}, (rng.normal(size=200) + 4).tolist())
    return Calibration("M", "b", OWN, "by hand", {TEST: known})


def test_by_calibration_the_share_is_found_or_bounded_without_seen_questions(run) -> None:
    rows = {row.subject: row for row in by_calibration(run, calibration(), TEST, 0.05, [])}
    assert rows["seen"].share.low < 0.5 < rows["seen"].share.high
    assert rows["clean"].share.low == 0
    n_flagged = rows["clean"].flags.n_flagged
    assert rows["clean"].pvalue == pytest.approx(betabinom.sf(n_flagged - 1, 60, 10.5, 189.5))
    assert rows["seen"].adjusted < 1e-6
    known = replace(calibration().detectors[TEST], seen=())
    bounded = by_calibration(run, replace(calibration(), detectors={TEST: known}), TEST, 0.05, [])
    shares = {one.subject: (one.share.low, one.share.high) for one in bounded}
    assert shares["clean"][0] == 0
    assert shares["seen"] > (0.2, 0.99)
    assert [text for text in notes(bounded) if "only a lower bound" in text]


def test_a_question_counts_once_and_one_with_a_natural_order_not_for_the_share(run) -> None:
    before = {row.subject: row for row in by_null(run, [])}
    write_run(run, "M", {"b_leakage_perm": [*seen_by_half(), line(1000, "seen", True, guards="in_order")]})
    after = {row.subject: row for row in by_null(run, [])}
    assert after["clean"] == replace(before["clean"], adjusted=after["clean"].adjusted)
    assert after["seen"].unguarded == before["seen"].unguarded
    assert after["seen"].share == before["seen"].share
    assert (after["seen"].flags.n, after["seen"].flags.n_flagged) == (41, 21)
    assert after["seen"].pvalue == pytest.approx(binom.sf(20, 41, 1 / 24))


def test_the_same_audit_has_the_same_pvalues_in_both_commands(tmp_path) -> None:
    docs = [row(i, subject="s") for i in range(12)]
    lines = [audited(doc, i < 3, guards="in_order" if i < 2 else "", **RANDOM) for i, doc in enumerate(docs)]
    lines += [audited(row(12 + i, subject="s"), True, null_rate=0.5, pvalue=0.5, **RANDOM) for i in range(3)]
    write_run(tmp_path, "m", {"bench_leakage_perm": lines})
    (annotated,) = annotate([tmp_path])[0].rows
    whole, subject = by_null(tmp_path, [])
    assert whole.pvalue == subject.pvalue == columns.PVALUE_ALL.of(annotated)
    assert whole.unguarded.pvalue == subject.unguarded.pvalue == columns.PVALUE_UNGUARDED.of(annotated)
    assert columns.PVALUE_ALL.of(annotated) < columns.PVALUE_UNGUARDED.of(annotated)
    counts = annotated.values["n_pvalue"], annotated.values["n_pvalue_unguarded"]
    assert counts == (whole.flags.n, whole.unguarded.n) == (15, 13)


def test_a_subject_of_five_questions_has_a_pvalue_and_no_share(tmp_path) -> None:
    lines = [line(i, "few" if i < 5 else "many", True) for i in range(25)]
    write_run(tmp_path, "m", {"bench_leakage_perm": lines})
    rows = {one.subject: one for one in by_null(tmp_path, [])}
    assert rows["few"].pvalue == pytest.approx(binom.sf(4, 5, 1 / 24))
    assert math.isnan(rows["few"].share.low)
    assert rows["many"].share.low > 0.5
    said = list(notes(list(rows.values())))
    assert said[0].startswith("no share of seen questions is given for few: it takes at least 10 tested questions")
    assert "only a lower bound" in said[1]
