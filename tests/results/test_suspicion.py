from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from lm_eval_leakage.results.rows import adjusted_rows
from lm_eval_leakage.results.tables import benchmarks, by_suspicion, suspicion
from lm_eval_leakage.results.verdict import NOT_AUDITED, DataVerdict
from lm_eval_leakage.results.verdict_words import sentence_of
from lm_eval_leakage.stats.order_sum import OrderRatio
from tests.report.made import UNDECIDED, row, verdict


def test_verdicts_sort_by_word_then_pvalue_then_ratio_and_none_comes_last() -> None:
    ordered = (
        verdict(1e-9),
        verdict(2e-5),
        verdict(0.003),
        verdict(0.2),
        verdict(0.7),
        replace(UNDECIDED, ratio=OrderRatio(60, 3.0, 2.5)),
        UNDECIDED,
        replace(UNDECIDED, ratio=OrderRatio(3)),
        NOT_AUDITED,
    )
    for given_order in permutations(ordered, 3):
        places = [ordered.index(verdict) for verdict in sorted(given_order, key=suspicion)]
        assert places == sorted(places)


def test_groups_and_tasks_of_no_group_are_benchmarks_and_members_are_none() -> None:
    rows = [
        row("mmlu", "group"),
        row("mmlu", "group", metric="acc_norm,none"),
        row("mmlu_anatomy", group="mmlu"),
        row("mmlu_anatomy/bones", "subject", group="mmlu"),
        row("arc"),
        row("arc", n_shot="5"),
        row("arc/x", "subject"),
        row("arc", model="other"),
    ]
    assert benchmarks(rows) == [rows[place] for place in (0, 4, 5, 7)]


def test_a_group_keeps_its_parts_and_they_are_sorted_within_it() -> None:
    rows = [
        row("g", "group", verdict=verdict(0.003)),
        row("g_in", "group", group="g", verdict=verdict(0.5)),
        row("g_a", group="g", verdict=verdict(0.9)),
        row("g_a/s", "subject", group="g", verdict=verdict(0.6)),
        row("g_a/t", "subject", group="g", verdict=verdict(0.1)),
        row("g_b", group="g", verdict=verdict(2e-5)),
        row("alone", verdict=verdict(1e-6)),
        row("alone", metric="acc_norm,none", verdict=verdict(1e-6)),
        row("tokens"),
    ]
    names = [row_of_group.task for row_of_group in by_suspicion(rows)]
    assert names == ["alone", "alone", "g", "g_in", "g_b", "g_a", "g_a/t", "g_a/s", "tokens"]


def test_adjusted_pvalues_decide_the_word_across_models() -> None:
    def judged(*pvalues: float) -> list[DataVerdict]:
        rows = [row(model=f"M{place}", verdict=verdict(pvalue)) for place, pvalue in enumerate(pvalues)]
        return [row.verdict for row in adjusted_rows(rows)]

    assert [verdict.word for verdict in judged(0.004)] == ["evidence"]
    assert [verdict.word for verdict in judged(1e-6, 0.02)] == ["strong evidence", "none found"]
    together = judged(*[0.004] * 5)
    assert {row.word for row in together} == {"none found"}
    assert "p = 0.004, 0.02 after adjustment for 5 verdicts" in sentence_of(together[0])
    looked = adjusted_rows(
        [row("a", verdict=verdict(0.004, look=1, spent=0.75)), row("b", verdict=verdict(0.0001, look=2, spent=0.1))]
    )
    assert [verdict.verdict.adjusted for verdict in looked] == pytest.approx([0.004 / 0.75, 2 * 0.001])
    assert [verdict.verdict.level for verdict in looked] == pytest.approx([0.01 * 0.75, 0.01 * 0.1])
