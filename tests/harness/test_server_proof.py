"""What a server must give for a known text before an audit asks it, by stand-ins for what providers document."""

from __future__ import annotations

import itertools

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

from lm_eval_leakage.harness.models.chat_echo import ChatCompletionsEchoLM
from lm_eval_leakage.harness.models.server_proof import (
    MEAN_HIGH,
    MEAN_LOW,
    Unproven,
    accept_valid_answers_only,
    proven,
)
from lm_eval_leakage.harness.preflight import scored_by
from tests.harness.fake_completions import (
    MODEL,
    ByteCompletions,
    FakeServer,
    Raw,
    Status,
    cut,
    expected,
    in_choices,
    in_logprobs,
    moved,
    of_the_tokens_before_themselves,
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
    monkeypatch.setattr("lm_eval_leakage.harness.models.retry_after.sleep", lambda seconds: None)


def proof_of(server: FakeServer) -> str:
    with serving(server) as url:
        return proven(ByteCompletions, {"base_url": url, "model": MODEL, "max_retries": 5})


def with_values(values_of):
    """Return a change to other values of the tokens after the first, among the most likely ones, too."""

    def change(columns):
        values = [None, *values_of(columns["tokens"][1:-1]), -0.5]
        tops = [
            None if value is None else {text: value} for text, value in zip(columns["tokens"], values, strict=True)
        ]
        columns.update(token_logprobs=values, top_logprobs=tops)

    return in_logprobs(change)


def all_values(value):
    return with_values(lambda tokens: [value] * len(tokens))


def varying(middle):
    """Values that differ by token, with this mean."""

    def values_of(tokens):
        sizes = [1 + ord(token) % 5 for token in tokens]
        return [middle * size * len(sizes) / sum(sizes) for size in sizes]

    return with_values(values_of)


# What others give where `local-completions` reads log-probabilities of the text.
GENERATED = {"content": [{"token": ".", "logprob": -1}]}
LLAMA_CPP = in_choices(lambda choices: choices[0].update(text=".", logprobs=GENERATED))


def together_completions(response):
    """Return a response whose text is in `prompt`; the choice has only what was generated."""
    columns = response["choices"][0]["logprobs"]
    response["prompt"] = [{"text": "", "logprobs": {"tokens": columns["tokens"][:-1], "token_logprobs": []}}]
    return in_logprobs(lambda columns: columns.update(tokens=["."], token_logprobs=[-0.5]))(response)


def without_other_tokens(spoil):
    """Return a change after which the most likely tokens are the given ones, so that nothing shows that values are
    moved."""

    def change(columns):
        pairs = zip(columns["tokens"], columns["token_logprobs"], strict=True)
        columns["top_logprobs"] = [None if value is None else {text: value} for text, value in pairs]

    return lambda response: in_logprobs(change)(spoil(response))


def generated_only(response):
    return in_logprobs(lambda columns: columns.update({name: column[-1:] for name, column in columns.items()}))(
        response
    )


def test_a_server_that_returns_the_log_probabilities_of_a_text_is_proven_by_two_requests() -> None:
    server = FakeServer()  # as vLLM and Fireworks document it
    assert "returns log-probabilities of a given text: 2" in proof_of(server)
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
        (in_logprobs(lambda columns: columns["tokens"].reverse()), "the server answered about another text"),
        (in_logprobs(of_the_tokens_before_themselves), "likeliest tokens that it returns are those of the next place"),
        (without_other_tokens(moved("token_logprobs")), "values are of other tokens"),
        (without_other_tokens(moved("token_logprobs", by=-1)), "values are of other tokens"),
        (lambda response: Status(400), "refuses the request with status 400"),
        (lambda response: Status(401), "refuses the request with status 401"),
        (lambda response: Status(404), "refuses the request with status 404"),
        (lambda response: Raw(b"<html>hello</html>"), "instead of JSON"),
    ],
)
def test_a_server_that_does_not_is_reported_in_one_sentence_after_one_or_two_requests(spoil, reason) -> None:
    server = FakeServer(spoil)
    with pytest.raises(Unproven) as error:
        proof_of(server)
    assert reason in str(error.value)
    assert "choose another provider" in str(error.value)
    assert "\n" not in str(error.value)
    assert server.n_asked <= 2


@pytest.mark.parametrize("mean", [0.99 * MEAN_LOW, 1.01 * MEAN_HIGH])
def test_means_within_the_bounds_are_plausible(mean) -> None:
    assert f"mean of {mean:.2f}" in proof_of(FakeServer(varying(mean)))


@pytest.mark.parametrize(("off", "is_proven"), [(0.39, True), (0.41, False)])
def test_answers_may_differ_by_the_tolerated_noise_when_the_text_is_sent_again(off, is_proven) -> None:
    times = itertools.count()

    def post(_, sent):
        shift = off * next(times)
        return with_values(lambda tokens: [-1 - shift - ord(token) % 5 for token in tokens])(right_response(sent))

    with served(post) as url:
        arguments = {"base_url": url, "model": MODEL}
        if is_proven:
            assert "0.39 nats per token off when it is sent again" in proven(ByteCompletions, arguments)
        else:
            with pytest.raises(Unproven, match="differ by 0.41 nats per token, more than 0.4"):
                proven(ByteCompletions, arguments)


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_what_a_server_is_not_ready_to_answer_is_left_to_the_run(status) -> None:
    assert proof_of(FakeServer(lambda response: Status(status))) == ""


def test_a_server_that_says_when_to_come_back_is_asked_then() -> None:
    server = FakeServer(lambda response: Status(429).asking("7"), lambda number, _: number < 2)
    assert proof_of(server)
    assert server.n_asked == 4


def test_a_server_that_does_not_report_its_text_is_proven_and_that_is_said() -> None:
    def without_tokens(response):
        response["choices"][0].update(text="")
        return in_logprobs(lambda columns: columns.pop("tokens"))(response)

    assert "it does not say which text they are of" in proof_of(FakeServer(without_tokens))
    assert "it does not say which text" not in proof_of(FakeServer(in_logprobs(lambda columns: columns.pop("tokens"))))


# ---------------------------------------------------------------------- a text as long as the longest

LONG = "Which of these does a baker need?" * 20  # 660 tokens of one byte
PAIRS = [(LONG, " flour"), (LONG, " fish"), ("Short?", " Yes")]


def answered(server: FakeServer, pairs=PAIRS, **given):
    accept_valid_answers_only(ByteCompletions)
    requests = [Instance("loglikelihood", {}, pair, place) for place, pair in enumerate(pairs)]
    with serving(server) as url:
        return ByteCompletions(url, **given).loglikelihood(requests)


@pytest.mark.parametrize("how", [{}, {"batch_size": 2, "num_concurrent": 2}], ids=["one", "concurrent"])
@pytest.mark.parametrize("beyond", ["values", "null", "nothing"])
def test_a_server_that_reads_only_the_end_of_long_texts_ends_a_run_before_its_first_request(beyond, how) -> None:
    server = FakeServer(lambda response: cut(response, 300, beyond))
    with pytest.raises(Unproven, match=r"longest of this run \(666\).*set max_length") as error:
        answered(server, **how)
    assert server.n_asked <= 3
    assert ("same values whatever stands at its beginning" in str(error.value)) == (beyond == "values")


@pytest.mark.parametrize("how", [{}, {"batch_size": 2, "num_concurrent": 2}], ids=["one", "concurrent"])
def test_a_server_that_reads_long_texts_is_asked_for_three_more_and_not_again_for_shorter_ones(how) -> None:
    lengths = []

    def post(_, sent):
        prompts = sent["prompt"] if isinstance(sent["prompt"][0], list) else [sent["prompt"]]
        lengths.extend(map(len, prompts))
        return right_response(sent)

    accept_valid_answers_only(ByteCompletions)
    with served(post) as url:
        lm = ByteCompletions(url, **how)
        for pairs in (PAIRS[2:], PAIRS, PAIRS[1:], [(LONG + LONG, " fish")]):
            requests = [Instance("loglikelihood", {}, pair, place) for place, pair in enumerate(pairs)]
            assert lm.loglikelihood(requests) == [expected(*pair) for pair in pairs]
    assert len(lengths) == 1 + (3 + 3) + 2 + (3 + 1)
    assert all(655 < length <= 665 for length in lengths[1:4])
    assert all(1315 < length <= 1325 for length in lengths[-4:])


@pytest.mark.parametrize("status", [400, 413, 503])
def test_a_long_text_that_a_server_refuses_is_left_to_the_run(status, monkeypatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    server = FakeServer(lambda response: Status(status), lambda _, sent: len(sent["prompt"][0]) > 300)
    with pytest.raises(Exception, match=str(status)):
        answered(server, max_retries=1)
    assert answered(FakeServer(), PAIRS[2:]) == [expected(*PAIRS[2])]


def zeros_in_chat(sent):
    response = together_chat(sent)
    for choice in response["prompt"]:
        choice["logprobs"]["token_logprobs"] = [None, *[0.0] * (len(choice["logprobs"]["tokens"]) - 1)]
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


def test_what_cannot_be_decided_is_left_to_the_run() -> None:
    assert proven(ByteCompletions, UNREACHABLE) == ""
