from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass

import pytest

from lm_eval_leakage.detectors import Probe, probes, statistics
from lm_eval_leakage.detectors.option_orders import MaxOrder, OptionOrders
from lm_eval_leakage.detectors.outlier import Outlier
from lm_eval_leakage.detectors.partial_orders import OptionPairs
from lm_eval_leakage.harness.tasks.audit import suffixes, template_settings
from lm_eval_leakage.harness.tasks.metadata import probe_of, with_parameters
from lm_eval_leakage.registry import OUTSIDE_ID, _name_of, detector_id, registered_name, spelled

REGISTERED = [
    *(pytest.param(probes.get(name), id=f"probe {name}") for name in probes.names()),
    *(pytest.param(statistics.get(name), id=f"statistic {name}") for name in statistics.names()),
]

EXAMPLES = [
    (OptionOrders(), MaxOrder(), None, "max_order"),
    (OptionOrders(orders=12), MaxOrder(), None, "max_order:orders=12"),
    (OptionOrders(orders=0.5), MaxOrder(), None, "max_order:orders=0.5"),
    (OptionOrders(), Outlier(delta=-0.1), None, "outlier:delta=-0.1"),
    (OptionOrders(orders="paper"), Outlier(-0.1), None, "outlier:delta=-0.1,orders=paper"),
    (
        OptionOrders(orders="paper", move="movable"),
        Outlier(-0.1),
        None,
        "outlier:delta=-0.1,move=movable,orders=paper",
    ),
    (OptionPairs(), MaxOrder(), None, "max_order@option_pairs"),
    (OptionPairs(format="papers"), MaxOrder(), None, "max_order@option_pairs:format=papers"),
    (OptionOrders(), MaxOrder(), "org/elder", "max_order:reference=org/elder"),
    (OptionOrders(orders=12), MaxOrder(), "elder", "max_order:orders=12,reference=elder"),
]


def of_template(suffix: str) -> list[str]:
    shape = template_settings(suffix)
    entries = [with_parameters(pipeline, {})["filter"][0] for pipeline in shape["filter_list"]]
    parameters = [
        {k: v for k, v in entry.items() if k not in ("function", "statistic", "device")} for entry in entries
    ]
    return [
        detector_id(probe_of(shape["metadata"]), statistics.get(entry["statistic"])(**values))
        for entry, values in zip(entries, parameters, strict=True)
    ]


@pytest.mark.parametrize(("probe", "statistic", "reference", "written"), EXAMPLES)
def test_an_id_is_the_statistic_and_what_differs_from_its_defaults(probe, statistic, reference, written) -> None:
    assert detector_id(probe, statistic, reference) == written


def test_the_ids_of_all_audits_are_distinct_short_and_without_brackets() -> None:
    ids = [name for suffix in suffixes() for name in of_template(suffix)]
    assert len(set(ids)) == len(ids)
    assert all(len(name) <= 32 for name in ids)
    assert not any(mark in name for name in ids for mark in "( )#@")


@pytest.mark.parametrize("part", REGISTERED)
def test_a_new_parameter_with_a_default_changes_no_id(part: type, monkeypatch: pytest.MonkeyPatch) -> None:
    later = make_dataclass("Later", [("later", int, field(default=7))], bases=(part,), frozen=True)
    monkeypatch.setitem(_name_of, later, registered_name(part))

    def id_of(made: object) -> str:
        return detector_id(made, MaxOrder()) if isinstance(made, Probe) else detector_id(OptionOrders(), made)

    assert id_of(part()) == id_of(later())
    assert "later=8" in id_of(later(later=8))


def test_parameters_that_change_no_verdict_are_not_in_the_id() -> None:
    @dataclass(frozen=True)
    class Asking:
        pool: tuple[str, ...] = field(default=(), metadata=OUTSIDE_ID)

    assert detector_id(Asking(("a",)), MaxOrder()) == "max_order@Asking"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        *((None, "none"), (True, "true"), (12, "12"), (12.0, "12"), (0.1 + 0.2, "0.3"), (-1e-7, "-1e-07")),
        *(("paper", "paper"), ("local-chat-completions", "local-chat-completions")),
    ],
)
def test_a_value_is_spelled_in_few_characters(value: object, written: str) -> None:
    assert spelled(value) == written


@pytest.mark.parametrize("value", ["two words", "a,b", "a=b", "x" * 25, "", "(", ("a", "b"), "\udc80"])
def test_a_value_that_would_hide_where_it_ends_is_a_digest(value: object) -> None:
    assert spelled(value).startswith("#")
    assert len(spelled(value)) == 9
    assert spelled(value) != spelled(f"{value} ")
