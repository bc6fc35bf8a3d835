"""A direct run of an audit says before anything is asked that no answers can give a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.results.data_verdict import untestable
from tests.checking.conftest import questions
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import evaluate
from tests.written_tasks import LETTERED, write_task

WARNED = "there will be no verdict: "


def in_a_natural_order(n: int) -> list[dict[str, Any]]:
    choices = ([str(first + place) for place in range(4)] for first in range(n))
    return [doc | {"choices": option} for doc, option in zip(questions(n), choices, strict=True)]


def warnings_of(folder: Path, name: str, caplog: pytest.LogCaptureFixture, **metadata: Any) -> list[str]:
    """Those of the run that precede its first request."""
    lm = FakeLM(by_hash)
    n_asked: list[int] = []
    caplog.clear()
    caplog.handler.addFilter(lambda record: bool(n_asked.append(len(lm.requests))) or True)
    evaluate(lm, metadata or None, [name], folder)
    warnings = [(record.getMessage(), n) for record, n in zip(caplog.records, n_asked, strict=True)]
    return [message for message, n in warnings if WARNED in message and n == 0]


def test_the_reason_is_logged_before_anything_is_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_task(tmp_path, "numbers", in_a_natural_order(30), **LETTERED)
    (warning,) = warnings_of(tmp_path, "numbers_leakage_perm", caplog)
    assert "30 of 30 questions have a natural order (in_order 30); " in warning
    assert "no number of questions is enough" in warning


def test_a_benchmark_whose_questions_can_be_tested_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_task(tmp_path, "plain", [*questions(25), *in_a_natural_order(30)], **LETTERED)
    assert warnings_of(tmp_path, "plain_leakage_perm", caplog) == []
    assert warnings_of(tmp_path, "plain_leakage_perm", caplog, control_form=False) == []


def test_a_group_is_warned_of_once_and_only_if_its_questions_together_are_too_few(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_task(tmp_path, "numbers", in_a_natural_order(30), **LETTERED)
    write_task(tmp_path, "more", in_a_natural_order(60)[30:], **LETTERED)
    write_task(tmp_path, "plain", questions(25), **LETTERED)
    for name, members in (("all", ("numbers", "more")), ("mixed", ("numbers", "plain"))):
        (tmp_path / f"{name}.yaml").write_text(f"group: {name}\ntask: [{', '.join(members)}]\n")
    (warning,) = warnings_of(tmp_path, "all_leakage_perm", caplog)
    assert "60 of 60 questions" in warning
    assert warnings_of(tmp_path, "mixed_leakage_perm", caplog) == []


def test_no_questions_have_no_test() -> None:
    assert untestable([]) is not None
    assert untestable([OrderAnswers((0.0, 1.0), guarded=True)] * 30) is not None
