from __future__ import annotations

import pytest

from lm_eval_leakage.detectors import probes, statistics
from lm_eval_leakage.registry import Registry


def test_modules_are_found_by_their_registered_names() -> None:
    assert "option_orders" in probes.names()
    assert {"max_order", "outlier"} <= set(statistics.names())


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown statistic 'maxorder'; choose one of: .*max_order"):
        statistics.get("maxorder")


def test_a_name_cannot_be_taken_twice() -> None:
    registry: Registry[type] = Registry("probe", "lm_eval_leakage.detectors")
    registry.register("twin")(int)
    with pytest.raises(ValueError, match="'twin' is registered twice"):
        registry.register("twin")(str)
