"""The contract of every statistic, on requests of its own probe; a new audit is covered without an edit here."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_leakage.detectors import probes, statistics
from lm_eval_leakage.detectors.option_orders import OrderStatistic
from lm_eval_leakage.harness.tasks.audit import template
from lm_eval_leakage.harness.tasks.templates import suffixes
from lm_eval_leakage.logs.audit_line import CORE, OF_HARNESS, written_line
from lm_eval_leakage.records import Answered, Evidence, Measurement, Question, Request, TokenScores
from lm_eval_leakage.stats.order_scores import OrderScores

AUDITS = [
    (template(suffix)["metadata"]["probe"], pipeline["filter"][0]["statistic"])
    for suffix in suffixes()
    for pipeline in template(suffix)["filter_list"]
]
every_audit = pytest.mark.parametrize(("probe", "name"), sorted(set(AUDITS)))
of_orders = pytest.mark.parametrize(
    "name", [name for name in statistics.names() if issubclass(statistics.get(name), OrderStatistic)]
)
QUESTIONS = [
    Question(f"q{i}", f"What is the colour of {i}?", tuple(f"hue {i} {j}" for j in range(3 + i % 3)), answer=i % 3)
    for i in range(9)
]


def tokens(rng: np.random.Generator) -> TokenScores:
    return TokenScores(
        *(tuple(column) for column in (rng.normal(-3, 1, 12), rng.normal(-3, 1, 12), rng.uniform(1, 2, 12)))
    )


def written(request: Request, rng: np.random.Generator) -> str:
    return request.continuation if rng.random() < 0.5 else "something else"


def reworded(question: Question) -> tuple[str, ...]:
    return question.stem, f"{question.stem[:-1]}, please?", f"Say: {question.stem}"


def answered(probe: str, seed: int) -> list[Answered]:
    rng = np.random.default_rng(seed)
    asking = probes.get(probe)().with_pool(lambda: QUESTIONS).with_wordings(reworded)
    asked = [(question, asking.requests(question)) for question in QUESTIONS]
    return [
        Answered(
            question,
            requests,
            tuple(rng.normal(-50, 3, len(requests)).tolist()),
            asking.gold(question),
            tuple(tokens(rng) for _ in requests) if asking.needs == "token_scores" else (),
            tuple(written(request, rng) for request in requests) if asking.needs == "generate_until" else (),
            fixed_places=asking.fixed_places(question),
            candidates=asking.candidates(question),
        )
        for question, requests in asked
    ]


def test_every_statistic_belongs_to_an_audit() -> None:
    assert {name for _, name in AUDITS} == set(statistics.names())


@every_audit
@settings(max_examples=10)
@given(st.integers(0, 10_000), st.randoms())
def test_the_order_in_which_questions_arrive_does_not_matter(probe: str, name: str, seed: int, random) -> None:
    judge = statistics.get(name)().judge
    asked = answered(probe, seed)
    order = list(range(len(asked)))
    random.shuffle(order)
    forward = judge(asked, "cpu")
    assert list(judge([asked[i] for i in order], "cpu")) == [forward[i] for i in order]


@every_audit
def test_every_statistic_prints_the_rows_that_it_declares(probe: str, name: str) -> None:
    verdicts = statistics.get(name)().judge(answered(probe, 1), "cpu")
    printed = [row.name for row in statistics.get(name).rows if math.isfinite(row.compute(verdicts))]
    assert printed
    if not any(isinstance(verdict, Measurement) for verdict in verdicts):
        assert "null_rate" in printed
        assert {"flagged_rate", "guess_hits"} & set(printed)


OF_EVIDENCE = {
    "flagged",
    "pvalue",
    "null_rate",
}  # fields of every evidence; the log's keys of the same names hold them


@every_audit
def test_no_value_or_row_uses_a_log_key_that_has_another_meaning(probe: str, name: str) -> None:
    taken = {*CORE, *OF_HARNESS}
    for verdict in statistics.get(name)().judge(answered(probe, 0), "cpu"):
        own = {field.name for field in fields(verdict)}
        assert own & taken == (OF_EVIDENCE if isinstance(verdict, Evidence) else set())
    assert {row.name for row in statistics.get(name).rows} & taken <= {"null_rate"}


@every_audit
def test_rates_are_rates_and_scores_that_rank_questions_are_numbers_in_the_log_line(probe: str, name: str) -> None:
    for verdict in statistics.get(name)().judge(answered(probe, 0), "cpu"):
        if isinstance(verdict, Evidence):
            assert 0 <= verdict.null_rate <= 1
            assert 0 < verdict.pvalue <= 1
        line = written_line(verdict, benchmark="b", detector=name)
        assert all(isinstance(line[key], (int, float, bool)) for key in str(line["ranks_by"]).split(","))


@of_orders
@settings(max_examples=20)
@given(st.integers(0, 10_000), st.floats(0.01, 50))
def test_a_higher_statistic_always_means_more_leakage(name: str, seed: int, boost: float) -> None:
    judge = statistics.get(name)()
    rng = np.random.default_rng(seed)
    rows = [rng.normal(-50, 3, rng.choice([6, 12, 24, 120])).tolist() for _ in range(12)]
    before = [[max(row) + 0.01, *row[1:]] for row in rows]
    after = [[published + boost, *others] for published, *others in before]
    for weaker, stronger in zip(
        judge(OrderScores.from_rows(before)), judge(OrderScores.from_rows(after)), strict=True
    ):
        assert stronger.statistic >= weaker.statistic
        assert stronger.pvalue <= weaker.pvalue + 1e-12
        assert stronger.flagged >= weaker.flagged
