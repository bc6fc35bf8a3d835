"""Runs that were done in shards, read from files as the harness writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.logs.run import DATA, OF_ALL_SHARDS, SHARD, digest_of
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.conditions import check_complete
from lm_eval_leakage.results.leaderboard import leaderboard
from lm_eval_leakage.results.result_types import Annotation
from lm_eval_leakage.results.tables import write
from tests.results.harness_files import answered, audited, row, write_run

N = 10
RIGHT = [number in (0, 1, 2, 5, 9) for number in range(N)]
AUDIT = "bench_leakage_perm"
Change = Callable[[dict[str, Any]], None]


def write_shard(
    folder: Path,
    index: int,
    n_shards: int,
    *,
    right: Sequence[bool] = RIGHT,
    change: Change = lambda results: None,
    arguments: Mapping[str, Any] | None = None,
    n_shot: int = 0,
    doc_ids: Sequence[int] | None = None,
) -> Path:
    """One shard of the task `bench` and of its audit. Returns the samples log of the task."""
    own = range(index, N, n_shards)
    lines = [answered(number, row(number), right[number]) for number in own]
    lines = [line | {"doc_id": number} for line, number in zip(lines, doc_ids or own, strict=True)]
    verdicts = [audited(row(number), number % 3 == 0, doc_id=number) for number in own]
    logs = {"bench": lines, AUDIT: verdicts}
    before = {*folder.rglob("*")}
    write_run(folder, "m", logs, arguments={"pretrained": "m"} if arguments is None else arguments, n_shot=n_shot)
    results, log = (next(iter({*folder.rglob(name)} - before)) for name in ("results_*", "samples_bench_2*"))
    content = json.loads(results.read_text())
    metadata = {SHARD: f"{index}/{n_shards}", OF_ALL_SHARDS: N}
    content["configs"] = {task: {"task": task, "metadata": dict(metadata)} for task in logs}
    values = [right[number] for number in own]
    told = {"acc,none": sum(values) / len(values), "acc_stderr,none": stderr(values)}
    content["results"]["bench"] |= told
    change(content)
    results.write_text(json.dumps(content))
    return log


def stderr(values: Sequence[bool]) -> float | str:
    n, mean = len(values), sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1)) / math.sqrt(n) if n > 1 else "N/A"


def found_in(folder: Path) -> Annotation:
    (found,) = annotate([folder])
    return found


def incomplete(found: Annotation) -> list[str]:
    return [problem.what for problem in found.problems if problem.incomplete]


def test_shards_in_any_order_are_one_row_with_the_mean_of_all_questions_and_its_error(tmp_path) -> None:
    rows_of = {DATA: {"bench": "aa", AUDIT: "bb"}}
    for index in (2, 0, 1):
        of_shard = {"pretrained": "m", "device": f"cuda:{index}"}
        write_shard(tmp_path, index, 3, arguments=of_shard, change=lambda results: results.update(rows_of))
    found = found_in(tmp_path)
    (own,) = found.rows
    assert (own.task, own.n, own.n_joined, own.n_tested) == ("bench", N, N, N)
    assert (own.accuracy.value, own.accuracy.stderr) == (0.5, stderr(RIGHT))
    assert own.provenance.digest == digest_of({"bench": "bb"})  # of the rows that were audited
    assert [question.doc_id for question in found.questions] == [*range(N)]
    assert [one.question for one in found.audited_questions] == [f"Question {number}?" for number in range(N)]
    assert not found.problems
    assert (len(found.origins["runs"]), len(found.origins["audits"])) == (3, 3)


def test_missing_shards_are_named_and_the_row_is_of_the_others(tmp_path) -> None:
    for index in (0, 3):
        write_shard(tmp_path, index, 4)
    found = found_in(tmp_path)
    lacking = "shards 1/4 and 2/4 are missing: 5 of 10 questions are here"
    assert incomplete(found) == [
        f"{AUDIT}: {lacking}; run them with the options of the others, or copy their files here",
        f"bench: {lacking}; the row is of these, until the others are run with the same options",
    ]
    (own,) = found.rows
    assert (own.n, own.accuracy.value) == (5, 1 / 5)
    with pytest.raises(ValueError, match="--fail-on does not judge incomplete logs"):
        check_complete(found.problems)
    board = leaderboard([found])  # in the middle of a campaign: what there is, with the remark
    assert board.boards[0][0].row.n_tested == 5
    assert [problem.what for problem in board.problems if problem.incomplete] == incomplete(found)


@pytest.mark.parametrize("is_cut", [False, True])
def test_of_a_shard_that_was_run_twice_the_newest_that_is_complete_counts_and_nothing_is_doubled(
    tmp_path, is_cut: bool
) -> None:
    attempts = [RIGHT, [False] * N] if is_cut else [[False] * N, RIGHT]
    write_shard(tmp_path, 1, 2)
    logs = [write_shard(tmp_path, 0, 2, right=right) for right in attempts]
    if is_cut:
        cut_in_half(logs[-1])
    found = found_in(tmp_path)
    assert (found.rows[0].n, found.rows[0].accuracy.value) == (N, 0.5)
    assert not incomplete(found)
    assert is_cut or not found.problems


def test_a_shards_log_that_was_cut_is_named(tmp_path) -> None:
    write_shard(tmp_path, 0, 2)
    log = write_shard(tmp_path, 1, 2)
    cut_in_half(log)
    found = found_in(tmp_path)
    assert incomplete(found) == ["holds 7 of the 10 questions of bench; the accuracy is of those"]
    assert found.rows[0].accuracy.value == 3 / 7
    assert any(problem.file == log and problem.line == 3 for problem in found.problems)


def cut_in_half(log: Path) -> None:
    text = log.read_text()
    log.write_text(text[: len(text) // 2])


@pytest.mark.parametrize(
    "other",
    [
        {"change": lambda results: results["config"].update(fewshot_seed=7)},
        {"change": lambda results: results.update(chat_template_sha="another")},
        {"change": lambda results: results["configs"]["bench"]["metadata"].update(orders=12)},
        {"n_shot": 5},
        {"arguments": {"pretrained": "m", "dtype": "float32"}},
    ],
    ids=["seed", "chat template", "task settings", "examples", "model arguments"],
)
def test_shards_of_runs_with_other_options_are_not_pooled(tmp_path, other) -> None:
    write_shard(tmp_path, 0, 2)
    write_shard(tmp_path, 1, 2, **other)
    found = found_in(tmp_path)
    assert {own.n for own in found.rows} == {5}
    assert any("is missing: 5 of 10 questions are here" in what for what in incomplete(found))


def test_a_shard_with_other_settings_of_its_task_is_told_beside_those_that_count(tmp_path) -> None:
    for index in (0, 1):
        write_shard(tmp_path, index, 3)
    write_shard(tmp_path, 2, 3, change=lambda results: results["configs"]["bench"]["metadata"].update(orders=12))
    found = found_in(tmp_path)
    assert (found.rows[0].n, found.rows[0].n_tested) == (7, 7)
    assert any("(3 questions) is ignored" in problem.what for problem in found.problems)


def test_a_complete_set_counts_before_a_newer_incomplete_one_of_another_number_of_shards(tmp_path) -> None:
    for index in (0, 1):
        write_shard(tmp_path, index, 2)
    write_shard(tmp_path, 0, 3)
    found = found_in(tmp_path)
    assert found.rows[0].n == N
    assert not incomplete(found)
    told = [problem.what for problem in found.problems]
    assert any("(4 questions) is ignored" in what for what in told)
    assert any("shards 1/3 and 2/3 are missing" in what and "a complete log" in what for what in told)


def test_a_metric_that_is_no_mean_over_questions_is_withheld_with_the_reason(tmp_path) -> None:
    def squared(results: dict[str, Any]) -> None:
        results["results"]["bench"]["acc,none"] **= 2

    for index in (0, 1):
        write_shard(tmp_path, index, 2, change=squared)
    found = found_in(tmp_path)
    assert not found.rows[0].accuracy
    (what,) = [problem.what for problem in found.problems]
    assert what.startswith("bench: no value of acc,none, which is not the mean of the questions' values in each shard")


def test_shards_of_different_samples_are_named(tmp_path) -> None:
    write_shard(tmp_path, 0, 2)
    write_shard(tmp_path, 1, 2, doc_ids=[0, 1, 2, 3, 5])
    assert any(what.startswith("bench: 2 question(s) are in two shards") for what in incomplete(found_in(tmp_path)))


def test_an_annotated_copy_of_a_shards_results_has_no_columns_next_to_the_shards_own_values(tmp_path) -> None:
    for index in (0, 1):
        write_shard(tmp_path / "runs", index, 2)
    files = write(found_in(tmp_path / "runs"), "1", tmp_path / "out")
    copies = [json.loads(file.read_text()) for file in files if file.suffix == ".json"]
    assert len(copies) == 2
    for copy in copies:
        assert not [key for key in copy["results"]["bench"] if key.endswith(",leakage")]
        assert copy["leakage"]["rows"][0]["n"] == N
    logs = [file for file in files if file.suffix == ".jsonl"]
    assert sorted(len(log.read_text().splitlines()) for log in logs) == [5, 5]
