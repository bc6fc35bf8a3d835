"""What a server must give for a known text before an audit asks it, by stand-ins for what providers document."""

from __future__ import annotations

import itertools

import pytest
from lm_eval.models.openai_completions import LocalCompletionsAPI

from lm_eval_leakage.harness.models.chat_echo import ChatCompletionsEchoLM
from lm_eval_leakage.harness.models.server_proof import MEAN_HIGH, MEAN_LOW, Unproven, proven
from lm_eval_leakage.harness.preflight import scored_by
from tests.harness.fake_completions import (
    MODEL,
    ByteCompletions,
    FakeServer,
    Raw,
    Status,
    in_choices,
    in_logprobs,
    right_response,
    served,
    served_chat,
    serving,
    with_value,
)
from tests.harness.fake_hosted import openai_chat, together_chat

UNREACHABLE = {"base_url": "http://127.0.0.1:9/v1/completions", "model": MODEL}


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch) -> None:
    monkeypatch.setattr("lm_eval_leakage.harness.models.server_responses.sleep", lambda seconds: None)


def found(server: FakeServer) -> str:
    with serving(server) as url:
        return proven(ByteCompletions, {"base_url": url, "model": MODEL, "max_retries": 5})


def all_values(value):
    return in_logprobs(lambda told: told.update(token_logprobs=[None, *[value] * (len(told["tokens"]) - 1)]))


def varying(middle):
    """Values that differ, with this mean."""

    def change(told):
        n = len(told["tokens"]) - 2
        values = [middle * (1.5 if place % 2 else 0.5) for place in range(n - n % 2)] + [middle] * (n % 2)
        told.update(token_logprobs=[None, *values, -0.5])

    return in_logprobs(change)


# What others give where `local-completions` reads log-probabilities of the text.
GENERATED = {"content": [{"token": ".", "logprob": -1}]}
LLAMA_CPP = in_choices(lambda choices: choices[0].update(text=".", logprobs=GENERATED))


def together_completions(response):
    """The text is told in `prompt`, the choice has only what was generated."""
    told = response["choices"][0]["logprobs"]
    response["prompt"] = [{"text": "", "logprobs": {"tokens": told["tokens"][:-1], "token_logprobs": []}}]
    return in_logprobs(lambda own: own.update(tokens=["."], token_logprobs=[-0.5]))(response)


def generated_only(response):
    return in_logprobs(lambda told: told.update({name: column[-1:] for name, column in told.items()}))(response)


def test_a_server_that_returns_the_log_probabilities_of_a_text_is_proven_by_two_requests() -> None:
    server = FakeServer()  # as vLLM and Fireworks document it
    assert "returns log-probabilities of a given text: 2" in found(server)
    assert server.n_asked == 2


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (LLAMA_CPP, "the server gave None of token_logprobs"),
        (generated_only, "the server gave 1 entries of token_logprobs to"),
        (together_completions, "the server gave 1 entries of token_logprobs to"),
        (in_choices(lambda choices: choices[0].update(logprobs=None)), "the server gave None instead of log-prob"),
        (all_values(0.0), "get 0 nats each"),
        (all_values(-1.0), "get -1 nats each"),
        (with_value(None, place=40), "the server answered a token with None"),
        (varying(1.01 * MEAN_LOW), "on average, where -15 to -0.001 are plausible"),
        (varying(0.99 * MEAN_HIGH), "on average, where -15 to -0.001 are plausible"),
        (in_logprobs(lambda told: told["tokens"].reverse()), "its tokens are another text"),
        (lambda response: Status(400), "refuses the request with status 400"),
        (lambda response: Status(401), "refuses the request with status 401"),
        (lambda response: Status(404), "refuses the request with status 404"),
        (lambda response: Raw(b"<html>hello</html>"), "instead of JSON"),
    ],
)
def test_a_server_that_does_not_is_told_in_one_sentence_after_one_or_two_requests(spoil, reason) -> None:
    server = FakeServer(spoil)
    with pytest.raises(Unproven) as told:
        found(server)
    assert reason in str(told.value)
    assert "choose another provider" in str(told.value)
    assert "\n" not in str(told.value)
    assert server.n_asked <= 2


@pytest.mark.parametrize("mean", [0.99 * MEAN_LOW, 1.01 * MEAN_HIGH])
def test_means_within_the_bounds_are_plausible(mean) -> None:
    assert f"mean of {mean:.2f}" in found(FakeServer(varying(mean)))


@pytest.mark.parametrize(("off", "is_proven"), [(0.39, True), (0.41, False)])
def test_answers_may_differ_by_the_tolerated_noise_when_the_text_is_sent_again(off, is_proven) -> None:
    times = itertools.count()

    def post(_, sent):
        response, shift = right_response(sent), off * next(times)
        told = response["choices"][0]["logprobs"]
        told["token_logprobs"] = [value if value is None else value - shift for value in told["token_logprobs"]]
        return response

    with served(post) as url:
        arguments = {"base_url": url, "model": MODEL}
        if is_proven:
            assert "0.39 nats per token off when it is sent again" in proven(ByteCompletions, arguments)
        else:
            with pytest.raises(Unproven, match="differ by 0.41 nats per token, more than 0.4"):
                proven(ByteCompletions, arguments)


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_what_a_server_is_not_ready_to_answer_is_left_to_the_run(status) -> None:
    assert found(FakeServer(lambda response: Status(status))) == ""


def test_a_server_that_says_when_to_come_back_is_asked_then() -> None:
    server = FakeServer(lambda response: Status(429).asking("7"), lambda number, _: number < 2)
    assert found(server)
    assert server.n_asked == 4


def zeros_in_chat(sent):
    response = together_chat(sent)
    for one in response["prompt"]:
        one["logprobs"]["token_logprobs"] = [None, *[0.0] * (len(one["logprobs"]["tokens"]) - 1)]
    return response


@pytest.mark.parametrize(
    ("post", "reason"), [(zeros_in_chat, "get 0 nats each"), (openai_chat, "no log-probabilities of the")]
)
def test_chat_completions_without_log_probabilities_of_the_text_are_refused(post, reason) -> None:
    with served_chat(post) as arguments, pytest.raises(Unproven, match=reason):
        proven(ChatCompletionsEchoLM, arguments)


def test_a_model_that_reads_responses_in_a_way_of_its_own_has_nothing_to_prove() -> None:
    class Other(LocalCompletionsAPI):
        def parse_logprobs(self, outputs, tokens=None, ctxlens=None, **kwargs):
            return []

    assert [proven(kind, UNREACHABLE) for kind in (Other, object, None)] == ["", "", ""]


@pytest.mark.parametrize(
    ("model", "audits", "kind"),
    [
        ("local-completions", ["leakage_ngram", "leakage_perm"], LocalCompletionsAPI),
        ("chat-completions-echo", ["leakage_perm"], ChatCompletionsEchoLM),
        ("local-completions", ["leakage_ngram", "leakage_guided", "leakage_sealed_chat"], None),
        ("local-completions", [], None),
        ("local-chat-completions", ["leakage_perm"], None),
        ("hf", ["leakage_perm"], None),
    ],
)
def test_only_servers_that_an_audit_asks_for_log_likelihoods_have_something_to_prove(model, audits, kind) -> None:
    assert scored_by(model, audits) is kind


def test_what_cannot_be_told_is_left_to_the_run() -> None:
    assert proven(ByteCompletions, UNREACHABLE) == ""
