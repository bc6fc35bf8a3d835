"""Audits of the order of a benchmark's questions, through the harness."""

from __future__ import annotations

import json
import random

import pytest

from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import evaluate

DOCS = [{"question": f"Which is it, {i}?", "choices": ["red", "blue"], "answer": 0} for i in range(30)]
TASK = "fresh_leakage_shared_likelihood"
METADATA = {"shards": 10, "examples": 3, "permutations": 5}


def audit(lm: FakeLM, data: dict[str, str], limit: int | None = None, **metadata: object):
    results = evaluate(lm, METADATA | data | metadata, [TASK], limit=limit)
    return results["results"][TASK], results["samples"][TASK]


def text(first: int, size: int = 3) -> str:
    return "\n\n".join(f"Which is it, {i}?\nA. red\nB. blue" for i in range(first, first + size))


def test_a_model_that_saw_the_benchmark_in_its_order_is_found_and_one_without_memory_is_not(questions_file) -> None:
    seen = {text(first) for first in range(0, 30, 3)}
    lm = FakeLM(lambda context, text: -1.0 if text in seen else by_hash(context, text))
    row, samples = audit(lm, questions_file(DOCS), level=0.2)
    assert row["sample_len"] == 10
    assert row["flagged_rate,shared_likelihood"] == 1
    assert row["null_rate,shared_likelihood"] == pytest.approx(1 / 6)
    assert row["ttest_pvalue,shared_likelihood"] < 1e-6
    assert row["permutation_pvalue,shared_likelihood"] == pytest.approx(1e-5, abs=2e-5)
    assert row["order_gain,shared_likelihood"] > 9
    assert len(samples[0]["resps"]) == 6
    json.dumps(samples[0]["doc"])
    row, _ = audit(FakeLM(by_hash), questions_file(DOCS))
    assert row["permutation_pvalue,shared_likelihood"] > 0.01
    assert row["flagged_rate,shared_likelihood"] == 0


def test_a_shard_is_cut_to_the_models_window_and_its_size_is_reported(questions_file) -> None:
    n_words = len(text(0, 2).split())  # the fake's tokens are words; the window counts bytes first
    lm = FakeLM(by_hash, max_length=n_words)
    _, samples = audit(lm, questions_file(DOCS))
    assert {sample["n_examples"] for sample in samples} == {2}
    assert max(len(text.split()) for _, text in lm.requests) == n_words


def test_a_shard_of_which_no_two_examples_fit_is_skipped_with_the_reason(questions_file) -> None:
    long = [doc | {"question": doc["question"] + " word" * 40} if i < 3 else doc for i, doc in enumerate(DOCS)]
    row, samples = audit(FakeLM(by_hash, max_length=60), questions_file(long))
    assert row["skipped,shared_likelihood"] == 1
    assert "the model's window holds 60" in samples[0]["reason"]


def test_a_question_that_cannot_be_read_is_counted_with_its_reason(questions_file, caplog) -> None:
    broken = [*DOCS, {"question": "What?", "choices": [], "answer": 0}]
    audit(FakeLM(by_hash), questions_file(broken))
    assert "1 question(s) are in no shard: " in caplog.text


def test_too_few_questions_for_a_shard_are_an_error(questions_file) -> None:
    with pytest.raises(ValueError, match="1 readable question.* make no shard of 2"):
        audit(FakeLM(by_hash), questions_file(DOCS[:1]))


def test_questions_in_an_order_that_their_texts_show_are_reported_and_others_are_not(questions_file, caplog) -> None:
    names = [f"{number:02}" for number in range(30)]
    for order, is_reported in ((names, True), (random.Random(0).sample(names, 30), False)):
        docs = [DOCS[0] | {"question": f"Is it {name}?"} for name in order]
        caplog.clear()
        audit(FakeLM(by_hash), questions_file(docs))
        assert ("can be inferred from their texts, by alphabet" in caplog.text) == is_reported
