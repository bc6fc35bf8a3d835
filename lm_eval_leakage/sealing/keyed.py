"""Uniform draws from a secret key: HMAC-SHA256 as a stream of bits, and rejection sampling, which has no bias.

Claim: to whoever does not know the key, draws for different purposes or contents are independent and uniform, as far
as HMAC-SHA256 is a pseudorandom function. The stream of a draw is

    HMAC-SHA256(key, purpose + 0x00 + SHA-256(content) + counter), counter = 0, 1, ... as 8 bytes, big-endian

read from its most significant bit on.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Literal

KEY_BYTES = 32  # 256 bits
BLOCK_BITS = 256  # of one HMAC-SHA256

Purpose = Literal["options", "wording", "questions", "answer", "decoy"]


def new_key() -> bytes:
    """A key from the operating system's source of randomness."""
    return secrets.token_bytes(KEY_BYTES)


def content_of(wordings: Sequence[str], options: Sequence[str]) -> bytes:
    """What draws about a question depend on besides the key: its texts, sorted, so that neither the author's order of
    options and wordings nor the public one matters."""
    parts = [*sorted(wordings), "", *sorted(options)]
    return b"".join(sha256(part.encode()).digest() for part in parts)


class KeyedDraws:
    """A sequence of independent uniform draws, the same for the same key, purpose and content."""

    def __init__(self, key: bytes, purpose: Purpose, content: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}; read the key from the private folder")
        self._bits = _bits(key, purpose.encode() + b"\0" + sha256(content).digest())

    def below(self, n: int) -> int:
        """Uniform among 0, 1, ..., n - 1: as many bits as n - 1 has, drawn again until they are below n."""
        if n < 1:
            raise ValueError(f"n is {n}; there must be something to draw from")
        while True:
            drawn = 0
            for _ in range((n - 1).bit_length()):
                drawn = 2 * drawn + next(self._bits)
            if drawn < n:
                return drawn

    def order(self, n: int) -> tuple[int, ...]:
        """Uniform among the n! orders of 0, 1, ..., n - 1, by Fisher and Yates."""
        places = list(range(n))
        for last in range(n - 1, 0, -1):
            other = self.below(last + 1)
            places[last], places[other] = places[other], places[last]
        return tuple(places)


def _bits(key: bytes, message: bytes) -> Iterator[int]:
    counter = 0
    while True:
        block = int.from_bytes(hmac.digest(key, message + counter.to_bytes(8, "big"), "sha256"), "big")
        yield from (block >> place & 1 for place in range(BLOCK_BITS - 1, -1, -1))
        counter += 1
