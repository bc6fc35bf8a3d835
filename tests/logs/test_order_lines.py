"""Lines of audits of option orders: what the verdict on the data set is computed from, byte for byte and as read."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lm_eval_leakage.logs.audit_line import COMPARED_ORDERS, CORE, OF_ORDERS, SHARED_TEXTS, read_line, written_line
from lm_eval_leakage.records import DeclaredRow, OrderAnswers
from lm_eval_leakage.results.data_verdict import VERDICT_ROWS
from tests.logs.kinds import KINDS, Kind
from tests.logs.test_golden import GOLDEN, LINES


class OfOrders(Kind):
    """A kind in an audit whose task has the rows of the verdict on the data set."""

    @property
    def rows(self) -> dict[str, DeclaredRow]:
        return {row.name: row for row in VERDICT_ROWS} | super().rows


ORDER_LINES = (GOLDEN / "order_audits.jsonl").read_text(encoding="utf-8").splitlines()
OWN, CONTROL, REFERENCE = (-20.5, -21.0), (-10.25, -9.75, -11.5, -12.0), (-24.125, -23.5)
PLAIN, GUARDED = KINDS["max_order_calibrated"], KINDS["max_order"]
AGAINST = KINDS["max_order_with_reference"]
AUDITS: Mapping[str, tuple[Kind, OrderAnswers]] = {
    "drawn": (OfOrders(**vars(PLAIN)), OrderAnswers(OWN, "drawn")),
    "with control": (
        OfOrders(**vars(GUARDED) | {"answers": OWN + CONTROL}),
        OrderAnswers(OWN, "written", True, CONTROL, compared=(0, 1)),
    ),
    "with reference": (OfOrders(**vars(AGAINST)), OrderAnswers(OWN, "too few to say", False, (), REFERENCE)),
    "with nothing else": (OfOrders(**vars(GUARDED)), OrderAnswers(OWN, "written", True)),
}
every_audit = pytest.mark.parametrize(
    ("kind", "orders", "line"),
    [(*audit, line) for audit, line in zip(AUDITS.values(), ORDER_LINES, strict=True)],
    ids=AUDITS,
)


def written(kind: Kind, orders: OrderAnswers | None) -> dict:
    own = written_line(
        kind.verdict,
        benchmark="bench",
        detector="max_order" if kind.reference is None else f"max_order:reference={kind.reference}",
        guards=kind.guards,
        contributions=kind.contributions,
        calibrated=kind.calibrated,
        orders=orders,
    )
    return kind.of_harness | own


@every_audit
def test_a_line_is_written_as_it_always_was(kind: Kind, orders: OrderAnswers, line: str) -> None:
    assert json.dumps(written(kind, orders)) == line


@every_audit
def test_a_line_is_read_as_the_answers_that_it_was_written_from(kind: Kind, orders: OrderAnswers, line: str) -> None:
    read = read_line(json.loads(line), kind.task)
    assert read.orders == orders  # the numbers are exact in single precision
    assert (read.loglikelihoods, read.control) == (array("f", orders.loglikelihoods), array("f", orders.control))
    assert not set(OF_ORDERS) & set(read.values)


def test_what_a_question_shares_is_read_as_written_whatever_the_row_holds() -> None:
    line = written(PLAIN, replace(AUDITS["drawn"][1], shared=("0a", "1b"))) | {"doc": {"text": "of no known layout"}}
    read = read_line(line, PLAIN.task)
    assert line[SHARED_TEXTS] == "0a 1b"
    assert read.orders is not None
    assert read.orders.shared == ("0a", "1b")
    assert SHARED_TEXTS not in read.values


@every_audit
def test_the_keys_of_orders_stand_after_those_of_every_line(kind: Kind, orders: OrderAnswers, line: str) -> None:
    own = list(json.loads(line))
    begin = own.index(CORE[-1]) + 1
    assert tuple(own[begin : begin + 2]) == OF_ORDERS


@every_audit
def test_without_them_it_is_a_line_of_another_statistic_and_has_no_orders(
    kind: Kind, orders: OrderAnswers, line: str
) -> None:
    without = {key: value for key, value in json.loads(line).items() if key not in (*OF_ORDERS, COMPARED_ORDERS)}
    assert without == written(kind, None)
    read = read_line(without, kind.task)
    assert read.orders is None
    assert read.published_orders is None


@pytest.mark.parametrize("line", LINES)
def test_lines_of_other_audits_are_read_without_orders(line: str) -> None:
    read = read_line(json.loads(line), "bench_leakage_perm")
    assert (read.orders, read.published_orders) == (None, None)
    assert not read.control
    assert not read.reference


def test_numbers_are_read_in_single_precision() -> None:
    orders = OrderAnswers((-20.123456789, -21.0), "drawn", False, (), (-1 / 3, -2 / 3))
    line = written(PLAIN, orders) | {"resps": [[[repr(value), "False"]] for value in orders.loglikelihoods]}
    read = read_line(line, PLAIN.task).orders
    assert read is not None
    assert read.loglikelihoods == pytest.approx(orders.loglikelihoods, rel=1e-7)
    assert read.reference == pytest.approx(orders.reference, rel=1e-7)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"reference_loglikelihoods": "-1.0"}, "reference_loglikelihoods has 1 numbers for 2 orders"),
        ({"reference_loglikelihoods": "-1.0,x"}, "could not convert string to float"),
        ({"reference_loglikelihoods": [-1.0, -2.0]}, "reference_loglikelihoods is"),
        ({"published_orders": 3}, "published_orders is 3"),
    ],
)
def test_a_broken_value_is_named(change: dict, error: str) -> None:
    line = json.loads(ORDER_LINES[list(AUDITS).index("with reference")])
    with pytest.raises((ValueError, TypeError), match=error):
        read_line(line | change, PLAIN.task)


@pytest.mark.parametrize("n_answers", [0, 1, 3, 4, 5])
def test_a_number_of_answers_that_fits_no_number_of_orders_is_no_answer_to_them(n_answers) -> None:
    line = json.loads(ORDER_LINES[1]) | {"resps": [[["-1.0", "False"]]] * n_answers}
    assert read_line(line, PLAIN.task).orders is None


def test_the_golden_lines_are_one_per_audit_and_have_distinct_orders() -> None:
    assert Path(GOLDEN / "order_audits.jsonl").read_text(encoding="utf-8").endswith("\n")
    assert len({orders for _, orders in AUDITS.values()}) == len(AUDITS) == len(ORDER_LINES)
