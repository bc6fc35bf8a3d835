"""Rows that stand twice in a benchmark change no verdict, p-value, power or rate."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.results.verdict_record import CheckedTask
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions, written

pytestmark = pytest.mark.usefixtures("only_given_tasks", "fakes")

OF_ACCURACY = {"accuracy", "accuracy_stderr", "accuracy_low", "accuracy_high"}
OF_ALL_ROWS = {"n", "n_copies", "figures", "reason", "sentence", "time", "citation"} | OF_ACCURACY
OF_ALL_ROWS |= {"digest", "accuracy_clean", "accuracy_clean_low", "accuracy_clean_high"}


def otherwise(doc: dict[str, Any]) -> dict[str, Any]:
    """The same question, typed by someone else."""
    text = unicodedata.normalize("NFD", doc["question"]).upper()
    return doc | {"question": f" {text.replace(' ', '  ')}", "choices": [option.title() for option in doc["choices"]]}


def numbers(verdict: CheckedTask) -> dict[str, Any]:
    return {name: value for name, value in verdict.values.items() if name not in OF_ALL_ROWS}


def details(folder: Path) -> list[dict[str, Any]]:
    """Return of each audit the numbers about the verdict, and those that the harness's table shows."""
    groups = []
    for file in sorted((folder / "out" / "runs").rglob("results_*.json")):
        content = json.loads(file.read_text())
        for name, details_of_task in content.get("leakage_details", {}).items():
            verdict = {key: value for key, value in details_of_task.get("verdict", {}).items() if key != "sentence"}
            hidden = {
                key: value for key, value in details_of_task.items() if key not in ("verdict", "copies_left_out")
            }
            shown = {key: value for key, value in content["results"][name].items() if key != "sample_len"}
            groups.append({"verdict": verdict, **hidden, **shown})
    return sorted(groups, key=lambda group: group["alias"])


@pytest.mark.parametrize("order", ["each twice in a row", "the whole file twice", "typed by someone else"])
def test_a_file_with_every_row_twice_has_the_numbers_of_the_file_without(
    fakes: type[NamedFake], tmp_path: Path, order: str
) -> None:
    docs = questions(30, n_options=3)
    fakes.score = staticmethod(OptionOrders(docs[:12], (3.0, 0.0)))
    twice = {
        "each twice in a row": [doc for doc in docs for _ in range(2)],
        "the whole file twice": docs + docs,
        "typed by someone else": docs + list(map(otherwise, docs)),
    }[order]
    (once,) = checked(tmp_path / "once", written(tmp_path, docs)).verdicts
    outcome = checked(tmp_path / "twice", written(tmp_path, twice))
    (copied,) = outcome.verdicts
    assert numbers(copied) == numbers(once)
    assert details(tmp_path / "twice") == details(tmp_path / "once")  # the harness's own table
    assert copied.pvalue is not None
    assert (once.n, once.n_copies, copied.n, copied.n_copies) == (30, 0, 60, 30)
    assert "30 copies of questions were left out" in copied.figures
    assert "30 copies of questions were left out" in copied.sentence
    assert "30 copies of questions were left out" in outcome.page.read_text()
    assert json.loads((tmp_path / "twice" / "out" / "verdicts.json").read_text())["verdicts"][0]["n_copies"] == 30


def test_questions_are_drawn_and_not_copies(tmp_path: Path) -> None:
    docs = questions(30, n_options=3)
    file = written(tmp_path, docs + list(map(otherwise, docs)))
    (verdict,) = checked(tmp_path, file, questions=24).verdicts
    assert (verdict.n, verdict.n_copies, verdict.n_tested) == (24, 0, 24)


def test_too_few_questions_are_not_enough_as_copies(tmp_path: Path) -> None:
    docs = questions(12)
    outcome = checked(tmp_path, written(tmp_path, docs + docs))
    assert outcome.verdicts[0].verdict == "no verdict"
    assert "12 questions are too few for a verdict, which needs 20" in outcome.plan.as_text
