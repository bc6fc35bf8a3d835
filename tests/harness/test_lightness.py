"""What an audit costs beside the model, counted: digests, rows read."""

from __future__ import annotations

from collections import Counter

import pytest

from lm_eval_leakage.harness.models import backend_answers
from lm_eval_leakage.harness.tasks.data import docs_of
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import UntestableQuestion
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import GOOD, ONE, TWINS, evaluate

MANY = [
    GOOD | {"question": f"{number} stem", "choices": [f"{letter}{number} option" for letter in "wxyz"]}
    for number in range(5)
]


class Reporting(FakeLM):
    """Reports each answer, as backends do."""

    def loglikelihood(self, requests):
        answers = [(by_hash(*request.args), False) for request in requests]
        for request, answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
        return answers


@pytest.fixture
def questions_file(questions_file):
    """Without the control form, so that the numbers of requests are those of the orders."""
    return lambda docs: questions_file(docs) | {"control_form": False}


def test_a_request_has_its_digest_made_once_before_it_is_sent_and_once_as_it_is_answered(
    questions_file, monkeypatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(
        backend_answers,
        "request_key",
        lambda *args, make=backend_answers.request_key: made.append(args) or make(*args),
    )
    evaluate(Reporting(by_hash), questions_file(MANY))
    assert set(Counter(map(repr, made)).values()) == {2}


# ---------------------------------------------------------------------- rows


def test_a_row_is_taken_out_of_its_table_and_read_only_once() -> None:
    taken, read = Counter(), Counter()

    class Table(list):
        def __iter__(self):
            for number in range(len(self)):
                taken[number] += 1
                yield self[number]

    def reading(doc):
        read[doc["question"]] += 1
        return question_from_doc(doc)

    docs = docs_of(Table([GOOD, ONE | {"choices": []}, TWINS]), reading)
    assert docs[1] is [*docs][1]
    assert docs[-1] == TWINS
    assert [doc["question"] for doc in docs[:2]] == [GOOD["question"], ONE["question"]]
    assert set(taken.values()) == {1}
    assert all(doc.reading is doc.reading for doc in docs)
    assert isinstance(docs[1].reading, UntestableQuestion)
    assert set(read.values()) == {1}
    assert list(docs.features) == list(GOOD)
    with pytest.raises(IndexError):
        docs[3]
