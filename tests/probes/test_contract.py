"""The contract of every probe; a new probe is covered without an edit here."""

from __future__ import annotations

import re

import pytest

from lm_eval_leakage.detectors import probes
from lm_eval_leakage.detectors.choice_confusion import ChoiceConfusion, PairedAccuracy
from lm_eval_leakage.detectors.guesses import PublishedGuess
from lm_eval_leakage.detectors.option_orders import OptionOrders
from lm_eval_leakage.detectors.option_recall import MaskedOption, MaskedOptionWritten
from lm_eval_leakage.detectors.outlier import Outlier
from lm_eval_leakage.detectors.reproduction import Reproduction
from lm_eval_leakage.detectors.shared_likelihood import ExampleOrder, SharedLikelihood
from lm_eval_leakage.detectors.tail_answered import QuestionTail
from lm_eval_leakage.detectors.token_evidence import TokenEvidence
from lm_eval_leakage.detectors.wording_rank import Wordings
from lm_eval_leakage.records import Question

QUESTION = Question("q", "Which colour of these is it?", ("red", "green", "blue", "grey", "teal", "pink"), answer=1)
POOL = [Question(str(i), "What else?", (f"this {i}", f"that {i}"), answer=0) for i in range(9)]


def probe(name: str):
    asking = probes.get(name)().with_pool(lambda: [QUESTION, *POOL])
    return asking.with_wordings(lambda question: (question.stem, f"Say: {question.stem}"))


@pytest.mark.parametrize("name", probes.names())
def test_requests_are_deterministic(name: str) -> None:
    assert probe(name).requests(QUESTION) == probe(name).requests(QUESTION)


@pytest.mark.parametrize("name", probes.names())
def test_request_0_is_the_published_wording(name: str) -> None:
    first = probe(name).requests(QUESTION)[0]
    parts = (QUESTION.stem, *QUESTION.options)
    whole = first.context + first.continuation

    def in_order(text: str) -> bool:
        places = [place for part in parts if (place := text.find(part)) >= 0]
        return places[:1] == [text.find(QUESTION.stem)] and places == sorted(places)

    assert in_order(whole) or in_order(first.context)  # the requested option may be hidden in its place
    # a probe may ask about one option at a time; one of wordings shows none, so that no other draw matters
    assert sum(part in whole for part in parts) >= 1 + (not probes.get(name).needs_seal)


@pytest.mark.parametrize("name", probes.names())
def test_fixed_places_are_one_per_request_and_most_in_the_published_order(name: str) -> None:
    fixed = probe(name).fixed_places(QUESTION)
    assert len(fixed) in (0, len(probe(name).requests(QUESTION)))
    assert not fixed or fixed[0] == len(QUESTION.options) > max(fixed[1:])


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
