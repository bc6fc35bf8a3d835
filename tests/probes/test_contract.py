"""What every probe promises; a new probe is covered without an edit here."""

from __future__ import annotations

import sys

import pytest

from lm_eval_leakage.probes import probes
from lm_eval_leakage.records import Question

QUESTION = Question("q", "Which?", ("red", "green", "blue", "grey", "teal", "pink"), answer=1)


@pytest.mark.parametrize("name", probes.names())
def test_requests_are_deterministic(name: str) -> None:
    assert probes.get(name)().requests(QUESTION) == probes.get(name)().requests(QUESTION)


@pytest.mark.parametrize("name", probes.names())
def test_request_0_is_the_published_wording(name: str) -> None:
    first = probes.get(name)().requests(QUESTION)[0]
    text = first.context + first.continuation
    places = [text.index(part) for part in (QUESTION.stem, *QUESTION.options)]
    assert places == sorted(places)


@pytest.mark.parametrize("name", probes.names())
def test_the_module_names_its_null_hypothesis_limits_and_source(name: str) -> None:
    described = sys.modules[probes.get(name).__module__].__doc__ or ""
    assert all(word in described for word in ("Null hypothesis", "Limits", "Source"))
