"""The contracts of every probe and statistic; a new one is covered without an edit here."""

from __future__ import annotations

import math
import re
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_leakage.detectors import Probe, probes, statistics
from lm_eval_leakage.detectors.choice_confusion import ChoiceConfusion, PairedAccuracy
from lm_eval_leakage.detectors.completions import Reproduction
from lm_eval_leakage.detectors.guesses import PublishedGuess
from lm_eval_leakage.detectors.masked_option import MaskedOption, MaskedOptionWritten
from lm_eval_leakage.detectors.membership import TokenEvidence
from lm_eval_leakage.detectors.option_orders import OptionOrders, OrderStatistic
from lm_eval_leakage.detectors.outlier import Outlier
from lm_eval_leakage.detectors.shared_likelihood import ExampleOrder, SharedLikelihood
from lm_eval_leakage.detectors.tail_answered import QuestionTail
from lm_eval_leakage.detectors.wording_rank import Wordings
from lm_eval_leakage.harness.tasks.audit import template_settings
from lm_eval_leakage.harness.tasks.templates import suffixes
from lm_eval_leakage.logs.audit_line import CORE, OF_HARNESS, written_line
from lm_eval_leakage.records import Answered, Evidence, FillerAnswers, Measurement, Question, Request, TokenScores
from lm_eval_leakage.stats.order_scores import OrderScores
from tests.word_problems import road

AUDITS = [
    (template_settings(suffix)["metadata"]["probe"], pipeline["filter"][0]["statistic"])
    for suffix in suffixes()
    for pipeline in template_settings(suffix)["filter_list"]
]
every_audit = pytest.mark.parametrize(("probe", "name"), sorted(set(AUDITS)))
of_orders = pytest.mark.parametrize(
    "name", [name for name in statistics.names() if issubclass(statistics.get(name), OrderStatistic)]
)
QUESTIONS = [
    Question(
        f"q{i}",
        f"What is the colour of {road(i)} to {name}?",
        tuple(f"hue {i} {j}" for j in range(3 + i % 3)),
        answer=i % 3,
    )
    for i, name in enumerate(("Irene", "Hannah", "Sheila", "Susan", "Betty", "Julie", "Paula", "Janet", "Priya"))
]


def tokens(rng: np.random.Generator) -> TokenScores:
    return TokenScores(
        *(tuple(column) for column in (rng.normal(-3, 1, 12), rng.normal(-3, 1, 12), rng.uniform(1, 2, 12)))
    )


def written(request: Request, rng: np.random.Generator) -> str:
    return request.continuation if rng.random() < 0.5 else "something else"


def reworded(question: Question) -> tuple[str, ...]:
    return question.stem, f"{question.stem[:-1]}, please?", f"Say: {question.stem}"


def probe_of(name: str) -> Probe:
    return probes.get(name)().with_pool(lambda: QUESTIONS).with_wordings(reworded)


def fillers_of(probe: Probe, question: Question, rng: np.random.Generator) -> FillerAnswers:
    block = probe.block(question)
    assert block is not None
    layouts = tuple(tuple(rng.normal(-50, 3, len(block.fillers)).tolist()) for _ in probe.asked_layouts)
    return FillerAnswers(block.name, block.place, layouts, layouts=probe.asked_layouts)


def answered(probe: str, seed: int) -> list[Answered]:
    rng, asking = np.random.default_rng(seed), probe_of(probe)
    requests_of_questions = [(question, asking.requests(question)) for question in QUESTIONS]
    return [
        Answered(
            question,
            requests,
            tuple(rng.normal(-50, 3, len(requests)).tolist()),
            asking.gold(question),
            tuple(tokens(rng) for _ in requests) if asking.needs == "token_scores" else (),
            tuple(written(request, rng) for request in requests) if asking.needs == "generate_until" else (),
            candidates=asking.candidates(question),
            fillers=fillers_of(asking, question, rng) if asking.exchanges_fillers else None,
        )
        for question, requests in requests_of_questions
    ]


def test_every_statistic_belongs_to_an_audit() -> None:
    assert {name for _, name in AUDITS} == set(statistics.names())


@every_audit
@settings(max_examples=10)
@given(st.integers(0, 10_000), st.randoms())
def test_the_order_in_which_questions_arrive_does_not_matter(probe: str, name: str, seed: int, random) -> None:
    judge = statistics.get(name)().judge
    answers = answered(probe, seed)
    order = list(range(len(answers)))
    random.shuffle(order)
    forward = judge(answers, "cpu")
    assert list(judge([answers[i] for i in order], "cpu")) == [forward[i] for i in order]


@every_audit
def test_every_statistic_prints_the_rows_that_it_declares(probe: str, name: str) -> None:
    verdicts = statistics.get(name)().judge(answered(probe, 1), "cpu")
    printed = [row.name for row in statistics.get(name).rows if math.isfinite(row.compute(verdicts))]
    assert printed
    if not any(isinstance(verdict, Measurement) for verdict in verdicts):
        assert "null_rate" in printed
        assert {"flagged_rate", "guess_hits"} & set(printed)


OF_EVIDENCE = {"flagged", "pvalue", "null_rate"}  # fields of all evidence, under log keys of the same names


@every_audit
def test_no_value_or_row_uses_a_log_key_that_has_another_meaning(probe: str, name: str) -> None:
    taken = {*CORE, *OF_HARNESS}
    for verdict in statistics.get(name)().judge(answered(probe, 0), "cpu"):
        keys = {field.name for field in fields(verdict)}
        assert keys & taken == (OF_EVIDENCE if isinstance(verdict, Evidence) else set())
    assert {row.name for row in statistics.get(name).rows} & taken <= {"null_rate"}


@every_audit
def test_rates_are_rates_and_scores_that_rank_questions_are_numbers_in_the_log_line(probe: str, name: str) -> None:
    for verdict in statistics.get(name)().judge(answered(probe, 0), "cpu"):
        if isinstance(verdict, Evidence):
            assert 0 <= verdict.null_rate <= 1
            assert 0 < verdict.pvalue <= 1
        line = written_line(verdict, benchmark="b", detector=name)
        ranks_by = [key for key in str(line["ranks_by"]).split(",") if key]
        assert all(isinstance(line[key], (int, float, bool)) for key in ranks_by)


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


QUESTION = QUESTIONS[2]
every_probe = pytest.mark.parametrize("name", probes.names())


@every_probe
def test_requests_are_deterministic(name: str) -> None:
    assert probe_of(name).requests(QUESTION) == probe_of(name).requests(QUESTION)


@every_probe
def test_request_0_is_the_published_wording(name: str) -> None:
    first = probe_of(name).requests(QUESTION)[0]
    parts = (QUESTION.stem, *QUESTION.options)
    whole = first.context + first.continuation

    def in_order(text: str) -> bool:
        places = [place for part in parts if (place := text.find(part)) >= 0]
        return places[:1] == [text.find(QUESTION.stem)] and places == sorted(places)

    assert in_order(whole) or in_order(first.context)  # the requested option may be hidden in its place
    # a probe may ask about one option at a time; one of wordings shows none, so that no other draw matters, nor does
    # one of rows without options
    shows_none = probes.get(name).needs_seal or probes.get(name).exchanges_fillers
    assert sum(part in whole for part in parts) >= 1 + (not shows_none)


COUNT, SHARE = "it must be a whole number of at least", "it must be above 0 and at most"
PARAMETERS = [  # of probes and statistics: what is refused, and why
    (OptionOrders, "max_orders", [1, 0, -3, 2.5, "120", True, None], f"{COUNT} 2"),
    (OptionOrders, "orders", [1, 0, -2, 0.0, 1.5, float("nan"), "12", True], "give a whole number of at least 2, a"),
    (OptionOrders, "move", ["some"], "choose one of: all, movable"),
    (OptionOrders, "format", ["latex"], "choose one of: usual, papers"),
    (ExampleOrder, "shards", [1, "all"], f"{COUNT} 2"),
    (ExampleOrder, "examples", [1], f"{COUNT} 2"),
    (ExampleOrder, "permutations", [0], f"{COUNT} 1"),
    (ChoiceConfusion, "scope", ["world"], "choose one of: subject, all"),
    (ChoiceConfusion, "score", ["pixels"], "choose one of: own, letters, texts"),
    (QuestionTail, "words", [0], f"{COUNT} 1"),
    (Wordings, "stem_prefix", [3], "give a text"),
    (PublishedGuess, "chat_form", ["quiz"], "choose one of: next, pair"),
    (PublishedGuess, "shown", [-1], f"{COUNT} 0"),
    (PublishedGuess, "instruction", ["{{ first }}"], "its variables are question"),
    (MaskedOption, "instruction", ["{{ question", "{{ nothing }}"], "its variables are benchmark, mask, question"),
    (MaskedOption, "hides", ["all"], "choose one of: wrong, right, any"),
    (MaskedOptionWritten, "judge_prompt", ["{{ answer }}"], "its variables are question, option, written"),
    (Outlier, "delta", [0, 0.2, -0.5, -3, "-0.2", float("nan")], "scores of an outlier lie between -0.5 and 0"),
    (TokenEvidence, "k", [0, -1, 100.5, True, "20"], f"{SHARE} 100"),
    (SharedLikelihood, "level", [0, -0.1, 1.5, True, "0.05"], f"{SHARE} 1"),
    (Reproduction, "rouge", [0, 1.5, True], f"{SHARE} 1"),
    (Reproduction, "share", [0, 1.5, True], f"{SHARE} 1"),
    (PairedAccuracy, "reference", [-1.01, 1.01], "it is a difference of accuracies, so between -1 and 1"),
]


@pytest.mark.parametrize(
    ("kind", "name", "value", "rule"),
    [(kind, name, value, rule) for kind, name, values, rule in PARAMETERS for value in values],
)
def test_a_parameter_that_makes_no_sense_is_named_with_the_rule(kind, name: str, value: object, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name} is {value!r}") + ".*" + re.escape(rule)):
        kind(**{name: value})
