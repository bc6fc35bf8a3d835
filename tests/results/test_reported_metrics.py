"""Numbers of a run that cannot be right."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.results import columns
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.result_types import Annotation, Row
from tests.results.harness_files import answered, audited, row, write_run

N = 40
RIGHT = [number % 4 == 0 for number in range(N)]  # an accuracy of 0.25


def written(folder: Path, task: str = "bench", metric: str = "acc", **how: Any) -> Path:
    """A run of a task and its audit."""
    lines = [answered(number, row(number), RIGHT[number], metric=metric) for number in range(N)]
    place = write_run(folder, "m", {task: lines}, **how)
    changed(
        place,
        lambda content: content["results"].update({task: {f"{metric},none": 0.25, f"{metric}_stderr,none": 0.07}}),
    )
    write_run(folder, "m", {"bench_leakage_perm": [audited(row(number), number % 4 == 0) for number in range(N)]})
    return place


def changed(place: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = min(place.glob("results_*.json"))
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def with_lines(place: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    file = min(place.glob("samples_bench_2*.jsonl"))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    change(lines)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def of_task(annotation: Annotation, name: str = "bench") -> Row:
    return next(row for row in annotation.rows if row.task == name)


def said(annotation: Annotation) -> str:
    return "\n".join(map(str, annotation.problems))


def test_an_accuracy_that_is_the_mean_of_the_samples_passes(tmp_path: Path) -> None:
    written(tmp_path)
    (annotation,) = annotate([tmp_path])
    assert of_task(annotation).accuracy.value == 0.25
    assert columns.ACCURACY_FLAGGED.of(of_task(annotation)).value == 1
    assert not annotation.problems


def test_an_accuracy_that_is_not_the_mean_of_the_samples_is_left_out_with_both(tmp_path: Path) -> None:
    changed(written(tmp_path), lambda content: content["results"]["bench"].update({"acc,none": 0.9}))
    (annotation,) = annotate([tmp_path])
    assert math.isnan(of_task(annotation).accuracy.value)
    assert math.isnan(columns.ACCURACY_FLAGGED.of(of_task(annotation)).value)
    assert "acc,none is 0.9, but its samples have 0.25 on average" in said(annotation)
    assert of_task(annotation).n_tested == N  # the audit is judged as ever


@pytest.mark.parametrize("metric", ["acc", "acc_norm", "exact_match"])
@pytest.mark.parametrize("value", [27.5, -0.1, math.inf, math.nan, None])
def test_an_accuracy_outside_0_and_1_is_left_out(tmp_path: Path, metric: str, value: float | None) -> None:
    place = written(tmp_path, metric=metric)
    changed(place, lambda content: content["results"]["bench"].update({f"{metric},none": value}))
    (annotation,) = annotate([tmp_path])
    assert math.isnan(of_task(annotation).accuracy.value)
    assert f"{metric},none is {value!r}, which is not between 0 and 1; the accuracy is left out" in said(annotation)


@pytest.mark.parametrize("value", [7, -1, math.inf, math.nan, None, "1"])
def test_a_question_whose_accuracy_is_none_is_left_out_and_so_is_the_mean(tmp_path: Path, value: object) -> None:
    with_lines(written(tmp_path), lambda lines: lines[3].update(acc=value))
    (annotation,) = annotate([tmp_path])
    assert math.isnan(of_task(annotation).accuracy.value)
    assert f"line 4: acc,none is {value!r}, which is not between 0 and 1" in said(annotation)
    assert [question.doc_id for question in annotation.questions if not question.scores] == [3]


def test_lines_of_one_question_that_disagree_count_in_none_and_equal_ones_once(tmp_path: Path) -> None:
    place = written(tmp_path)
    with_lines(place, lambda lines: lines.append(dict(lines[0])))
    (annotation,) = annotate([tmp_path])
    assert of_task(annotation).accuracy.value == 0.25
    with_lines(place, lambda lines: lines.append({**lines[5], "acc": 1.0}))
    (annotation,) = annotate([tmp_path])
    assert math.isnan(of_task(annotation).accuracy.value)
    assert "acc,none is 1.0, but another number in an earlier line of the same question" in said(annotation)
    assert [question.doc_id for question in annotation.questions if not question.scores] == [5]


@pytest.mark.parametrize("stderr", [-0.1, 3.0, math.inf])
def test_a_standard_error_that_cannot_be_one_is_left_out(tmp_path: Path, stderr: float) -> None:
    changed(written(tmp_path), lambda content: content["results"]["bench"].update({"acc_stderr,none": stderr}))
    (annotation,) = annotate([tmp_path])
    assert of_task(annotation).accuracy.value == 0.25
    assert not of_task(annotation).accuracy.stderr < 0
    assert f"the standard error of acc,none is {stderr!r}" in said(annotation)


def test_a_metric_that_the_harness_does_not_average_is_not_compared(tmp_path: Path) -> None:
    place, metrics = written(tmp_path), [{"metric": "acc", "aggregation": "weighted"}]
    changed(place, lambda content: content["configs"].update(bench={"metric_list": metrics}))
    changed(place, lambda content: content["results"]["bench"].update({"acc,none": 0.9}))
    assert of_task(annotate([tmp_path])[0]).accuracy.value == 0.9


def grouped_run(folder: Path, values: Mapping[str, float]) -> Path:
    """A group of two tasks with 10 and 30 questions, of which 1 and 9 are answered correctly."""
    logs = {
        "bench_a": [answered(number, row(number), number < 1) for number in range(10)],
        "bench_b": [answered(number, row(100 + number), number < 9) for number in range(30)],
    }
    place = write_run(folder, "m", logs, groups={"bench": ["bench_a", "bench_b"]})
    for section in ("results", "groups"):
        changed(place, lambda content, name=section: content[name]["bench"].update(values))
    return place


@pytest.mark.parametrize(
    ("value", "is_right"), [(0.25, True), (0.2, True), (0.22, False), (0.9, False), (25.0, False)]
)
def test_the_accuracy_of_a_group_is_a_mean_of_those_of_its_tasks(tmp_path: Path, value: float, is_right: bool) -> None:
    grouped_run(tmp_path, {"acc,none": value})
    (annotation,) = annotate([tmp_path])
    assert (of_task(annotation).accuracy.value == value) is is_right
    assert ("bench: the results file says that acc,none" in said(annotation)) is not is_right


def test_a_group_with_a_task_whose_accuracy_is_left_out_has_none(tmp_path: Path) -> None:
    place = grouped_run(tmp_path, {"acc,none": 0.4})
    changed(place, lambda content: content["results"]["bench_a"].update({"acc,none": 0.5}))
    (annotation,) = annotate([tmp_path])
    assert math.isnan(of_task(annotation).accuracy.value)
    assert "bench: acc,none counts bench_a, whose own is left out" in said(annotation)


def test_a_group_with_a_task_of_which_the_file_says_nothing_has_no_accuracy(tmp_path: Path) -> None:
    place = grouped_run(tmp_path, {})
    changed(place, lambda content: content["results"].pop("bench_a"))
    (annotation,) = annotate([tmp_path])
    assert math.isnan(of_task(annotation).accuracy.value)
    assert "bench: acc,none counts bench_a, of which the results file says nothing" in said(annotation)
