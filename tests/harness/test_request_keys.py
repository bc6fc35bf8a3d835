"""The keys of requests in little memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.harness.models.question_requests import KEY_SIZE, RequestKeys

# few distinct first bytes, by which keys are looked up
KEYS = st.tuples(st.integers(0, 3), st.integers(0, 40)).map(
    lambda parts: parts[0].to_bytes(8, "little") + parts[1].to_bytes(KEY_SIZE - 8, "little")
)


@given(st.lists(KEYS), st.lists(KEYS))
def test_keys_are_numbered_and_found_as_in_a_dictionary(added: list[bytes], others: list[bytes]) -> None:
    keys, expected = RequestKeys(len(added)), {}
    for key in added:
        assert keys.add(key) == expected.setdefault(key, len(expected))
    assert [keys[place] for place in range(len(keys))] == list(expected)
    assert [keys.find(key) for key in added + others] == [expected.get(key) for key in added + others]
