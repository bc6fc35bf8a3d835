"""What is computed from logs counts each question once, and each of its rows has its flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.logs.audit_line import read_line
from lm_eval_leakage.results import columns
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.asked_once import asked_once
from lm_eval_leakage.results.clean_sets import clean_sets
from lm_eval_leakage.results.unseen_questions import unseen_questions
from lm_eval_leakage.results.verdict_words import sentence_of
from tests.results.harness_files import DETECTOR, answered, audited, confused, row, write_run

N = 40
ROWS = [row(number) for number in range(N)]


def typed_again(doc: dict[str, Any]) -> dict[str, Any]:
    return doc | {"question": doc["question"].upper(), "choices": doc["choices"][::-1]}


def lines(docs: list[dict[str, Any]], **values: Any) -> list[dict[str, Any]]:
    """Return lines of which every fourth is flagged, by the number of its question; of a copy, they say the
    contrary."""
    written = []
    for number, doc in enumerate(docs):
        is_flagged = (number % N % 4 == 0) == (number < N)
        margin = 8.0 if is_flagged else -(number % N) / N
        fields = {"doc_id": number, "published_orders": "drawn", "margin": margin, "statistic": margin}
        written.append(audited(doc, is_flagged, **fields | values))
    return written


def runs(folder: Path, docs: list[dict[str, Any]], audits: list[dict[str, Any]] | None = None) -> Path:
    answers = [answered(number, doc, number % 3 == 0) for number, doc in enumerate(docs)]
    write_run(folder, "m", {"bench": answers, "bench_leakage_perm": lines(docs if audits is None else audits)})
    return folder


@pytest.fixture(params=["typed again", "to the letter"])
def twice(request, tmp_path: Path) -> Path:
    others = ROWS if request.param == "to the letter" else list(map(typed_again, ROWS))
    return runs(tmp_path / "twice", ROWS + others)


@pytest.fixture
def once(tmp_path: Path) -> Path:
    return runs(tmp_path / "once", ROWS)


def of_audits(row_: Any) -> dict[str, Any]:
    """Every value of a row that is not one of the harness's."""
    values = {column.key: column.of(row_) for column in columns.recorded()}
    return {
        key: value for key, value in values.items() if key not in {"n", "accuracy", "n_copies", "verdict_sentence"}
    }


def test_every_number_of_a_row_is_that_without_copies(once: Path, twice: Path) -> None:
    (alone,), (copied,) = annotate([once]), annotate([twice])
    assert [(row.n, row.n_copies) for row in (alone.rows[0], copied.rows[0])] == [(N, 0), (2 * N, N)]
    assert str(of_audits(alone.rows[0])) == str(of_audits(copied.rows[0]))
    assert sentence_of(copied.rows[0].verdict).endswith("; 40 copies of questions were left out")


def test_a_copy_has_the_flag_of_its_question_audited_or_not_and_both_are_removed(twice: Path, tmp_path: Path) -> None:
    unaudited = runs(tmp_path / "unaudited", ROWS + list(map(typed_again, ROWS)), audits=ROWS)
    for folder in (twice, unaudited):
        (annotation,) = annotate([folder])
        assert (annotation.rows[0].n_tested, annotation.rows[0].n_copies) == (N, N)
        flags = [bool(question.audited.flagged) for question in annotation.questions]
        assert flags == [number % 4 == 0 for number in range(N)] * 2
        (clean,) = clean_sets([annotation])
        assert [question.doc_id for question in clean.left_out] == [
            number for number, flag in enumerate(flags) if flag
        ]


def test_with_strong_a_question_is_removed_if_any_copy_was_answered_correctly(tmp_path: Path) -> None:
    docs = [ROWS[0], ROWS[1], typed_again(ROWS[0])]
    answers = [answered(number, doc, number == 2) for number, doc in enumerate(docs)]
    write_run(tmp_path, "m", {"bench": answers, "bench_leakage_perm": lines(docs)})
    (clean,) = clean_sets(annotate([tmp_path]), rule="strong")
    assert [question.doc_id for question in clean.left_out] == [0, 2]


def test_the_same_question_in_two_tasks_has_a_flag_in_each_and_counts_once_in_their_group(tmp_path: Path) -> None:
    flags = {"bench_a": True, "bench_b": False}
    docs = {task: ROWS[0] | {"subject": task} for task in flags}
    logs = {f"{task}_leakage_perm": [audited(docs[task], flag, doc_id=0)] for task, flag in flags.items()}
    write_run(tmp_path, "m", logs, groups={"bench_leakage_perm": [*logs]})
    (annotation,) = annotate([tmp_path])
    rows_of_group = [
        (row.task, row.level, row.group, row.n_tested, row.n_copies, sum(row.flags.values()))
        for row in annotation.rows
    ]
    assert rows_of_group == [
        ("bench", "group", "", 1, 1, 1),
        ("bench_a", "task", "bench", 1, 0, 1),
        ("bench_b", "task", "bench", 1, 0, 0),
    ]


def test_an_audit_of_all_subjects_is_joined_with_audits_of_the_tasks_whose_rows_lack_the_subject(
    tmp_path: Path,
) -> None:
    with_subject = [row(number, "ab"[number % 2]) for number in range(N)]
    docs = {f"bench_{subject}": [doc for doc in with_subject if doc["subject"] == subject] for subject in "ab"}
    bare = {task: [{**doc, "subject": ""} for doc in rows] for task, rows in docs.items()}
    run = {task: [answered(i, doc, i % 3 == 0) for i, doc in enumerate(rows)] for task, rows in bare.items()}
    arms = {f"{task}_choice_confusion": [confused(doc, True, False) for doc in rows] for task, rows in bare.items()}
    write_run(tmp_path / "arms", "m", arms, groups={"bench_choice_confusion": [*arms]})
    write_run(tmp_path / "run", "m", run, groups={"bench": [*run]})
    write_run(tmp_path / "orders", "m", {"bench_leakage_perm": lines(with_subject)})
    (annotation,) = annotate([tmp_path])
    (group,) = (row for row in annotation.rows if row.task == "bench")
    assert (group.level, group.n, group.n_joined, group.n_tested, group.n_copies) == ("group", N, N, N, 0)
    assert columns.CONFUSION.of(group).value == -1
    assert group.verdict.n_asked == N


def test_unseen_questions_count_once(tmp_path: Path) -> None:
    unseen = [row(number, "fiction") for number in range(N)]
    runs_of_both = runs(tmp_path / "asked", ROWS)
    alone = unseen_questions(runs_of_both, runs(tmp_path / "alone", unseen), [])
    copied = unseen_questions(runs_of_both, runs(tmp_path / "copied", unseen + list(map(typed_again, unseen))), [])
    assert copied == alone


def test_of_two_audits_of_a_row_the_later_counts_and_neither_is_a_copy() -> None:
    lines_of_audit = [audited(ROWS[0], place == 0, doc_id=place) for place in (0, 7)]
    (question,) = asked_once(read_line(line, "bench_leakage_perm") for line in lines_of_audit)
    assert (question.lines[DETECTOR].flagged, [*question.n_rows.values()]) == (False, [1])
