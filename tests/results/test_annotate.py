from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from lm_eval_leakage.logs.run import Run
from lm_eval_leakage.results import columns
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.annotate_task import annotate_task
from lm_eval_leakage.results.joining import Joining
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion
from lm_eval_leakage.results.tables import as_text, verdicts_in_words
from lm_eval_leakage.results.task_runs import TaskRun
from lm_eval_leakage.results.unseen_questions import UnseenQuestions
from lm_eval_leakage.results.verdict_words import sentence_of
from lm_eval_leakage.stats.pooling import share
from lm_eval_leakage.stats.unseen_texts import TextTest
from tests.results.harness_files import DETECTOR, answered, audited, row, write_run

N = 24
FLAGGED = range(0, N, 3)  # 8 of 24
RIGHT = [number in FLAGGED or number % 2 == 0 for number in range(N)]


@pytest.fixture
def folder(tmp_path):
    """One model: 24 questions of a task in a group, a third of them flagged, all flagged ones right; audited as a
    whole benchmark, in another order."""
    docs = [row(i) for i in range(N)]
    lines = [answered(i, doc, RIGHT[i]) for i, doc in enumerate(docs)]
    write_run(tmp_path / "runs", "m", {"bench_history": lines}, groups={"bench": ["bench_history"]})
    verdicts = [audited(doc, i in FLAGGED, guards="in_order" if i == 0 else "") for i, doc in enumerate(docs)]
    write_run(tmp_path / "audits", "m", {"bench_leakage_perm": verdicts[::-1]})
    return tmp_path


def rows_of(*annotations):
    return {(row.task, row.metric): row for annotation in annotations for row in annotation.rows}


def test_columns_of_a_task_and_of_its_group_are_those_of_its_questions(folder) -> None:
    (annotation,) = annotate([folder / "runs"], [folder / "audits"])
    rows = rows_of(annotation)
    assert list(rows) == [("bench", "acc,none"), ("bench_history", "acc,none")]
    for row_ in rows.values():
        assert (row_.n, row_.n_joined, row_.n_tested) == (24, 24, 24)
        assert row_.accuracy.value == pytest.approx(sum(RIGHT) / N)
        assert columns.FLAGGED.of(row_).value == pytest.approx(8 / 24)
        assert columns.NULL_RATE.of(row_) == pytest.approx(1 / 24)
        assert columns.PVALUE_ALL.of(row_) == pytest.approx(binom.sf(7, 24, 1 / 24))
        assert columns.PVALUE_UNGUARDED.of(row_) == pytest.approx(binom.sf(6, 23, 1 / 24))
        assert columns.ACCURACY_FLAGGED.of(row_).value == 1
        others = [RIGHT[i] for i in range(N) if i not in FLAGGED]
        assert columns.ACCURACY_UNFLAGGED.of(row_).value == pytest.approx(np.mean(others))
        ends = binomtest(sum(others), len(others)).proportion_ci(method="wilson")
        assert (columns.ACCURACY_UNFLAGGED.of(row_).low, columns.ACCURACY_UNFLAGGED.of(row_).high) == pytest.approx(
            (ends.low, ends.high)
        )
        assert columns.GAP.of(row_).value == pytest.approx(1 - np.mean(others))
        assert columns.STRONG.of(row_).value == pytest.approx(8 / 24)
    assert rows["bench", "acc,none"].accuracy.stderr == 0.02
    assert rows["bench_history", "acc,none"].group == "bench"
    assert not annotation.problems


def test_what_cannot_be_joined_is_counted_and_named(tmp_path) -> None:
    write_run(tmp_path, "m", {"bench": [answered(i, row(i), True) for i in range(10)]})
    write_run(tmp_path, "m", {"bench_leakage_perm": [audited(row(i), False) for i in range(4, 17)]})
    (annotation,) = annotate([tmp_path])
    only = rows_of(annotation)["bench", "acc,none"]
    assert (only.n, only.n_joined, only.n_tested) == (10, 6, 6)
    unaudited, unanswered = map(str, annotation.problems)
    assert "4 question(s) are in no audit (doc_id 0, 1, 2, 3)" in unaudited
    assert "7 audited question(s) were answered in no run" in unanswered


def test_of_several_runs_the_one_with_the_most_questions_then_the_newest_is_read(tmp_path) -> None:
    for right, n in ((False, N), (True, N), (False, 5)):
        write_run(tmp_path, "m", {"bench": [answered(i, row(i), right) for i in range(n)]})
    (annotation,) = annotate([tmp_path])
    assert rows_of(annotation)["bench", "acc,none"].accuracy.value == 1
    assert len(annotation.questions) == N
    assert sum("is ignored for" in str(problem) for problem in annotation.problems) == 2


def test_runs_with_other_numbers_of_examples_have_rows_of_their_own(tmp_path) -> None:
    for n_shot in (0, 5):
        lines = [answered(i, row(i), n_shot == 5) for i in range(N)]
        write_run(tmp_path, "m", {"bench": lines}, n_shot=n_shot, groups={"all": ["bench"]})
    (annotation,) = annotate([tmp_path])
    shown = [(row.task, row.n_shot, row.n, row.accuracy.value) for row in annotation.rows]
    assert sorted(shown) == [("all", "0", N, 0), ("all", "5", N, 1), ("bench", "0", N, 0), ("bench", "5", N, 1)]


def test_of_two_ways_of_one_statistic_the_one_with_more_questions_is_shown_and_the_other_named(tmp_path) -> None:
    other = f"{DETECTOR}:orders=12"
    write_run(tmp_path, "m", {"bench": [answered(i, row(i), True) for i in range(3)]})
    write_run(tmp_path, "m", {"bench_leakage_perm": [audited(row(i), False) for i in range(3)]})
    write_run(tmp_path, "m", {"bench_leakage_perm_r": [audited(row(0), True, detector=other)]})
    (annotation,) = annotate([tmp_path])
    assert columns.FLAGGED.of(rows_of(annotation)["bench", "acc,none"]).value == 0
    assert any(other in str(problem) for problem in annotation.problems)
    (annotation,) = annotate([tmp_path], detector=other)
    assert rows_of(annotation)["bench", "acc,none"].n_tested == 1
    write_run(tmp_path, "m", {"bench_leakage_perm_r": [audited(row(i), True, detector=other) for i in range(3)]})
    (annotation,) = annotate([tmp_path])
    assert annotation.detector == DETECTOR  # of as many questions, that with the default parameters


def test_a_detector_that_was_not_run_is_refused_with_those_that_were(folder) -> None:
    with pytest.raises(ValueError, match="'stepwise'.*max_order"):
        annotate([folder], detector="stepwise")


def test_a_log_that_breaks_off_is_read_as_far_as_it_goes(folder) -> None:
    (log,) = (folder / "runs").rglob("samples_*")
    log.write_bytes(log.read_bytes()[:-40])
    (audit,) = (folder / "audits").rglob("samples_*")
    first, second, *rest = audit.read_text().splitlines()
    audit.write_text("\n".join([first, second.replace('"guards": ""', '"guards": 7'), *rest]))
    (annotation,) = annotate([folder])
    assert rows_of(annotation)["bench", "acc,none"].n_joined == N - 2
    broken = [problem for problem in annotation.problems if problem.line is not None]
    assert {(problem.file, problem.line) for problem in broken} == {(log, N), (audit, 2)}


def test_filters_of_one_question_come_together_and_each_accuracy_has_its_row(tmp_path) -> None:
    lines = [
        answered(i, row(i), right=(i < cut), filter_=name, metric="exact_match")
        for name, cut in (("strict", 3), ("flexible", 6))
        for i in range(8)
    ]
    write_run(tmp_path, "m", {"bench": lines}, results=False)
    write_run(tmp_path, "m", {"bench_leakage_perm": [audited(row(i), i < 2) for i in range(8)]})
    (annotation,) = annotate([tmp_path])
    accuracies = {key: row.accuracy.value * 8 for key, row in rows_of(annotation).items()}
    assert accuracies == pytest.approx({("bench", "exact_match,strict"): 3, ("bench", "exact_match,flexible"): 6})
    assert len(annotation.questions) == 8


UNSEEN = UnseenQuestions("bench", texts=TextTest(40, 50, 1e-9, 3.0, 0.1))


@pytest.mark.parametrize("benchmark", ["bench", "ben"])
def test_unseen_questions_speak_for_their_own_benchmark_alone(folder, benchmark) -> None:
    annotation = annotate_task("m", "bench", ["bench"], [folder], unseen=replace(UNSEEN, benchmark=benchmark))
    assert {row.verdict.texts for row in annotation.rows if row.level == "task"} == {
        UNSEEN.texts if benchmark == "bench" else None
    }


def test_within_strata_of_what_a_reference_knows_easy_questions_do_not_read_as_leakage(tmp_path) -> None:
    easy = [i % 2 == 0 for i in range(120)]
    flagged = [(i % 2 == 0 and i % 5 > 0) or i % 10 == 1 for i in range(120)]
    lines = [answered(i, row(10**6 + i), easy[i]) for i in range(120)]
    write_run(tmp_path / "runs", "m", {"bench": lines})
    write_run(tmp_path / "ref", "other", {"bench": lines})
    write_run(
        tmp_path / "runs", "m", {"bench_leakage_perm": [audited(row(10**6 + i), flagged[i]) for i in range(120)]}
    )
    (plain,) = annotate([tmp_path / "runs"])
    (strict,) = annotate([tmp_path / "runs"], references=[tmp_path / "ref"])
    assert columns.GAP_ADJUSTED.of(rows_of(plain)["bench", "acc,none"]).value > 0.5
    assert columns.GAP_ADJUSTED.of(rows_of(strict)["bench", "acc,none"]).value == pytest.approx(0)
    (itself,) = annotate([tmp_path / "runs"], references=[tmp_path / "runs"])
    assert rows_of(itself) == rows_of(plain)  # a model is no reference of its own


def test_a_group_without_an_error_has_that_of_its_questions_together(tmp_path: Path) -> None:
    right = [number % 3 == 0 for number in range(30)]
    parts = {"bench_a": right[:1], "bench_b": right[1:]}
    logs = {task: [answered(n, row(n, task), flag) for n, flag in enumerate(flags)] for task, flags in parts.items()}
    place = write_run(tmp_path, "m", logs, groups={"bench": [*parts]})
    (file,) = place.glob("results_*.json")
    content = json.loads(file.read_text())
    for section in ("results", "groups"):
        content[section]["bench"]["acc_stderr,none"] = float("nan")  # as of a task of one question
    file.write_text(json.dumps(content))
    (annotation,) = annotate([tmp_path])
    row_of_group = next(row for row in annotation.rows if row.task == "bench")
    assert row_of_group.accuracy == share([float(flag) for flag in right])
    assert row_of_group.accuracy.stderr == pytest.approx((10 / 30 * 20 / 30 / 29) ** 0.5)


ORDERS = [[[str(value), "False"]] for value in (-1.0, *[-3.0] * 23)]


def test_a_log_without_the_status_of_its_orders_says_what_that_may_mean_and_its_flags_still_count(tmp_path) -> None:
    write_run(tmp_path, "m", {"bench_leakage_perm": [audited(row(i), True, resps=ORDERS) for i in range(60)]})
    (row_of_task,) = annotate([tmp_path])[0].rows
    assert sentence_of(row_of_task.verdict).startswith(
        "no verdict: these are orders that may have been written by people"
    )
    assert columns.FLAGGED.of(row_of_task).value == 1


@pytest.mark.parametrize("fields", [{}, {"published_orders": "drawn"}, {"published_orders": "written"}])
def test_a_single_order_is_no_answer_to_option_orders(tmp_path, fields: dict[str, str]) -> None:
    lines = [audited(row(i), False, n_orders=1, resps=ORDERS[:1], **fields) for i in range(60)]
    write_run(tmp_path, "m", {"bench_leakage_perm": lines})
    (row_of_task,) = annotate([tmp_path])[0].rows
    assert row_of_task.verdict.word == verdicts_in_words([row_of_task], "table") == ""
    assert "verdict" not in as_text([row_of_task], "table")


# ---------------------------------------------------------------------- joined


def audited_as(doc_hash: str, content: str, benchmark: str = "mmlu") -> AuditedQuestion:
    return AuditedQuestion(doc_hash, content, benchmark, "history", "Question?", ("a", "b"), 0, flagged=True)


def answer(doc_id: int, doc_hash: str, content: str) -> AnnotatedQuestion:
    return AnnotatedQuestion("", doc_id, doc_hash, content, "history", 10, {"acc,none": 1.0})


def task(name: str = "mmlu_history", log: Path | None = None) -> TaskRun:
    return TaskRun(name, "5", Run("m", "2026-01-01"), log, 2)


@pytest.mark.parametrize(
    ("audited", "answers", "partners"),
    [
        (
            [("audited", "words"), ("other", "other words")],
            [("field", "words"), ("new", "new words")],
            ["audited", None],
        ),
        ([("audited", "")], [("another", ""), ("audited", "")], [None, "audited"]),
        ([("first", "words"), ("second", "words")], [("first", "words"), ("second", "words")], ["first", "second"]),
    ],
    ids=["another row with the same words", "words that could not be read", "two rows with the same words"],
)
def test_an_answer_is_joined_by_the_hash_of_its_row_else_by_its_words(audited, answers, partners) -> None:
    joining = Joining([audited_as(*fields) for fields in audited])
    joined = joining.join(task(), [answer(place, *fields) for place, fields in enumerate(answers)])
    assert [fields.audited and fields.audited.doc_hash for fields in joined] == partners


def test_what_several_tasks_answer_is_added_up() -> None:
    """The second task neither forgets the questions of the first nor its benchmark."""
    joining = Joining(
        [audited_as("a", "1"), audited_as("b", "2"), audited_as("c", "3", "arc"), audited_as("d", "4", "csqa")]
    )
    joining.join(task("first"), [answer(0, "a", "1"), answer(1, "b", "2"), answer(2, "x", "9")])
    joining.join(task("second"), [answer(0, "c", "3")])
    (problem,) = map(str, joining.problems())
    what = "1 question(s) are in no audit (doc_id 2) and only counted in `n`"
    assert problem.startswith(f"first: its columns rest on 2 of 3 questions; {what}; ")
    assert {name: [question.doc_hash for question in left] for name, left in joining.unanswered().items()} == {
        "csqa": ["d"]
    }
