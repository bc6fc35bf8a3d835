"""The log's format byte for byte, and how it is read. A change of these files is a change of the format: raise the
version, and say so in docs/log_format.md."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import get_origin

import pytest

from lm_eval_leakage.detectors import probes, statistics
from lm_eval_leakage.logs.audit_line import CORE, OF_FILLERS, OF_HARNESS, OF_ORDERS, Arms, read_line, written_line
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import DeclaredRow, Evidence, Measurement, OrderAnswers
from lm_eval_leakage.registry import detector_id
from lm_eval_leakage.results.verdict_numbers import VERDICT_ROWS
from tests.logs.kinds import DOC, KINDS, Kind

GOLDEN = Path(__file__).with_name("golden")
LINES = (GOLDEN / "lines.jsonl").read_text(encoding="utf-8").splitlines()
every_kind = pytest.mark.parametrize(("kind", "line"), list(zip(KINDS.values(), LINES, strict=True)), ids=KINDS)


class OfOrders(Kind):
    """A kind in an audit whose task has the rows of the verdict on the data set."""

    @property
    def rows(self) -> dict[str, DeclaredRow]:
        return {row.name: row for row in VERDICT_ROWS} | super().rows


ORDER_LINES = (GOLDEN / "order_audits.jsonl").read_text(encoding="utf-8").splitlines()
OWN, CONTROL, REFERENCE = (-20.5, -21.0), (-10.25, -9.75, -11.5, -12.0), (-24.125, -23.5)
PLAIN, GUARDED, AGAINST = (KINDS[f"max_order{of}"] for of in ("_unguarded", "", "_with_reference"))
AUDITS = {
    "drawn": (OfOrders(**vars(PLAIN)), OrderAnswers(OWN, "drawn")),
    "with control": (
        OfOrders(**vars(GUARDED) | {"answers": OWN + CONTROL}),
        OrderAnswers(OWN, "written", True, CONTROL, compared=(0, 1)),
    ),
    "with reference": (OfOrders(**vars(AGAINST)), OrderAnswers(OWN, "too few to say", False, (), REFERENCE)),
    "with nothing else": (OfOrders(**vars(GUARDED)), OrderAnswers(OWN, "written", True)),
}
OF_ORDERS_AND_LINES = [(*audit, line) for audit, line in zip(AUDITS.values(), ORDER_LINES, strict=True)]
OF_OTHERS = [(kind, None, line) for kind, line in zip(KINDS.values(), LINES, strict=True)]


def id_of_kind(kind: Kind) -> str:
    return detector_id(probes.get(kind.probe)(), statistics.get(kind.statistic)(), kind.reference)


def written(kind: Kind, orders: OrderAnswers | None = None) -> dict:
    return written_line(
        kind.verdict,
        benchmark="bench",
        detector=id_of_kind(kind),
        guards=kind.guards,
        contributions=kind.contributions,
        orders=orders,
        fillers=getattr(kind.verdict, "answers", None),
    )


# ---------------------------------------------------------------------- lines


@pytest.mark.parametrize(("kind", "orders", "line"), OF_OTHERS + OF_ORDERS_AND_LINES, ids=[*KINDS, *AUDITS])
def test_a_line_is_written_as_it_always_was(kind: Kind, orders: OrderAnswers | None, line: str) -> None:
    assert json.dumps(kind.of_harness | written(kind, orders)) == line


@every_kind
def test_a_line_is_read_into_its_fields(kind: Kind, line: str) -> None:
    sample = json.loads(line)
    read = read_line(sample, "another_name")
    for key in ("benchmark", "filter", "doc", "doc_id", "flagged", "null_rate", "pvalue", "reason"):
        assert getattr(read, key) == sample[key], key
    assert (read.question, read.detector, read.subject) == (sample["doc_hash"], id_of_kind(kind), "chemistry")
    assert (read.guards, read.read, read.row_names) == (kind.guards, question_from_doc(DOC), tuple(kind.rows))
    ranks = [key for key in sample["ranks_by"].split(",") if key and sample[key] is not None]
    assert [*read.scores.values()] == [sample[key] for key in ranks]
    assert all(name.startswith(read.detector) for name in read.scores)
    assert [*read.loglikelihoods] == ([*kind.answers] if "n_orders" in sample else [])
    arms = [sample[arm.name] for arm in fields(Arms)] if kind.statistic == "paired_accuracy" else None
    assert read.arms == (arms and Arms(*arms))
    others = {key: value for key, value in sample.items() if key not in (*CORE, *OF_FILLERS, *OF_HARNESS)}
    assert read.values == {key: value for key, value in others.items() if not isinstance(value, str | None)}
    assert read.orders is None
    assert read.fillers == getattr(kind.verdict, "answers", None)


def test_every_verdict_of_a_statistic_has_a_golden_line() -> None:
    """A field that is renamed is noticed here."""
    statistics.names()
    kinds = {
        verdict
        for name, module in sys.modules.items()
        if name.startswith("lm_eval_leakage.detectors.")
        for _, verdict in inspect.getmembers(module, inspect.isclass)
        if get_origin(verdict) is None  # Python 3.10 counts `Sequence[object]` as a class
        and issubclass(verdict, (Evidence, Measurement))
        and verdict not in (Evidence, Measurement)
    }
    assert kinds == {type(kind.verdict) for kind in KINDS.values()} - {type(KINDS["skipped"].verdict)}


@pytest.mark.parametrize("version", [4, 2, "3", None, True, 2.5])
def test_a_line_of_a_version_that_is_not_known_is_refused(version: object) -> None:
    with pytest.raises(ValueError, match="leakage_log is .*; this package reads version 3"):
        read_line(json.loads(LINES[0]) | {"leakage_log": version}, "bench_leakage_perm")


@pytest.mark.parametrize("key", ["detector", "benchmark", "ranks_by", "guards", "doc", "doc_hash"])
def test_a_line_without_what_it_is_known_by_is_refused(key: str) -> None:
    line = {name: value for name, value in json.loads(LINES[0]).items() if name != key}
    with pytest.raises(KeyError, match=key):
        read_line(line, "bench_leakage_perm")


# ---------------------------------------------------------------------- of option orders


@pytest.mark.parametrize(("kind", "orders", "line"), OF_ORDERS_AND_LINES, ids=AUDITS)
def test_a_line_is_read_as_the_answers_that_it_was_written_from(kind: Kind, orders: OrderAnswers, line: str) -> None:
    read = read_line(json.loads(line), "bench_leakage_perm")
    assert read.orders == orders  # the numbers are exact in single precision
    assert not set(OF_ORDERS) & set(read.values)


def test_what_a_question_shares_is_read_as_written_whatever_the_row_holds() -> None:
    ours = written(PLAIN, replace(AUDITS["drawn"][1], shared=("0a", "1b")))
    line = PLAIN.of_harness | ours | {"doc": {"text": "of no known layout"}}
    read = read_line(line, "bench_leakage_perm")
    assert line["shared_texts"] == "0a 1b"
    assert read.orders is not None
    assert read.orders.shared == ("0a", "1b")


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


@dataclass(frozen=True)
class Shadowing(Measurement):
    """A statistic of others, whose values take names of the log."""

    benchmark: str = "mine"
    detector: float = 0.5
    texts: tuple[str, ...] = ("a", "b")

    def values(self) -> dict[str, float]:
        return {"reason": 0.5}


def test_what_every_line_says_is_not_overwritten_by_a_statistics_own_values() -> None:
    added = {"reason": 0.5, "skipped": 0.0, "target": 1.0, "mine": 2.0}
    line = written_line(Shadowing(), benchmark="bench", detector="shadowing", contributions=added)
    assert (line["benchmark"], line["detector"], line["reason"]) == ("bench", "shadowing", None)
    assert not {"texts", "target"} & line.keys()
    assert line["mine"] == 2.0


@pytest.mark.parametrize("values", [{"generalized": True}, {"margin": "wide"}, {"n_orders": 1, "resps": [["a text"]]}])
def test_a_strangers_value_under_a_name_of_ours_costs_that_value_alone(values: dict) -> None:
    line = json.loads(LINES[list(KINDS).index("reproduction")]) | values
    read = read_line(line, "bench_leakage_x")
    assert (read.arms, "margin" in read.values, len(read.loglikelihoods)) == (None, False, 0)
