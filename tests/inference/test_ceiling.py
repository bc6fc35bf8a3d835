"""Of several equally right options, a key drew the one that counts: exact over all keys."""

from __future__ import annotations

import math
from itertools import product

import pytest

from lm_eval_leakage.stats.sealed import SealedTest, of_hits

RIGHT = (2, 3, 2)  # equally right options of three questions
KEYS = list(product(*(range(n) for n in RIGHT)))


def ceiling(hits: list[bool]) -> SealedTest:
    return of_hits(SealedTest("ceiling"), hits, [1 / n for n in RIGHT], "")


@pytest.mark.parametrize("knows", [0, 1])
def test_a_model_is_rejected_by_no_more_keys_than_the_level_says(knows: int) -> None:
    """It answers one right option of each question, in any way; or none that is below `knows`."""
    for answered in KEYS:
        found = [
            ceiling([own == drawn and own >= knows for own, drawn in zip(answered, key, strict=True)]) for key in KEYS
        ]
        for level in {one.pvalue for one in found}:
            assert sum(one.pvalue <= level for one in found) <= level * len(found) + 1e-9
        assert sum(math.exp(one.log_evalue) for one in found) <= len(found) + 1e-9
        if not knows:
            assert sum(one.effect for one in found) == pytest.approx(0)
            deviation = math.sqrt(sum(one.effect**2 for one in found) / len(found))
            assert deviation == pytest.approx(found[0].effect_error)
