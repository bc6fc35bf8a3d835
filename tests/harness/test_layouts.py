"""Audits of option orders in several layouts: what is asked, what the log says, and what is found."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from lm_eval_leakage.detectors.option_orders import EVERY, LAYOUT_SETS, MIXED, ORDERS_IN_EVERY_LAYOUT, OptionOrders
from lm_eval_leakage.logs.audit_line import read_line
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.questions.rendering import LAYOUTS
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.data_verdict import data_verdict
from tests.fakes import FakeLM, by_hash
from tests.harness.test_control_form import DOCS, N_COMPARED, ORDERS, RISING, lines, verdict
from tests.harness.test_task import TASK, evaluate
from tests.logs.test_reference_log import log

N_LAYOUTS = len(LAYOUT_SETS[MIXED])
IN_MIXED, IN_EVERY = {"layouts": MIXED}, {"layouts": EVERY}
JSON_ROWS = {
    json.dumps({"question": doc["question"], "choices": doc["choices"]}, ensure_ascii=False)[: -len('"]}')]
    for doc in DOCS
}
CSV_ROWS = {",".join([doc["question"], *doc["choices"]]) for doc in DOCS}


def remembers(rows: set[str], nats: float = 4.0):
    """A model that has seen these rows, and nothing else."""
    return lambda context, continuation: by_hash(context, continuation) + nats * (context + continuation in rows)


def test_each_of_fifteen_orders_is_asked_in_each_layout_and_the_control_of_twelve_in_capitals_too(
    questions_file,
) -> None:
    lm = FakeLM(by_hash)
    results = evaluate(lm, questions_file(DOCS) | IN_EVERY)
    texts = [context + continuation for context, continuation in lm.requests]
    n_layouts = len(LAYOUT_SETS[EVERY])
    assert len(texts) == len(DOCS) * (ORDERS_IN_EVERY_LAYOUT * n_layouts + N_COMPARED * (1 + n_layouts))
    assert {*texts} >= JSON_ROWS | CSV_ROWS
    assert {row.upper() for row in JSON_ROWS} <= {*texts}
    rows = [json.loads(text + '"]}') for text in texts if text.startswith('{"question')]
    assert len(rows) == len(DOCS) * ORDERS_IN_EVERY_LAYOUT
    cells = [
        next(csv.reader([text])) for text in texts if "\n" not in text and text.startswith("Which") and "," in text
    ]
    assert [cell[1:] for cell in cells] == [row["choices"] for row in rows], "the same orders in each layout"
    line = lines(results, "max_order")[0]
    assert (line["n_orders"], line["layouts"]) == (ORDERS_IN_EVERY_LAYOUT, "audited json csv inline")
    assert line["detector"] == "max_order:layouts=every"


def test_a_question_that_counts_in_no_verdict_is_asked_in_one_layout(questions_file) -> None:
    """A natural order is no evidence, unless the orders were drawn."""
    results = evaluate(FakeLM(by_hash), questions_file([*RISING, *DOCS]) | IN_EVERY)
    for line in lines(results, "max_order"):
        figures = (len(line["resps"]), line["n_orders"], line.get("layouts"))
        n_layouts = len(LAYOUT_SETS[EVERY])
        in_every = (
            ORDERS_IN_EVERY_LAYOUT * n_layouts + N_COMPARED * (1 + n_layouts),
            ORDERS_IN_EVERY_LAYOUT,
            " ".join(LAYOUTS),
        )
        assert figures == ((ORDERS_IN_EVERY_LAYOUT, ORDERS_IN_EVERY_LAYOUT, None) if line["guards"] else in_every)
        read = read_line(line, TASK)
        assert (read.reason, len(read.orders.loglikelihoods)) == (None, line["n_orders"])
    assert (verdict(results)["n"], verdict(results)["n_asked"]) == (len(DOCS), 2 * len(DOCS))
    drawn = evaluate(FakeLM(by_hash), questions_file([RISING[0], *DOCS]) | IN_EVERY | {ORDERS: "random: page 3"})
    assert {line["layouts"] for line in lines(drawn, "max_order")} == {" ".join(LAYOUTS)}


@pytest.mark.parametrize(("rows", "layouts"), [(JSON_ROWS, IN_EVERY), (CSV_ROWS, IN_EVERY), (CSV_ROWS, IN_MIXED)])
@pytest.mark.parametrize("drawn", [True, False])
def test_memory_of_another_layout_is_found_only_where_it_is_asked(questions_file, rows, layouts, drawn: bool) -> None:
    metadata = questions_file(DOCS) | ({ORDERS: "random: page 3"} if drawn else {})
    alone, mixed = (verdict(evaluate(FakeLM(remembers(rows)), metadata | more)) for more in ({}, layouts))
    assert (alone["word"], mixed["word"]) == ("inconclusive", "strong evidence")
    assert mixed["basis"] == ("orders" if drawn else "control")
    assert "evidence" not in verdict(evaluate(FakeLM(by_hash), metadata | layouts))["word"]


def test_the_log_gives_the_verdict_of_the_run(questions_file) -> None:
    results = evaluate(FakeLM(remembers(CSV_ROWS, 1.0)), questions_file(DOCS) | IN_MIXED)
    read = [read_line(line, TASK) for line in lines(results, "max_order")]
    verdict_of_log = data_verdict(line.orders for line in read if line.orders is not None)
    assert verdict_of_log.pvalue == pytest.approx(verdict(results)["pvalue"], rel=1e-4)
    assert verdict_of_log.tested.mean == pytest.approx(verdict(results)["mean"], rel=1e-4)
    for line, answer in zip(lines(results, "max_order"), read, strict=True):
        values = np.array([response[0][0] for response in line["resps"]])
        compared = values[: N_COMPARED * N_LAYOUTS].reshape(N_LAYOUTS, -1)
        standard = np.log(
            np.exp((compared - compared.mean(1, keepdims=True)) / compared.std(1, keepdims=True)).mean(0)
        )
        assert np.argmax(standard) == np.argmax(answer.loglikelihoods) == line["best_order"]
        assert np.corrcoef(standard, answer.loglikelihoods)[0, 1] == pytest.approx(1)


def test_a_reference_in_other_layouts_is_not_compared(questions_file, tmp_path: Path) -> None:
    metadata = questions_file(DOCS) | {"control_form": False}
    log(evaluate(FakeLM(remembers(CSV_ROWS)), metadata | IN_MIXED), tmp_path / "own", TASK, "own")
    for name, more in (("alike", IN_MIXED), ("unlike", {"orders": N_COMPARED})):
        log(evaluate(FakeLM(lambda *texts: by_hash(*reversed(texts))), metadata | more), tmp_path / name, TASK, name)
    basis = {}
    for name in ("alike", "unlike"):
        (annotation,) = annotate([tmp_path / "own"], references=[tmp_path / name])
        basis[name] = next(row.verdict.basis for row in annotation.rows)
    assert basis == {"alike": "reference", "unlike": "ratio"}


def test_other_layouts_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="layouts is 'xml'; choose one of: audited, mixed, every"):
        OptionOrders(layouts="xml")
    with pytest.raises(ValueError, match="layouts is 'mixed' and orders is 'paper', which are scored as in the paper"):
        OptionOrders(layouts=MIXED, orders="paper")
    probe = OptionOrders(layouts=MIXED, orders=24)
    assert len(probe.requests(question_from_doc(DOCS[0]))) == 24 * N_LAYOUTS
