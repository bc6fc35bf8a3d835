from __future__ import annotations

import math

from lm_eval_leakage.harness import rows
from lm_eval_leakage.harness.logged_verdict import LoggedVerdict
from lm_eval_leakage.harness.row_values import ROWS
from lm_eval_leakage.records import Skipped
from lm_eval_leakage.statistics.max_order import MaxOrderEvidence

FLAGGED = MaxOrderEvidence(True, 1 / 6, 1 / 6, margin=2.0, best_order=0, n_orders=6)
NOT_FLAGGED = MaxOrderEvidence(False, 20 / 24, 1 / 24, margin=-3.0, best_order=7, n_orders=24)
VERDICTS = [FLAGGED, Skipped("why"), NOT_FLAGGED, FLAGGED]


def test_rows_of_a_small_data_set() -> None:
    assert rows.flagged_rate(VERDICTS) == 2 / 3
    assert math.isclose(rows.flagged_rate_stderr(VERDICTS), math.sqrt(2 / 3 * 1 / 3 / 2))
    assert math.isclose(rows.null_rate(VERDICTS), (2 / 6 + 1 / 24) / 3)
    by_hand = (1 / 6) ** 2 + 2 * (1 / 6) * (5 / 6) * (1 / 24)
    assert math.isclose(rows.dataset_pvalue(VERDICTS), by_hand)
    assert rows.skipped(VERDICTS) == 1


def test_the_rows_are_registered_with_the_harness() -> None:
    from lm_eval.api.registry import get_aggregation, get_metric, get_metric_aggregation, is_higher_better

    for row in ROWS:
        name = row.__name__
        assert get_metric(name) is get_aggregation(name) is get_metric_aggregation(name) is row
        assert is_higher_better(name) is False


def test_an_undefined_number_of_a_question_is_none_in_its_line() -> None:
    evidence = MaxOrderEvidence(
        flagged=False, pvalue=math.nan, null_rate=0.5, margin=math.inf, best_order=0, n_orders=2
    )
    line = dict.copy(LoggedVerdict(evidence, (), ["null_rate"]))
    assert (line["pvalue"], line["margin"], line["null_rate"]) == (None, None, 0.5)
