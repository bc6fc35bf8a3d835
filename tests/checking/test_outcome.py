from __future__ import annotations

import pytest

from lm_eval_leakage.jobs.outcome import checked_task, told
from lm_eval_leakage.results.page import deciding_cell
from tests.report.made import row, verdict


@pytest.mark.parametrize("pvalue", [0.57, 0.003, 1e-9])
def test_screen_sentence_table_and_json_tell_the_same_pvalue_in_the_same_words(pvalue: float) -> None:
    adjusted = min(1.0, 2 * pvalue)
    judged = row(verdict=verdict(pvalue, adjusted=adjusted, n_together=2))
    words = f"p = {pvalue:.2g}, {adjusted:.2g} after adjustment for 2 verdicts"
    record = checked_task(judged)
    for sentence in (told(record), record.summary, record.sentence, judged.verdict.sentence):
        assert words in sentence
    assert deciding_cell(judged).in_line == words.replace(",", "")
    assert (record.pvalue, record.pvalue_adjusted, record.n_adjusted) == (pvalue, adjusted, 2)
