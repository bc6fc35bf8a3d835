"""`--limit N` of an audit is a random draw by the run's seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.harness.tasks.task import drawn
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import evaluate, manager
from tests.written_tasks import write_task

N = 40  # questions of each of two subjects
PERM, CONFUSION = "quiz_leakage_perm", "quiz_choice_confusion"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two subjects, one task each, and both in one task, as in MMLU."""
    rows = [
        {"question": f"Which {subject} is {i}?", "choices": [f"{c} {i}" for c in "wxy"], "answer": i % 3}
        for subject in ("river", "tree")
        for i in range(N)
    ]
    for name, part in (("rivers", rows[:N]), ("trees", rows[N:]), ("quiz", rows)):
        write_task(tmp_path, name, part)
    (tmp_path / "subjects.yaml").write_text("group: subjects\ntask: [rivers, trees]\n")
    return tmp_path


def run(folder: Path, *tasks: str, **options: Any) -> dict[str, Any]:
    return evaluate(FakeLM(by_hash), None, tasks, folder, **options)


def doc_ids(results: dict[str, Any], task: str) -> list[int]:
    return sorted({line["doc_id"] for line in results["samples"][task]})


def test_an_audit_asks_questions_drawn_by_the_runs_seed_the_same_for_all_audits(folder: Path, caplog) -> None:
    caplog.set_level("INFO", logger="lm_eval")
    results = run(folder, PERM, CONFUSION, limit=20)
    assert doc_ids(results, PERM) == doc_ids(results, CONFUSION) == drawn(range(2 * N), 20, 0) != [*range(20)]
    assert results["n-samples"][PERM] == {"original": 2 * N, "effective": 20}
    assert f"{PERM}: 20 of 80 questions, drawn at random with seed 0" in caplog.messages
    other = run(folder, PERM, limit=20, random_seed=7)
    assert doc_ids(other, PERM) == drawn(range(2 * N), 20, 7) != doc_ids(results, PERM)


def test_the_logged_rows_are_those_of_the_benchmark_at_their_indices(folder: Path) -> None:
    everything = {line["doc_id"]: line["doc_hash"] for line in run(folder, "quiz")["samples"]["quiz"]}
    samples = run(folder, PERM, limit=5)["samples"][PERM]
    assert {line["doc_id"]: line["doc_hash"] for line in samples}.items() <= everything.items()


@pytest.mark.parametrize(
    ("limit", "n"), [(2 * N, 2 * N), (1000, 2 * N), (0.25, N // 2), (0.501, N + 1), (None, 2 * N)]
)
def test_a_limit_is_a_number_of_questions_or_their_share(folder: Path, limit: float | None, n: int) -> None:
    results = run(folder, PERM, limit=limit)
    assert doc_ids(results, PERM) == drawn(range(2 * N), n, 0)
    assert results["n-samples"][PERM]["effective"] == n


def test_processes_divide_one_draw(folder: Path) -> None:
    whole = drawn(range(2 * N), 11, 0)
    task = manager(folder=folder).load([PERM])["tasks"][PERM]
    parts = [
        [row for row, _ in task.doc_iterator(rank=rank, limit=11, world_size=2, samples=None)] for rank in range(2)
    ]
    assert parts == [whole[::2], whole[1::2]]


def test_the_audits_of_a_group_draw_from_each_of_its_tasks(folder: Path) -> None:
    results = run(folder, "subjects_leakage_perm", limit=10)
    assert [doc_ids(results, f"{task}_leakage_perm") for task in ("rivers", "trees")] == [drawn(range(N), 10, 0)] * 2


@pytest.mark.parametrize("options", [{"limit": 10}, {"limit": 0.2}], ids=str)
def test_beside_its_own_task_an_audit_asks_the_same_first_questions_and_says_so(
    folder: Path, caplog, options: dict[str, float]
) -> None:
    results = run(folder, "rivers", "rivers_leakage_perm", **options)
    n = results["n-samples"]["rivers"]["effective"]
    assert doc_ids(results, "rivers_leakage_perm") == doc_ids(results, "rivers") == [*range(n)]
    sentence = (
        f"rivers_leakage_perm: {n} of 40 questions, {n} of them scored by other tasks of this run, which take the"
    )
    assert any(text.startswith(sentence) for text in caplog.messages)


def test_beside_the_tasks_of_its_subjects_an_audit_draws_among_their_questions(folder: Path) -> None:
    results = run(folder, "subjects", PERM, limit=10)
    beside = [*range(10), *range(N, N + 10)]
    assert doc_ids(results, PERM) == drawn(beside, 10, 0)


def test_where_other_tasks_ask_too_few_of_its_questions_it_is_said_of_how_many_the_columns_are(
    folder: Path, caplog
) -> None:
    write_task(folder, "few", [*map(json.loads, (folder / "quiz.jsonl").read_text().splitlines()[:6])])
    results = run(folder, "few", PERM, limit=20)
    rows = drawn(range(2 * N), 20, 0)
    assert doc_ids(results, PERM) == rows
    joined = len({*rows} & {*range(6)})
    assert any(f"20 of 80 questions, {joined} of them scored by other tasks" in text for text in caplog.messages)


def test_tasks_without_common_questions_leave_the_draw_alone(folder: Path, caplog) -> None:
    results = run(folder, "trees", "rivers_leakage_perm", limit=10)
    assert doc_ids(results, "rivers_leakage_perm") == drawn(range(N), 10, 0)
    assert not any("other tasks" in text for text in caplog.messages)


def test_chosen_samples_are_asked_as_they_are(folder: Path) -> None:
    assert doc_ids(run(folder, PERM, samples={PERM: [3, 50]}), PERM) == [3, 50]
