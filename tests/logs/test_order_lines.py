"""Lines of audits of option orders: what the verdict on the data set is computed from, byte for byte and as read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from lm_eval_leakage.logs.audit_line import OF_ORDERS, SHARED_TEXTS, read_line, written_line
from lm_eval_leakage.records import DeclaredRow, OrderAnswers
from lm_eval_leakage.results.data_verdict import VERDICT_ROWS
from tests.logs.kinds import KINDS, Kind
from tests.logs.test_golden import GOLDEN


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
    read = read_line(json.loads(line), "bench_leakage_perm")
    assert read.orders == orders  # the numbers are exact in single precision
    assert not set(OF_ORDERS) & set(read.values)


def test_what_a_question_shares_is_read_as_written_whatever_the_row_holds() -> None:
    line = written(PLAIN, replace(AUDITS["drawn"][1], shared=("0a", "1b"))) | {"doc": {"text": "of no known layout"}}
    read = read_line(line, "bench_leakage_perm")
    assert line[SHARED_TEXTS] == "0a 1b"
    assert read.orders is not None
    assert read.orders.shared == ("0a", "1b")
    assert SHARED_TEXTS not in read.values


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"reference_loglikelihoods": "-1.0"}, "reference_loglikelihoods has 1 numbers for 2 orders"),
        ({"reference_loglikelihoods": "-1.0,x"}, "could not convert string to float"),
        ({"reference_loglikelihoods": [-1.0, -2.0]}, "reference_loglikelihoods is"),
        ({"published_orders": 3}, "published_orders is 3"),
        ({"compared_orders": "0,2"}, "compared_orders is .*, which are not places among 2 orders, 0 first"),
        ({"compared_orders": "1,0"}, "compared_orders is .*, which are not places among 2 orders, 0 first"),
        ({"right_places": "0"}, "right_places is .*, which are not the places of the right option in 2 orders"),
    ],
)
def test_a_broken_value_is_named(change: dict, error: str) -> None:
    line = json.loads(ORDER_LINES[list(AUDITS).index("with reference")])
    with pytest.raises((ValueError, TypeError), match=error):
        read_line(line | change, "bench_leakage_perm")


@pytest.mark.parametrize("n_answers", [0, 1, 3, 4, 5])
def test_a_number_of_answers_that_fits_no_number_of_orders_is_no_answer_to_them(n_answers) -> None:
    line = json.loads(ORDER_LINES[1]) | {"resps": [[["-1.0", "False"]]] * n_answers}
    assert read_line(line, "bench_leakage_perm").orders is None
