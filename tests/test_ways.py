"""How many files one has to open to follow a question or a run through the package, counted by profiling."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager
from lm_eval.utils import make_table

import lm_eval_leakage
from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.table.aggregations import JudgedQuestion, RowValue
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.records import Answered, Evidence, Measurement, Question, Request, Skipped
from lm_eval_leakage.results.annotate import annotate
from tests.fakes import FakeLM, by_hash
from tests.results.harness_files import answered, audited, row, write_run

PACKAGE = Path(lm_eval_leakage.__file__).parent
FORMS = (Question, Request, Instance, Answered, Evidence, Measurement, Skipped, JudgedQuestion, RowValue)
SKY = {"question": "Which colour has the sky?", "subject": "art", "choices": ["red", "blue", "lime", "grey"]}


class Way:
    """The files of the package in which functions run, in the order in which they are entered.

    entered: each file with the file of its first caller
    holding: files in which a function takes or returns the question, in one of its FORMS or as its data row
    """

    def __init__(self) -> None:
        self.entered: dict[str, str | None] = {}
        self.holding: set[str] = set()

    def __enter__(self) -> Way:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, result: object) -> None:
        file = _file(frame)
        if file is None or event not in ("call", "return"):
            return
        caller = frame.f_back
        while caller is not None and _file(caller) is None:
            caller = caller.f_back
        self.entered.setdefault(file, None if caller is None else _file(caller))
        given = list(frame.f_locals.values()) if event == "call" else [result]
        if any(map(_is_the_question, given)):
            self.holding.add(file)

    @property
    def n_returns(self) -> int:
        """How often a new file is entered from another file than the previous new one, so that whoever follows the
        calls has to go back first."""
        files = list(self.entered)
        return sum(self.entered[file] != last for last, file in pairwise(files))


def _file(frame: FrameType) -> str | None:
    file = Path(frame.f_code.co_filename)
    if frame.f_code.co_name == "<module>" or not file.is_relative_to(PACKAGE):
        return None
    return str(file.relative_to(PACKAGE))


def _is_the_question(value: object, depth: int = 2) -> bool:
    if isinstance(value, Mapping) and value.get("question") == SKY["question"]:
        return True
    if isinstance(value, (list, tuple)) and depth:
        return any(_is_the_question(part, depth - 1) for part in value[:1])
    return isinstance(value, FORMS)


def test_a_question_goes_from_its_row_to_its_printed_line_through_at_most_16_files(
    tmp_path: Path,
    questions_file: Callable[[list[dict[str, Any]]], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One question, one statistic, from the first look at its data row until the table is a text.

    Nine of the helpers serve the verdict on the data set: the status of its published orders (three files, one of
    which holds the questions), the frame that orders and control share, the verdict, its test, its rows, its words,
    and their numbers' format. Not counted is what a run says first, for which a sample of the questions is read.
    """
    caplog.set_level(logging.WARNING, "lm_eval.leakage")
    ours = task_configs_path() / "mmlu" / "mmlu_leakage_perm.yaml"
    (tmp_path / "one.yaml").write_text(
        f"include: {ours}\ntask: one\nfilter_list:\n  - name: max_order\n    filter:\n      - function: leakage\n"
        "        statistic: max_order\n"
    )
    metadata = questions_file([SKY | {"answer": 1}])
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False, metadata=metadata)
    way, construct_requests = Way(), LeakageTask.construct_requests

    def begin(*args: Any, **kwargs: Any) -> Any:
        way.__enter__()
        return construct_requests(*args, **kwargs)

    monkeypatch.setattr(LeakageTask, "construct_requests", begin)
    try:
        table = make_table(simple_evaluate(model=FakeLM(by_hash), tasks=["one"], task_manager=manager))
    finally:
        way.__exit__()
    assert "flagged_rate" in table
    assert {"harness/tasks/task.py", "statistics/max_order.py", "inference/pooling.py"} <= way.holding
    assert len(way.holding) <= 16, sorted(way.holding)
    assert len(way.entered) <= 31, list(way.entered)  # including those that see only options, texts or numbers


def test_a_run_is_annotated_through_at_most_15_files_with_6_returns(tmp_path: Path) -> None:
    docs = [row(number) for number in range(24)]
    lines = [answered(number, doc, number % 2 == 0) for number, doc in enumerate(docs)]
    write_run(tmp_path, "m", {"bench_history": lines}, groups={"bench": ["bench_history"]})
    write_run(tmp_path, "m", {"bench_leakage_perm": [audited(doc, n % 3 == 0) for n, doc in enumerate(docs)]})
    with Way() as way:
        (annotation,) = annotate([tmp_path])
    assert [found.task for found in annotation.rows] == ["bench", "bench_history"]
    assert {"results/annotate.py", "logs/audits.py", "results/rows.py"} <= way.entered.keys()
    assert len(way.entered) <= 15, list(way.entered)
    assert way.n_returns <= 6, way.entered
