"""The keys of a run's requests, in a sixth of a dictionary's memory: full MMLU has 336,900 of them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

KEY_SIZE = 16  # bytes
EMPTY = -1


def request_key(method: str, arguments: Sequence[Any]) -> bytes:
    """A digest of a request, equal for equal requests; the 336,900 texts of full MMLU would need too much memory."""
    parts = [part if isinstance(part, str) else json.dumps(part, sort_keys=True, default=str) for part in arguments]
    whole = f"{method} {','.join([str(len(part)) for part in parts])} {''.join(parts)}"
    return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=KEY_SIZE).digest()


class RequestKeys:
    """Distinct keys, numbered in the order in which they are added: a hash table with open addressing, whose hashes
    are the keys' own first bytes, since they are digests.

    most: number of keys that are added at most
    """

    def __init__(self, most: int) -> None:
        self._keys = bytearray()
        self._mask = (1 << (2 * most).bit_length()) - 1
        self._slots = array("i", [EMPTY]) * (self._mask + 1)  # at most half of them full

    def __len__(self) -> int:
        return len(self._keys) // KEY_SIZE

    def __getitem__(self, place: int) -> bytes:
        return bytes(self._keys[place * KEY_SIZE : (place + 1) * KEY_SIZE])

    def add(self, key: bytes) -> int:
        """The place of a key, which is the number of those before it if it is new."""
        slot = self._slot(key)
        if self._slots[slot] == EMPTY:
            self._slots[slot] = len(self)
            self._keys += key
        return self._slots[slot]

    def find(self, key: bytes) -> int | None:
        place = self._slots[self._slot(key)]
        return None if place == EMPTY else place

    def _slot(self, key: bytes) -> int:
        """Where a key is in the table, or would be."""
        keys, slots, mask = self._keys, self._slots, self._mask
        slot = int.from_bytes(key[:8], "little") & mask
        while (place := slots[slot]) != EMPTY and keys[place * KEY_SIZE : (place + 1) * KEY_SIZE] != key:
            slot = (slot + 1) & mask
        return slot
