"""Keyed draws are exactly uniform, independent across purposes, and the same everywhere."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import pytest
from scipy.stats import chisquare

from lm_eval_leakage.seal.drawn import KeyedDraws, content_of
from tests.sealing.made import KEY, key


class OutOfBits(Exception):
    pass


def from_bits(bits: tuple[int, ...]) -> KeyedDraws:
    def given():
        yield from bits
        raise OutOfBits

    draws = KeyedDraws(KEY, "options", b"")
    draws._bits = given()
    return draws


def counted(draw, length: int) -> Counter:
    """How often each value is drawn from all sequences of so many bits, those that do not suffice left out."""
    found: Counter = Counter()
    for bits in product((0, 1), repeat=length):
        try:
            found[draw(from_bits(bits))] += 1
        except OutOfBits:
            continue
    return found


@pytest.mark.parametrize("n", range(1, 10))
def test_numbers_are_exactly_uniform_over_all_sequences_of_bits(n: int) -> None:
    found = counted(lambda draws: draws.below(n), 8)
    assert sorted(found) == list(range(n))
    assert len(set(found.values())) == 1


@pytest.mark.parametrize("n", [2, 3, 4])
def test_orders_are_exactly_uniform_over_all_sequences_of_bits(n: int) -> None:
    """By the first two draws of bits that suffice; a longer sequence only adds rejected starts, as many for each."""
    found = counted(lambda draws: draws.order(n), 11)
    assert set(found) == set(permutations(range(n)))
    assert len(set(found.values())) == 1


@pytest.mark.parametrize(
    ("other", "n"),
    [
        (lambda secret: KeyedDraws(secret, "options", b"two").order(3), 6),
        (lambda secret: KeyedDraws(secret, "wording", b"one").below(4), 4),
    ],
    ids=["another question", "another purpose"],
)
def test_draws_under_one_key_are_independent(other, n: int) -> None:
    pairs = Counter(
        (KeyedDraws(secret, "options", b"one").order(3), other(secret)) for secret in map(key, range(3_600))
    )
    assert len(pairs) == 6 * n
    assert chisquare(list(pairs.values())).pvalue > 0.001


def test_content_does_not_depend_on_order_but_on_what_is_a_wording_and_what_an_option() -> None:
    assert content_of(["a", "b"], ["c", "d"]) == content_of(["b", "a"], ["d", "c"])
    assert content_of(["a", "b"], ["c", "d"]) != content_of(["a"], ["b", "c", "d"])
    assert content_of(["ab"], ["c"]) != content_of(["a"], ["bc"])
