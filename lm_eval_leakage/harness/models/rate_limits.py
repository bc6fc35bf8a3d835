"""Waits as long as a server asks in `Retry-After` before a request is sent again.

lm_eval waits at most 10 seconds after any error and gives up after `max_retries`. Here a response with the status 429
or 503 that says when to come back is no error: the request keeps its place among the `num_concurrent` and is sent
again then. If that would be more than LONGEST_WAIT in all, the request fails as before, and the same command goes on
later.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from time import sleep
from typing import Any

import requests

from lm_eval_leakage.harness.seams.backends import around_requests

logger = logging.getLogger(__name__)
ASKS_TO_WAIT = (429, 503)
SHORTEST_WAIT, LONGEST_WAIT = 1.0, 600.0  # seconds: each wait at least, all waits of a request at most


def wait_as_asked(kind: Any) -> None:
    """From now on, models behind an API wait as their servers ask.

    kind: the class of a run's model; nothing is done unless it is one of those
    """
    around_requests(kind, PatientSession, patient)


pause = asyncio.sleep


class Patience:
    """How long one request waits."""

    def __init__(self) -> None:
        self._waited = 0.0

    def seconds(self, status: int, headers: Mapping[str, str]) -> float | None:
        """Until the request is to be sent again; None if it is not."""
        asked = seconds_asked(headers.get("Retry-After", "")) if status in ASKS_TO_WAIT else None
        seconds = math.inf if asked is None else max(asked, SHORTEST_WAIT)
        if self._waited + seconds > LONGEST_WAIT:
            return None
        self._waited += seconds
        logger.warning("the server answers with status %d and asks to wait; sending again in %.0f s", status, seconds)
        return seconds


def seconds_asked(text: str) -> float | None:
    """What `Retry-After` says, a number of seconds or a date; None if it says neither."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except (TypeError, ValueError):
            return None
        at = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
        seconds = max(0.0, (at - datetime.now(timezone.utc)).total_seconds())
    return seconds if 0 <= seconds < math.inf else None


class PatientSession:
    """An aiohttp session, of which lm_eval's models use `post`."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @asynccontextmanager
    async def post(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        patience = Patience()
        while True:
            async with self._session.post(*args, **kwargs) as response:
                seconds = patience.seconds(response.status, response.headers)
                if seconds is None:
                    yield response
                    return
            await pause(seconds)


def patient(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call that sends one request and raises requests' HTTPError, with waits."""

    def model_call(*args: Any, **kwargs: Any) -> Any:
        patience = Patience()
        while True:
            try:
                return call(*args, **kwargs)
            except requests.HTTPError as error:
                response = error.response
                seconds = None if response is None else patience.seconds(response.status_code, response.headers)
                if seconds is None:
                    raise
            sleep(seconds)

    return model_call
