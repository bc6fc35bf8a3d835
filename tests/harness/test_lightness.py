"""What an audit costs beside the model, counted: bytes per request, digests, texts rendered, rows read."""

from __future__ import annotations

import gc
import json
import logging
import pickle
import tracemalloc
from collections import Counter
from itertools import pairwise

import pytest
from lm_eval.api.instance import Instance
from lm_eval.loggers import EvaluationTracker

from lm_eval_leakage.detectors.option_orders import OptionOrders
from lm_eval_leakage.harness.finished_results import FinishedSamples
from lm_eval_leakage.harness.models import backend_answers
from lm_eval_leakage.harness.models.portions import PairsOf
from lm_eval_leakage.harness.models.question_requests import Broken, Logged, QuestionRequests
from lm_eval_leakage.harness.seams.results import harness_line
from lm_eval_leakage.harness.tasks.data import KeptDocs
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import Skipped, TokenScores, UntestableQuestion
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import GOOD, ONE, TASK, TWINS, evaluate

N_QUESTIONS, N_ORDERS = 40, 24
MANY = [
    GOOD
    | {"question": f"{number} " + "stem " * 50, "choices": [f"{letter}{number} " + "option " * 5 for letter in "wxyz"]}
    for number in range(N_QUESTIONS)
]


class Reporting(FakeLM):
    """Reports each answer, as backends do, and looks at the memory when it is called and before it returns."""

    def __init__(self) -> None:
        super().__init__(by_hash)
        self.traced: list[int] = []

    def loglikelihood(self, requests):
        self.traced.append(tracemalloc.get_traced_memory()[0])
        for request in requests:
            self.cache_hook.add_partial("loglikelihood", request.args, (by_hash(*request.args), False))
        self.traced.append(tracemalloc.get_traced_memory()[0])
        return [(by_hash(*request.args), False) for request in requests]


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
    evaluate(Reporting(), questions_file(MANY[:5]))
    assert set(Counter(map(repr, made)).values()) == {2}


@pytest.mark.parametrize(("level", "most"), [(logging.WARNING, 9), (logging.INFO, 10)])
def test_the_texts_of_a_question_are_rendered_at_most_nine_times_and_once_more_to_announce_them(
    questions_file, monkeypatch, tmp_path, caplog, level: int, most: int
) -> None:
    caplog.set_level(level, "lm_eval")
    rendered: Counter[str] = Counter()
    render = OptionOrders.requests
    monkeypatch.setattr(
        OptionOrders, "requests", lambda self, question: rendered.update([question.id]) or render(self, question)
    )
    tracker = EvaluationTracker(output_path=str(tmp_path))
    results = evaluate(Reporting(), questions_file(MANY[:5]), evaluation_tracker=tracker)
    tracker.save_results_aggregated(results, results["samples"])
    tracker.save_results_samples(TASK, results["samples"][TASK])
    # built; estimated; its keys; twice by the model; its verdict; a line for each of two statistics, the first twice
    assert max(rendered.values()) <= most


def test_nothing_stays_left_out_of_the_search_for_garbage(questions_file) -> None:
    evaluate(FakeLM(by_hash), questions_file([GOOD]))
    assert gc.get_freeze_count() == 0

    class Broken(FakeLM):
        def loglikelihood(self, requests):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(Broken(by_hash), questions_file([GOOD]))
    assert gc.get_freeze_count() == 0


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

    docs = KeptDocs(Table([GOOD, ONE | {"choices": []}, TWINS]), reading)
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


# ---------------------------------------------------------------------- requests


def asked(n_requests: int, method: str = "loglikelihood", skipped: Skipped | None = None) -> QuestionRequests:
    texts = [("Which?", f" {number}") for number in range(n_requests)]
    return QuestionRequests({}, ("task", 0, 1), texts, method, None, skipped, lambda: [*texts])


@pytest.mark.parametrize("n_requests", [1, 11, 12, 60])
def test_texts_are_the_same_whether_they_are_kept_or_rendered_again(n_requests: int) -> None:
    first, second = asked(n_requests), asked(n_requests)
    for own in (first, second, first):
        assert [instance.args for instance in own.instances()] == [("Which?", f" {n}") for n in range(n_requests)]
        assert own.instances()[-1].arguments == ("Which?", f" {n_requests - 1}")


def test_the_length_of_texts_is_known_without_rendering_them() -> None:
    texts = [("Which?", "n" * n) for n in range(12)]
    own = QuestionRequests({}, ("task", 0, 1), texts, "loglikelihood", None, None, fail)
    assert [*PairsOf(own.instances()).n_characters()] == [6 + n for n in range(12)]
    assert [*PairsOf([Instance("loglikelihood", {}, ("ab", "c"), 0)]).n_characters()] == [3]


def fail() -> list[tuple[str, str]]:
    raise AssertionError("the texts are rendered")


def test_an_answer_takes_the_place_of_a_broken_one_and_of_another() -> None:
    own = asked(3)
    assert [own.answer(place) for place in range(3)] == [None, None, None]
    own.take(1, Broken("no number"))
    own.take(0, (-1.5, True))
    assert [own.answer(place) for place in range(3)] == [(-1.5, True), Broken("no number"), None]
    assert repr(own.responses) == "[(-1.5, True), (nan, False), (nan, False)]"
    own.take(1, (-2.5, False))
    own.take(0, (-3.5, False))
    assert own.responses[:2] == [(-3.5, False), (-2.5, False)]


def test_texts_and_scores_of_tokens_are_kept_as_they_are() -> None:
    generated, scored = asked(2, "generate_until"), asked(1, "token_scores")
    generated.take(1, "a text")
    scores = TokenScores((-1.0, -2.0), (0.0, 0.0), (1.0, 1.0))
    scored.take(0, scores)
    assert generated.responses == ["", "a text"]
    assert (scored.answer(0), scored.responses) == (scores, [(-3.0, False)])


def test_another_process_gets_only_what_is_logged() -> None:
    own = asked(12)
    own.take(3, (-1.0, False))
    sent = pickle.loads(pickle.dumps([own, own]))
    assert isinstance(sent[0], Logged)
    assert sent[0] is sent[1]
    assert (sent[0].arguments, repr(sent[0].responses)) == (own.arguments, repr(own.responses))


# ---------------------------------------------------------------------- samples


def test_samples_that_are_finished_when_they_are_read_are_a_list(questions_file) -> None:
    samples = evaluate(FakeLM(by_hash), questions_file([GOOD, ONE]))["samples"][TASK]
    assert isinstance(samples, FinishedSamples)
    plain = [*samples]
    assert samples == plain
    assert plain == samples
    assert len(samples) == len(plain) == 4
    assert (samples[-1], samples[1:3], samples.copy()) == (plain[-1], plain[1:3], plain)
    assert type(pickle.loads(pickle.dumps(samples))) is list
    assert json.dumps(samples) == json.dumps(plain)
    assert all(one["arguments"] for one in samples)
    assert any(len(first["arguments"]) != len(second["arguments"]) for first, second in pairwise(samples))


def test_a_line_is_the_same_whoever_writes_it(questions_file, tmp_path) -> None:
    odd = GOOD | {
        "question": 'Which "one"\\ is\tit,\u2028 Ärger, 中文?',
        "choices": ["a\n", "b", "\U0001f98a", "d\x7f"],
    }
    results = evaluate(FakeLM(by_hash), questions_file([GOOD, ONE, TWINS, odd]))
    samples = results["samples"][TASK]
    tracker = EvaluationTracker(output_path=str(tmp_path))
    tracker.save_results_aggregated(results, results["samples"])
    EvaluationTracker.save_results_samples.__wrapped__(tracker, TASK, [*samples])
    (log,) = tmp_path.rglob("samples_*.jsonl")
    assert log.read_bytes() == "".join(map(harness_line, samples)).encode()


def test_the_lines_of_a_harness_that_writes_differently_are_all_its_own(questions_file, tmp_path, monkeypatch) -> None:
    results = evaluate(FakeLM(by_hash), questions_file([GOOD, TWINS]))
    tracker = EvaluationTracker(output_path=str(tmp_path))
    tracker.save_results_aggregated(results, results["samples"])
    monkeypatch.setattr("lm_eval.loggers.evaluation_tracker.sanitize_list", lambda values: "other")
    tracker.save_results_samples(TASK, results["samples"][TASK])
    (log,) = tmp_path.rglob("samples_*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["resps"] for line in lines] == ["other"] * 4
    assert [line["doc_id"] for line in lines] == [0, 1, 0, 1]
