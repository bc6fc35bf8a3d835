from __future__ import annotations

import math

import pytest

from lm_eval_leakage.stats.known_scores import CALIBRATED_ROWS, Calibrated

ROWS = {row.name: row.compute for row in CALIBRATED_ROWS}


def verdicts(n: int, n_flagged: int, of_seen: tuple[int, int] = (80, 100)) -> list[Calibrated]:
    return [Calibrated(i < n_flagged, 0.01 if i < n_flagged else 0.9, 0.05, of_seen, (5, 100)) for i in range(n)]


@pytest.mark.parametrize("name", ["identified_rate", "prevalence", "prevalence_low", "prevalence_high"])
def test_five_questions_have_no_set_and_no_prevalence(name) -> None:
    assert math.isnan(ROWS[name](verdicts(5, 2)))
    assert 0 <= ROWS[name](verdicts(40, 20)) <= 1


def test_without_ten_known_seen_questions_the_prevalence_is_unknown() -> None:
    assert math.isnan(ROWS["prevalence"](verdicts(40, 20, (9, 9))))
