"""Orders that follow a pattern: no flag, no accuracy without flagged questions and no clean set rests on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.clean_sets import clean_sets
from lm_eval_leakage.results.columns import ACCURACY_UNFLAGGED, FLAGGED, FLAGGED_UNGUARDED
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.verdict_texts import summarise_verdict
from lm_eval_leakage.results.verdicts import PATTERN
from tests.results.harness_files import answered, audited, row, write_run

N = 30
DOCS = [row(number) for number in range(N)]


@pytest.mark.parametrize("status", [OrderStatus.PATTERNED, OrderStatus.UNDECIDED])
def test_flags_of_patterned_orders_are_withheld_with_all_that_rests_on_them(tmp_path: Path, status: str) -> None:
    lines = [answered(number, doc, number % 2 == 0) for number, doc in enumerate(DOCS)]
    audits = [audited(doc, number < 10, published_orders=status) for number, doc in enumerate(DOCS)]
    write_run(tmp_path, "m", {"bench": lines, "bench_leakage_perm": audits})
    (annotation,) = annotate([tmp_path])
    (row, *_) = annotation.rows
    is_patterned = status == OrderStatus.PATTERNED
    for column in (FLAGGED, FLAGGED_UNGUARDED, ACCURACY_UNFLAGGED):
        assert bool(column.of(row)) != is_patterned
    assert ("flagged" in summarise_verdict(row).figures) != is_patterned
    assert {audited_question.reason for audited_question in annotation.audited_questions} == {
        PATTERN if is_patterned else None
    }
    assert row.accuracy.value == 0.5
    (clean,) = clean_sets([annotation])
    assert len(clean.kept) == (0 if is_patterned else N - 10)
    assert clean.why_untested == (PATTERN if is_patterned else "")
