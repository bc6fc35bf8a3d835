"""Log-likelihoods by chat completions, from stand-ins for the servers that document them."""

from __future__ import annotations

import json
import math

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.api_models import JsonChatStr

from lm_eval_leakage.harness.models.chat_echo import (
    ECHOED,
    KNOWN_QUESTION,
    ChatCompletionsEchoLM,
    TokenTold,
    conversation,
    frame_in,
    tokens_told,
)
from lm_eval_leakage.harness.models.server_proof import KNOWN_TEXT, proven
from lm_eval_leakage.harness.models.server_responses import FaultyResponse, NoAnswer
from tests.harness.fake_completions import Status, served_chat
from tests.harness.fake_hosted import (
    MODEL,
    closed,
    expected,
    fireworks_chat,
    left_open,
    logprobs,
    openai_chat,
    together_chat,
    tokens_of,
    vllm_chat,
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
    found = answers(post, num_concurrent=n_concurrent)
    assert [value for value, _ in found] == pytest.approx([expected(conversation(*pair), render) for pair in PAIRS])


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
        (lambda told: told["token_logprobs"].__setitem__(-8, None), "the server answered a token with None"),
        (lambda told: told["token_logprobs"].__setitem__(-8, 3.5), "the server answered a token with 3.5"),
        (lambda told: told["tokens"].__setitem__(-8, "a"), "about another message"),
        (lambda told: told["tokens"].__setitem__(-1, "a"), "cannot be told from the rest"),
        (lambda told: told["tokens"].pop(), "instead of log-probabilities"),
        (lambda told: told.update(tokens=[], token_logprobs=[]), "cannot be told from the rest"),
    ],
)
def test_a_pair_without_a_valid_response_has_no_answer_and_the_others_have_theirs(change, reason) -> None:
    found = [value for value, _ in answers(spoiled(change), max_retries=2)]
    assert isinstance(found[1], NoAnswer)
    assert math.isnan(found[1])
    assert reason in found[1].reason
    rest = [pair for pair in PAIRS if pair is not PAIRS[1]]
    assert found[:1] + found[2:] == pytest.approx([expected(conversation(*pair), closed) for pair in rest])


def audited(post, questions_file) -> list[dict]:
    with served_chat(post) as arguments:
        lm = ChatCompletionsEchoLM(**arguments)
        return lines(evaluate(lm, questions_file([GOOD]) | {"control_form": False}), "max_order")


def test_an_audit_of_option_orders_is_answered_by_chat_completions(questions_file) -> None:
    (line,) = audited(vllm_chat, questions_file)
    assert line["flagged"] is not None
    assert line["reason"] is None


def test_an_audit_of_a_server_without_echo_ends_at_once(questions_file) -> None:
    asked = []

    def post(sent):
        asked.append(sent)
        return openai_chat(sent)

    with pytest.raises(ValueError, match="no log-probabilities of the conversation"):
        audited(post, questions_file)
    assert {one["messages"][0]["content"] for one in asked} == {KNOWN_QUESTION}
    assert len(asked) == 2  # one for each form


def test_turns_of_a_chat_template_are_sent_as_they_are_and_a_begun_answer_is_continued() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    begun = [*turns, {"role": "assistant", "content": "Because"}]
    assert conversation(JsonChatStr(json.dumps(turns)), " so") == [*turns, {"role": "assistant", "content": "so"}]
    assert conversation(JsonChatStr(json.dumps(begun)), " so")[-1]["content"] == "Because so"


def told(tokens: list[str]) -> list[TokenTold]:
    return tokens_told({"prompt": [{"logprobs": {"tokens": tokens, "token_logprobs": logprobs(tokens)}}]})


def test_bytes_of_characters_do_not_hide_where_a_message_is() -> None:
    frame = frame_in(told(tokens_of(closed(conversation(KNOWN_QUESTION, KNOWN_TEXT)))), ECHOED)
    tokens = ["<|bos|>", "Wo", "?", *frame.before, "<0xC3>", "<0xA9>", " x", "\ufffd", "y", *frame.after]
    assert [token.text for token in frame.message(told(tokens), "é xßy")] == ["<0xC3>", "<0xA9>", " x", "\ufffd", "y"]


def test_a_template_whose_mark_is_one_token_with_a_part_of_the_message_is_refused() -> None:
    known = tokens_of(closed(conversation(KNOWN_QUESTION, KNOWN_TEXT)))
    place = len(known) - known[::-1].index("The") - 1
    merged = [*known[: place - 2], "".join(known[place - 2 : place + 1]), *known[place + 1 :]]
    with pytest.raises(FaultyResponse, match="a token of the template"):
        frame_in(told(merged), ECHOED)


def test_a_url_of_other_than_chat_completions_is_refused() -> None:
    with pytest.raises(ValueError, match="give the URL of chat completions"):
        ChatCompletionsEchoLM(base_url="http://127.0.0.1:8000/v1/completions", model=MODEL)
