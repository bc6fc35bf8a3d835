"""Misbehaving backends and interrupted runs, through the harness's own `simple_evaluate`."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lm_eval.loggers import EvaluationTracker
from lm_eval.models.api_models import JsonChatStr

from lm_eval_leakage.harness.models.abilities import longer_than_window, n_tokens_of
from lm_eval_leakage.harness.models.asking import FIRST_PORTION, IN_A_ROW, checked_answer
from lm_eval_leakage.harness.models.question_requests import Broken
from lm_eval_leakage.harness.models.reporting import answers_reported
from lm_eval_leakage.records import TokenScores
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import FIVE, GOOD, TASK, TWINS, evaluate, lines

MARS = GOOD | {"question": "And on Mars?"}
DOCS = [GOOD, FIVE, TWINS, MARS]
N_REQUESTS = 24 + 120 + 12 + 24


class Named(FakeLM):
    """Created by name and arguments; reports answers as they come, like the backends of the harness."""

    made: list[Named]
    stops_after: int | None

    def __init__(self, pretrained: str = "a", **_: object) -> None:
        super().__init__(by_hash)
        self.made.append(self)

    def loglikelihood(self, requests):
        answers = []
        for request in requests:
            if len(self.requests) == self.stops_after:
                raise KeyboardInterrupt
            answers += super().loglikelihood([request])
            self.cache_hook.add_partial("loglikelihood", request.args, answers[-1])
        return answers


@pytest.fixture
def questions_file(questions_file):
    """Return settings without the control form, so that the numbers of requests are those of the orders."""
    return lambda docs: questions_file(docs) | {"control_form": False}


@pytest.fixture
def named(monkeypatch):
    Named.made, Named.stops_after = [], None
    monkeypatch.setattr("lm_eval.api.registry.get_model", lambda name: Named)
    return Named


def run(metadata, output: Path | None, arguments: str = "pretrained=a", **kwargs):
    tracker = EvaluationTracker(output_path=None if output is None else str(output))
    return evaluate("named", metadata, model_args=arguments, evaluation_tracker=tracker, **kwargs)


# ---------------------------------------------------------------------- resuming


def test_an_interrupted_run_resumes(named, questions_file, tmp_path, caplog) -> None:
    metadata = questions_file(DOCS)
    named.stops_after = 100
    with pytest.raises(KeyboardInterrupt):
        run(metadata, tmp_path)
    assert f"100 answers are saved in {tmp_path / 'leakage_answers'}" in caplog.text
    named.stops_after = None
    with caplog.at_level("INFO"):
        resumed = run(metadata, tmp_path, "pretrained=a,batch_size=7")  # the batch size does not affect answers
    assert f"resumed: 100 of {N_REQUESTS} requests were answered by an earlier run; the others' values may differ" in (
        caplog.text
    )
    assert len(named.made[-1].requests) == N_REQUESTS - 100
    assert resumed["samples"] == evaluate(FakeLM(by_hash), metadata)["samples"]


def test_equal_requests_are_sent_once(named, questions_file, tmp_path) -> None:
    first = run(questions_file([*DOCS, GOOD]), tmp_path)
    again = run(questions_file([*DOCS, GOOD]), tmp_path)
    assert [len(model.requests) for model in named.made] == [N_REQUESTS, 0]
    assert first["samples"] == again["samples"]


@pytest.mark.parametrize("arguments", ["pretrained=b", "pretrained=a,dtype=float16", "pretrained=a,revision=2"])
def test_answers_of_another_model_are_not_used(named, questions_file, tmp_path, arguments, caplog) -> None:
    run(questions_file([GOOD]), tmp_path)
    with caplog.at_level("INFO"):
        run(questions_file([GOOD]), tmp_path, arguments)
    assert [len(model.requests) for model in named.made] == [24, 24]
    is_reported = "has answers of another model, which are not used" in caplog.text
    assert is_reported == arguments.startswith("pretrained=a")  # for a model of another name nobody expects them


def test_answers_are_not_saved_if_not_wanted_or_without_an_output_path(named, questions_file, tmp_path) -> None:
    run(questions_file([GOOD]) | {"resume": False}, tmp_path)
    assert list(tmp_path.rglob("*.sqlite")) == []
    run(questions_file([GOOD]), None)
    with pytest.raises(ValueError, match="resume is 'no'; give true, or false"):
        run(questions_file([GOOD]) | {"resume": "no"}, tmp_path)


def test_a_model_given_as_an_object_without_weights_is_never_taken_for_another(questions_file, tmp_path) -> None:
    for _ in range(2):
        lm = FakeLM(by_hash)
        evaluate(lm, questions_file([GOOD]), evaluation_tracker=EvaluationTracker(output_path=str(tmp_path)))
        assert len(lm.requests) == 24


class Rounding(Named):
    """Values depend on what is computed together, as by rounding."""

    def computed_together(self, requests):
        return [slice(begin, min(begin + 50, len(requests))) for begin in range(0, len(requests), 50)]

    def loglikelihood(self, requests):
        answers = []
        for some in self.computed_together(requests):
            portion = requests[some]
            noise = by_hash("", "".join("".join(request.args) for request in portion)) % 0.1
            for request in portion:
                if len(self.requests) == self.stops_after:
                    raise KeyboardInterrupt
                ((value, greedy),) = FakeLM.loglikelihood(self, [request])
                answers.append((value + noise, greedy))
                self.cache_hook.add_partial("loglikelihood", request.args, answers[-1])
        return answers


@pytest.mark.parametrize("n_before", [0, 30, 50, 75, 179])
def test_after_a_kill_values_are_those_of_an_undisturbed_run(
    n_before, named, questions_file, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("lm_eval.api.registry.get_model", lambda name: Rounding)
    right = run(questions_file(DOCS), tmp_path / "right")
    Named.stops_after = n_before
    with pytest.raises(KeyboardInterrupt):
        run(questions_file(DOCS), tmp_path / "killed")
    Named.stops_after = None
    resumed = run(questions_file(DOCS), tmp_path / "killed")
    assert resumed["samples"] == right["samples"]
    assert len(named.made[-1].requests) == N_REQUESTS - n_before // 50 * 50


def test_what_was_asked_about_fewer_questions_is_not_asked_again(named, questions_file, tmp_path, monkeypatch) -> None:
    """Although nearly everything that is computed together lacks an answer."""
    monkeypatch.setattr("lm_eval.api.registry.get_model", lambda name: Rounding)
    docs = [doc | {"question": f"{number}: {doc['question']}"} for number in range(3) for doc in DOCS]
    for some in (docs[::3], docs):
        run(questions_file(some), tmp_path / "out")
    first, then = (made.requests for made in named.made[-2:])
    assert len(first) + len(then) == len({*first, *then}) == len(docs) / len(DOCS) * N_REQUESTS


def test_with_a_file_as_output_path_answers_are_saved_next_to_it(named, questions_file, tmp_path) -> None:
    run(questions_file([GOOD]), tmp_path / "results.json")
    assert list((tmp_path / "leakage_answers").glob("*.sqlite"))


# ---------------------------------------------------------------------- backends that misbehave


class Misbehaving(FakeLM):
    """Answers by `answer(requests, number of the call)`."""

    def __init__(self, answer) -> None:
        super().__init__(by_hash)
        self.answer, self.calls = answer, 0

    def loglikelihood(self, requests):
        self.calls += 1
        return self.answer(super().loglikelihood(requests), requests, self.calls)


def of_dawn(request) -> bool:
    return "dawn" in request.args[0]


def loses_dawn(answers, requests, _):
    return [answer for answer, request in zip(answers, requests, strict=True) if not of_dawn(request)]


def fails_on(word: str):
    def answer(answers, requests, _):
        if any(word in request.args[0] for request in requests):
            raise ArithmeticError(f"no {word} here")
        return answers

    return answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (loses_dawn, "the backend gave 0 answers to 120 requests, so they cannot be matched"),
        (fails_on("dawn"), "the backend failed on it (ArithmeticError('no dawn here'))"),
    ],
)
def test_a_question_on_which_the_backend_fails_is_the_only_one_skipped(questions_file, answer, reason) -> None:
    results = evaluate(Misbehaving(answer), questions_file(DOCS))
    assert results["results"][TASK]["skipped,max_order"] == 1
    assert [line["reason"] for line in lines(results, "max_order")] == [None, reason, None, None]
    sound = evaluate(FakeLM(by_hash), questions_file(DOCS))
    for filter_ in ("max_order", "outlier"):
        for mine, right in zip(lines(results, filter_), lines(sound, filter_), strict=True):
            assert mine["reason"] or mine["pvalue"] == right["pvalue"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda answers, *_: answers[:-1], "the backend gave 23 answers to 24 requests"),
        (lambda answers, *_: [*answers, answers[0]], "the backend gave 25 answers to 24 requests"),
        (lambda *_: None, "the backend gave 0 answers to 24 requests"),
    ],
    ids=["short", "long", "none"],
)
def test_a_list_that_cannot_be_matched_is_named(questions_file, answer, reason) -> None:
    results = evaluate(Misbehaving(answer), questions_file([GOOD, MARS]))
    assert results["results"][TASK]["skipped,max_order"] == 2
    assert all(line["reason"].startswith(reason) for line in lines(results, "max_order"))


@pytest.mark.parametrize(
    "bad",
    [
        *[None, "text", (-1.0,), ("-1", False), (0.1, True), (math.nan, False), (-1.0, "False")],
        *[(np.float32("nan"), False), (np.array([-1.0]), False), (-1.0, np.array([True, False]))],
    ],
)
def test_an_invalid_answer_skips_only_its_question(questions_file, bad) -> None:
    def spoils_one(answers, requests, _):
        first = next(index for index, request in enumerate(requests) if of_dawn(request))
        return [*answers[: first + 3], bad, *answers[first + 4 :]]

    results = evaluate(Misbehaving(spoils_one), questions_file(DOCS))
    first, dawn, *others = lines(results, "max_order")
    assert dawn["reason"].startswith("the backend answered request 3 ('\\nA. ")
    assert dawn["reason"].endswith(("it must be a log-likelihood and a boolean", "it must be finite and at most 0"))
    assert [line["reason"] for line in (first, *others)] == [None] * 3


@pytest.mark.parametrize(("number", "truth"), [(np.float32, np.bool_), (torch.tensor, torch.tensor)])
def test_scalars_of_numpy_and_torch_are_answers_as_those_of_python_are(
    questions_file, tmp_path, number, truth
) -> None:
    def others(answers, *_):
        return [(number(round(value, 2)), truth(greedy)) for value, greedy in answers]

    def rounded(answers, *_):
        return [(float(number(round(value, 2))), greedy) for value, greedy in answers]

    tracker = EvaluationTracker(output_path=str(tmp_path))
    results = evaluate(Misbehaving(others), questions_file(DOCS), evaluation_tracker=tracker)
    assert results["samples"] == evaluate(Misbehaving(rounded), questions_file(DOCS))["samples"]


@pytest.mark.parametrize("bad", [{"means": (-1.0,)}, {"means": (None, -1.0)}, {"deviations": (math.nan, 1.0)}])
def test_token_scores_are_numbers_of_python_and_as_many_of_each_kind(bad) -> None:
    columns = {"loglikelihoods": (-1.0, -2.0), "means": (-1.5, -1.5), "deviations": (1.0, 0.5)}
    right = TokenScores(**columns)
    of_numpy = TokenScores(**{name: np.array(values, np.float32) for name, values in columns.items()})
    answer = checked_answer("token_scores", of_numpy, "a request")
    assert answer == right
    assert {type(value) for value in (*answer.loglikelihoods, *answer.means, *answer.deviations)} == {float}
    assert isinstance(checked_answer("token_scores", TokenScores(**columns | bad), "a request"), Broken)


def test_a_backend_that_is_gone_ends_the_run_with_its_own_error(questions_file) -> None:
    def is_gone(answers, requests, calls):
        raise ConnectionError("server went away")

    lm = Misbehaving(is_gone)
    with pytest.raises(ConnectionError, match="server went away"):
        evaluate(lm, questions_file([GOOD | {"question": f"Number {i}?"} for i in range(50)]))
    assert lm.calls == 1 + 1 + IN_A_ROW  # the check for the method, all together, then single questions


@pytest.fixture
def calls(named, monkeypatch) -> list[int]:
    """The numbers of requests in each call of a backend that reports nothing before it returns."""
    calls_made: list[int] = []

    def at_once(self, requests):
        if not requests:  # the check for the method
            return []
        calls_made.append(len(requests))
        if len(calls_made) == self.stops_after:
            raise KeyboardInterrupt
        return FakeLM.loglikelihood(self, requests)

    monkeypatch.setattr(named, "loglikelihood", at_once)
    return calls_made


def test_a_backend_that_says_that_it_reports_as_it_goes_is_called_once(
    named, calls, questions_file, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(named, "reports_as_it_goes", True, raising=False)
    run(questions_file([GOOD | {"question": f"Number {i}?"} for i in range(20)]), tmp_path)
    assert calls == [480]


def test_a_backend_that_reports_at_the_end_is_called_in_portions(named, calls, questions_file, tmp_path) -> None:
    docs = [GOOD | {"question": f"Number {i}?"} for i in range(100)]
    named.stops_after = 2
    with pytest.raises(KeyboardInterrupt):
        run(questions_file(docs), tmp_path)
    named.stops_after = None
    resumed = run(questions_file(docs), tmp_path)
    assert calls == [FIRST_PORTION, 8 * FIRST_PORTION, FIRST_PORTION, 2400 - 2 * FIRST_PORTION]
    assert resumed["samples"] == evaluate(FakeLM(by_hash), questions_file(docs))["samples"]


def test_neighbouring_questions_that_all_fail_are_the_only_ones_skipped(questions_file) -> None:
    docs = [
        GOOD | {"question": f"Colour {number} on {'Mars' if 20 <= number < 30 else 'Earth'}?"} for number in range(60)
    ]
    results = evaluate(Misbehaving(fails_on("Mars")), questions_file(docs))
    assert results["results"][TASK]["skipped,max_order"] == 10


# ---------------------------------------------------------------------- lengths


class Hidden(FakeLM):
    """A model behind an API without a known tokenizer, with the harness's placeholder for it."""

    def tok_encode(self, text: str) -> list[str]:
        return [text]


def test_turns_of_a_chat_are_left_to_the_model() -> None:
    turns = JsonChatStr('[{"role": "user", "content": "one two three four"}]')
    assert longer_than_window(FakeLM(by_hash, max_length=3), [(turns, " five")]) is None


def test_tokens_are_counted_or_estimated_without_a_tokenizer() -> None:
    assert n_tokens_of(FakeLM(by_hash), "one two three") == 3
    assert n_tokens_of(Hidden(by_hash), "one two three") == 1 + 13 // 3
    assert n_tokens_of(None, "") == 1


def test_answers_are_reported_and_passed_to_the_runs_own_cache() -> None:
    model, reported, cached = FakeLM(by_hash), [], []
    before = SimpleNamespace(add_partial=lambda *response: cached.append(response), dbdict={})
    model.set_cache_hook(before)
    with answers_reported(model, lambda *response: reported.append(response)):
        model.cache_hook.add_partial("a", ("text",), 1.0)
    assert reported == cached == [("a", ("text",), 1.0)]
    assert model.cache_hook is before
