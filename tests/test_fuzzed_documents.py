"""A small part of what `make faults` tries."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import islice

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.questions.fields import read_keys
from tests.fuzzed_documents import documents, read_all


@hypothesis.settings(max_examples=8)
@given(st.integers(0, 10**9))
def test_a_hostile_row_affects_no_other(seed: int) -> None:
    read_all(islice(documents(random.Random(seed)), 4))


def test_the_documents_are_questions_often_enough_to_try_guards_and_probes() -> None:
    counts = read_all(islice(documents(random.Random(1)), 12))
    assert counts["questions"] > 5
    assert counts["refused"] > 5


@hypothesis.settings(max_examples=50)
@given(st.integers(0, 10**9))
def test_the_right_answers_of_hostile_files_are_read_or_refused_in_words(seed: int) -> None:
    with suppress(ValueError):
        read_keys(list(islice(documents(random.Random(seed)), 4)))
