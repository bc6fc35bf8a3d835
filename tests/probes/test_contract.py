"""The contract of every probe; a new probe is covered without an edit here."""

from __future__ import annotations

import pytest

from lm_eval_leakage.detectors import probes
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
