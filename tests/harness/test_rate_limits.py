"""A server's Retry-After."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
import requests
from lm_eval.api.instance import Instance

from lm_eval_leakage.harness.models import server_responses as rate_limits
from lm_eval_leakage.harness.models.server_responses import (
    LONGEST_WAIT,
    Patience,
    accept_valid_answers_only,
    seconds_asked,
)
from tests.harness.fake_completions import ByteCompletions, FakeServer, Status, expected, serving

PAIRS = [("What does a baker need?", f" {what}") for what in ("flour", "a hat", "fish", "yeast", "salt", "an oven")]
HOW = pytest.mark.parametrize("how", [{}, {"num_concurrent": 3}], ids=["one", "concurrent"])


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """Those that the server asked for, which are not waited for."""
    found: list[float] = []

    async def pause(seconds: float) -> None:
        found.append(seconds)

    async def at_once(seconds: float) -> None:
        pass

    monkeypatch.setattr(rate_limits, "pause", pause)
    monkeypatch.setattr("tenacity.asyncio._portable_async_sleep", at_once)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    monkeypatch.setattr(rate_limits, "sleep", found.append)
    return found


def answers(server: FakeServer, **given):
    accept_valid_answers_only(ByteCompletions)
    with serving(server) as url:
        asked = [Instance("loglikelihood", {}, pair, place) for place, pair in enumerate(PAIRS)]
        return ByteCompletions(url, **{"max_retries": 1, **given}).loglikelihood(asked)


@HOW
def test_a_request_waits_as_its_server_asks_however_few_retries_there_are(how, waits) -> None:
    server = FakeServer(lambda response: Status(429).asking("17"), lambda number, _: number < 2)
    assert answers(server, **how) == [expected(*pair) for pair in PAIRS]
    assert waits == [17.0, 17.0]
    assert server.n_asked == len(PAIRS) + 2


@HOW
@pytest.mark.parametrize("asked", ["", "soon", str(int(LONGEST_WAIT) + 1)])
def test_a_server_that_does_not_say_when_or_asks_for_too_long_is_tried_as_often_as_before(how, asked, waits) -> None:
    server = FakeServer(lambda response: Status(429).asking(asked))
    with pytest.raises(Exception, match="429"):
        answers(server, max_retries=2, **how)
    assert waits == []


def test_all_waits_of_a_request_together_are_not_longer_than_the_longest() -> None:
    patience = Patience()
    given = [patience.seconds(503, {"Retry-After": "250"}) for _ in range(3)]
    assert given == [250.0, 250.0, None]
    patience = Patience()
    for _ in range(int(LONGEST_WAIT)):
        assert patience.seconds(429, {"Retry-After": "0"}) == 1.0  # so that it ends
    assert patience.seconds(429, {"Retry-After": "0"}) is None


@pytest.mark.parametrize("status", [200, 400, 500])
def test_other_responses_are_not_waited_for(status) -> None:
    assert Patience().seconds(status, {"Retry-After": "1"}) is None


def test_retry_after_is_a_number_of_seconds_or_a_date() -> None:
    hour = datetime.now(timezone.utc) + timedelta(hours=1)
    assert [seconds_asked(text) for text in ("0", "12", "0.5", "-1", "nan", "inf", "")] == [0, 12, 0.5, *[None] * 4]
    assert seconds_asked("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert 3500 < seconds_asked(format_datetime(hour, usegmt=True)) <= 3600


def test_an_error_without_a_response_is_raised() -> None:
    def call():
        raise requests.HTTPError("no response")

    with pytest.raises(requests.HTTPError, match="no response"):
        rate_limits.patient(call)()
