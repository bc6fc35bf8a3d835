"""Waits as long as a server asks for in `Retry-After`.

lm_eval waits at most 10 seconds after any error and gives up after `max_retries`. Here a response with the status 429
or 503 that says in `Retry-After` when to come back is no error: the request keeps its place among the `num_concurrent`
and is sent again then. If that would be more than LONGEST_WAIT in all, the request fails as before, and the same
command goes on later.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from time import sleep, time
from typing import Any

import requests

logger = logging.getLogger(__name__)
ASKS_TO_WAIT = (429, 503)
SHORTEST_WAIT, LONGEST_WAIT = 1.0, 600.0  # seconds: each wait at least, all waits of a request at most
pause = asyncio.sleep


class Patience:
    """Decides how long one request waits."""

    def __init__(self) -> None:
        self._waited = 0.0

    def seconds(self, status: int, headers: Mapping[str, str]) -> float | None:
        """Return the seconds until the request is to be sent again; None if it is not."""
        wait = seconds_asked(headers.get("Retry-After", "")) if status in ASKS_TO_WAIT else None
        seconds = math.inf if wait is None else max(wait, SHORTEST_WAIT)
        if self._waited + seconds > LONGEST_WAIT:
            return None
        self._waited += seconds
        logger.warning("the server answers with status %d and asks to wait; sending again in %.0f s", status, seconds)
        return seconds


def seconds_asked(text: str) -> float | None:
    """Return the seconds that `Retry-After` asks for, as a number or as a date; None if it has neither."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = max(0.0, parsedate_to_datetime(text).timestamp() - time())
        except (TypeError, ValueError, OverflowError):
            return None
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
    """Return a call that sends one request and raises requests' HTTPError, with waits."""

    def model_call(*args: Any, **kwargs: Any) -> Any:
        patience = Patience()
        while True:
            try:
                return call(*args, **kwargs)
            except requests.HTTPError as error:
                response: Any = error.response  # never None after raise_for_status
                seconds = patience.seconds(response.status_code, response.headers)
                if seconds is None:
                    raise
            sleep(seconds)

    return model_call
