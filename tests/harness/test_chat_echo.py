"""Log-likelihoods by chat completions, from stand-ins for the servers that document them."""

from __future__ import annotations

import json
import math

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.api_models import JsonChatStr

from lm_eval_leakage.harness.models.answer_faults import NoAnswer
from lm_eval_leakage.harness.models.chat_echo import (
    ECHOED,
    KNOWN_QUESTION,
    ChatCompletionsEchoLM,
    ReportedToken,
    conversation,
    frame_in,
    reported_tokens,
)
from lm_eval_leakage.harness.models.server_proof import KNOWN_TEXT, Unproven, proven
from lm_eval_leakage.harness.models.server_responses import FaultyResponse
from tests.harness.fake_completions import Status, served_chat
from tests.harness.fake_hosted import (
    MODEL,
    closed,
    expected,
    fireworks_chat,
    left_open,
    logprobs,
    openai_chat,
    reading,
    together_chat,
    tokens_of,
    vllm_chat,
    with_top,
)
from tests.harness.test_task import GOOD, evaluate, lines

PAIRS = [
    ("Which of these does a baker need?", "\nA. flour\nB. fish"),
    ("Which of these does a baker need?", "\nA. fish\nB. flour"),
    ("面包师需要什么?", " 面粉"),
    ("An answer that says assistant", " The assistant said: <|im_start|>"),
]
SERVERS = pytest.mark.parametrize(
    ("post", "render"),
    [(vllm_chat, left_open), (together_chat, closed), (fireworks_chat, closed)],
    ids=["vllm", "together", "fireworks"],
)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch) -> None:
    async def at_once(seconds: float) -> None:
        pass

    monkeypatch.setattr("tenacity.asyncio._portable_async_sleep", at_once)


def answers(post, pairs=PAIRS, **given):
    requests = [Instance("loglikelihood", {}, pair, place) for place, pair in enumerate(pairs)]
    with served_chat(post) as arguments:
        return ChatCompletionsEchoLM(**arguments, **given).loglikelihood(requests)


@SERVERS
@pytest.mark.parametrize("n_concurrent", [1, 3])
def test_a_continuation_gets_the_sum_over_its_own_tokens(post, render, n_concurrent) -> None:
    results = answers(post, num_concurrent=n_concurrent)
    assert [value for value, _ in results] == pytest.approx([expected(conversation(*pair), render) for pair in PAIRS])


@SERVERS
def test_a_server_is_proven_by_a_known_conversation(post, render) -> None:
    n_tokens = len(tokens_of(KNOWN_TEXT.strip()))
    with served_chat(post) as arguments:
        assert f"{n_tokens} tokens of a known one" in proven(ChatCompletionsEchoLM, arguments)


def test_a_token_is_the_most_likely_one_where_the_server_says_its_rank() -> None:
    def ranked(rank):
        def post(sent):
            response = vllm_chat(sent)
            for row in response["prompt_logprobs"][1:]:
                for entry in row.values():
                    entry["rank"] = rank
            return response

        return post

    assert [greedy for _, greedy in answers(ranked(1))] == [True] * len(PAIRS)
    assert [greedy for _, greedy in answers(ranked(2))] == [False] * len(PAIRS)


def test_the_form_that_a_server_refuses_is_not_used() -> None:
    def strict(sent):
        return Status(422) if "prompt_logprobs" in sent else together_chat(sent)

    assert [value for value, _ in answers(strict)] == pytest.approx(
        [expected(conversation(*p), closed) for p in PAIRS]
    )


def spoiled(change):
    """Together's response to the second pair, changed."""

    def post(sent):
        response = together_chat(sent)
        if sent.get("echo") and sent["messages"][-1]["content"] == PAIRS[1][1].strip():
            change(response["prompt"][0]["logprobs"])
        return response

    return post


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda reported: reported["token_logprobs"].__setitem__(-8, None), "the server answered a token with None"),
        (lambda reported: reported["token_logprobs"].__setitem__(-8, 3.5), "the server answered a token with 3.5"),
        (lambda reported: reported["token_logprobs"].__setitem__(3, None), "the server answered a token with None"),
        (lambda reported: reported["tokens"].__setitem__(-8, "a"), "about another message"),
        (lambda reported: reported["tokens"].__setitem__(-1, "a"), "cannot be separated from the rest"),
        (lambda reported: reported["tokens"].pop(), "instead of log-probabilities"),
        (lambda reported: reported.update(tokens=[], token_logprobs=[]), "cannot be separated from the rest"),
    ],
)
def test_a_pair_without_a_valid_response_has_no_answer_and_the_others_have_theirs(change, reason) -> None:
    values = [value for value, _ in answers(spoiled(change), max_retries=2)]
    assert isinstance(values[1], NoAnswer)
    assert math.isnan(values[1])
    assert reason in values[1].reason
    rest = [pair for pair in PAIRS if pair is not PAIRS[1]]
    assert values[:1] + values[2:] == pytest.approx([expected(conversation(*pair), closed) for pair in rest])


TURNS = [
    {"role": "system", "content": "Answer with a letter."},
    {"role": "user", "content": "面包师需要什么？\nA. 面粉\nB. fish"},
    {"role": "assistant", "content": "A"},
    {"role": "user", "content": "Which of these does a baker need?\nA. a hat\nB. flour"},
]
READINGS = {
    "the question without its beginning": lambda turns: [*turns[:-2], cut(turns[-2], slice(6, None)), turns[-1]],
    "the question without its end": lambda turns: [*turns[:-2], cut(turns[-2], slice(None, -6)), turns[-1]],
    "no system message": lambda turns: turns[1:],
    "the last two messages": lambda turns: turns[-2:],
    "the answer": lambda turns: turns[-1:],
    "an example without its beginning": lambda turns: [turns[0], cut(turns[1], slice(4, None)), *turns[2:]],
    "examples in another order": lambda turns: [turns[0], turns[2], turns[1], *turns[3:]],
    "another question": lambda turns: [*turns[:-2], {"role": "user", "content": "Who sleeps?"}, turns[-1]],
}


def cut(turn: dict[str, str], part: slice) -> dict[str, str]:
    return turn | {"content": turn["content"][part]}


@SERVERS
def test_a_conversation_of_several_turns_gets_the_value_of_its_last(post, render) -> None:
    (result,) = answers(post, [(JsonChatStr(json.dumps(TURNS)), " B")])
    assert result[0] == pytest.approx(expected([*TURNS, {"role": "assistant", "content": "B"}], render))


@SERVERS
@pytest.mark.parametrize("change", READINGS)
def test_an_answer_about_another_conversation_is_none(change, post, render) -> None:
    def spoiling(sent):
        return (reading(READINGS[change], post) if sent["messages"][0] == TURNS[0] else post)(sent)

    pairs = [(JsonChatStr(json.dumps(TURNS)), " B"), PAIRS[0]]
    bad, good = [value for value, _ in answers(spoiling, pairs, max_retries=1)]
    assert isinstance(bad, NoAnswer)
    assert "about another conversation" in bad.reason or "cannot be separated from the rest" in bad.reason
    assert good == pytest.approx(expected(conversation(*PAIRS[0]), render))


@SERVERS
def test_a_server_that_reads_only_the_end_of_long_questions_ends_a_run_before_its_first_request(post, render) -> None:
    """It reports the whole conversation."""

    def half_deaf(sent):
        messages = [cut(turn, slice(-300, None)) for turn in sent["messages"]]
        response, of_end = post(sent), post(sent | {"messages": messages})
        for place in (("prompt_logprobs",), ("prompt", 0, "logprobs", "token_logprobs")):
            put_end(response, of_end, place)
        put_end(response, of_end, ("choices", 0, "logprobs", "token_logprobs"))
        return response

    long = [("Which of these does a baker need? " * 30, "flour")]
    with pytest.raises(Unproven, match=r"longest of this run \(1025\).*same values whatever stands at its beginning"):
        answers(half_deaf, long)
    assert [value for value, _ in answers(post, long)] == pytest.approx([expected(conversation(*long[0]), render)])
    assert answers(half_deaf, PAIRS[:1]) == answers(post, PAIRS[:1])


def put_end(response, of_end, place) -> None:
    """The values of the last tokens from another response."""
    try:
        for key in place[:-1]:
            response, of_end = response[key], of_end[key]
        values, last = response[place[-1]], of_end[place[-1]][-80:]
    except (KeyError, IndexError, TypeError):
        return
    if len(values) >= len(last):
        values[-len(last) :] = last if len(values) > len(last) else values


@pytest.mark.parametrize("by", [1, 2, 5])
def test_values_that_are_not_those_of_the_same_tokens_among_the_likeliest_are_no_answer(by) -> None:
    def topped(shift):
        def post(sent):
            response = together_chat(sent)
            for choice in response["prompt"]:
                columns = choice["logprobs"]
                columns["top_logprobs"] = with_top(columns["tokens"], columns["token_logprobs"])
                values = columns["token_logprobs"][1:]
                columns["token_logprobs"] = [None, *values[shift:], *values[:shift]]
            return response

        return post

    assert answers(topped(0)) == answers(together_chat)
    values = [value for value, _ in answers(topped(by), max_retries=1)]
    assert all("not those of the same tokens" in value.reason for value in values)


def audited(post, questions_file) -> list[dict]:
    with served_chat(post) as arguments:
        lm = ChatCompletionsEchoLM(**arguments)
        return lines(evaluate(lm, questions_file([GOOD]) | {"control_form": False}), "max_order")


def test_an_audit_of_option_orders_is_answered_by_chat_completions(questions_file) -> None:
    (line,) = audited(vllm_chat, questions_file)
    assert line["flagged"] is not None
    assert line["reason"] is None


def test_an_audit_of_a_server_without_echo_ends_at_once(questions_file) -> None:
    requests = []

    def post(sent):
        requests.append(sent)
        return openai_chat(sent)

    with pytest.raises(ValueError, match="no log-probabilities of the conversation"):
        audited(post, questions_file)
    assert {request["messages"][0]["content"] for request in requests} == {KNOWN_QUESTION}
    assert len(requests) == 2  # one for each form


def test_turns_of_a_chat_template_are_sent_as_they_are_and_a_begun_answer_is_continued() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    turns_of_answer = [*turns, {"role": "assistant", "content": "Because"}]
    assert conversation(JsonChatStr(json.dumps(turns)), " so") == [*turns, {"role": "assistant", "content": "so"}]
    assert conversation(JsonChatStr(json.dumps(turns_of_answer)), " so")[-1]["content"] == "Because so"


def reported(tokens: list[str]) -> list[ReportedToken]:
    return reported_tokens({"prompt": [{"logprobs": {"tokens": tokens, "token_logprobs": logprobs(tokens)}}]})


def test_bytes_of_characters_do_not_hide_where_a_message_is() -> None:
    frame = frame_in(reported(tokens_of(closed(conversation(KNOWN_QUESTION, KNOWN_TEXT)))), ECHOED)
    tokens = ["<|bos|>", "Wo", "?", *frame.before, "<0xC3>", "<0xA9>", " x", "\ufffd", "y", *frame.after]
    messages = conversation("Wo?", "é xßy")
    assert tokens[frame.span(tokens, messages)] == ["<0xC3>", "<0xA9>", " x", "\ufffd", "y"]


def test_a_template_whose_mark_is_one_token_with_a_part_of_the_message_is_refused() -> None:
    tokens = tokens_of(closed(conversation(KNOWN_QUESTION, KNOWN_TEXT)))
    place = len(tokens) - tokens[::-1].index("The") - 1
    merged = [*tokens[: place - 2], "".join(tokens[place - 2 : place + 1]), *tokens[place + 1 :]]
    with pytest.raises(FaultyResponse, match="a token of the template"):
        frame_in(reported(merged), ECHOED)


def test_a_url_of_other_than_chat_completions_is_refused() -> None:
    with pytest.raises(ValueError, match="give the URL of chat completions"):
        ChatCompletionsEchoLM(base_url="http://127.0.0.1:8000/v1/completions", model=MODEL)
