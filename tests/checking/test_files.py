"""Files of plain questions as benchmarks: each is judged by its own rows, whatever else has its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.harness.own_benchmark import name_from_file, names_from_files
from lm_eval_leakage.jobs.driver import run_plan
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.results.verdict import VerdictWord
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions, written
from tests.written_tasks import LETTERED, write_task

SEEN, CLEAN = questions(25, seed=1), questions(25, seed=2)


@pytest.fixture(autouse=True)
def model(fakes: type[NamedFake], only_given_tasks: None) -> None:
    """It has seen one of the two benchmarks."""
    fakes.score = staticmethod(OptionOrders(SEEN, (2.5, 0.6)))


def folder(place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    return place


def words(outcome: Any) -> dict[str, str]:
    return {verdict.task: verdict.verdict for verdict in outcome.verdicts}


@pytest.mark.parametrize("first", ["a", "b"])
def test_two_files_of_one_name_have_a_verdict_each(tmp_path: Path, first: str) -> None:
    files = {
        "a": written(folder(tmp_path / "a"), SEEN, "test.jsonl"),
        "b": written(folder(tmp_path / "b"), CLEAN, "Test.jsonl"),
    }
    tasks = [str(files[name]) for name in sorted(files, key=lambda name: name != first)]
    outcome = checked(tmp_path, tasks=tasks, fail_on="evidence")
    assert words(outcome) == {"a_test": VerdictWord.STRONG_EVIDENCE, "b_test": VerdictWord.NONE_FOUND}
    assert len(outcome.failed) == 1
    assert words(checked(tmp_path, tasks=tasks)) == words(outcome)


def table(docs: Sequence[dict[str, Any]], delimiter: str) -> str:
    lines = [["question", *"ABCD", "answer"]]
    lines += [[doc["question"], *doc["choices"], "ABCD"[doc["answer"]]] for doc in docs]
    return "".join(delimiter.join(line) + "\n" for line in lines)


@pytest.mark.parametrize(("name", "delimiter"), [("quiz.csv", ","), ("quiz.tsv", "\t")])
def test_a_table_is_judged_like_the_same_questions_as_json(tmp_path: Path, name: str, delimiter: str) -> None:
    (tmp_path / name).write_text(table(SEEN, delimiter))
    outcomes = [checked(tmp_path, tmp_path / name, "of_table"), checked(tmp_path, written(tmp_path, SEEN), "of_json")]
    (of_table,), (of_json,) = (outcome.verdicts for outcome in outcomes)
    assert words(outcomes[0]) == {"quiz": VerdictWord.STRONG_EVIDENCE}
    assert (of_table.sentence, of_table.figures) == (of_json.sentence, of_json.figures)


RENAMED = {"question": "text", "choices": "alternatives", "answer": "key"}
FIELDS = "question=text,options=alternatives,answer=key"
OTHERS = {"mmlu", "quiz", "trivia", "own_trivia", "all", "fun_leakage_perm"}  # names of tasks, groups and tags


def renamed(docs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{RENAMED[name]: value for name, value in doc.items()} for doc in docs]


def test_a_file_with_fields_of_other_names_is_judged_like_the_same_questions(tmp_path: Path) -> None:
    file = written(tmp_path, renamed(SEEN))
    with pytest.raises(ValueError, match=r"say which of its own these are \(`--fields question=FIELD,options=FIELD,"):
        checked(tmp_path, file)
    with pytest.raises(
        ValueError, match="quiz.jsonl', whose rows have no field 'title', which fields gives as question"
    ):
        checked(tmp_path, file, fields="question=title")
    unseen = written(tmp_path, renamed(CLEAN), "unseen.jsonl")
    plan = checked(tmp_path, file, fields=FIELDS, unseen=unseen, dry_run=True).plan
    assert {step.n_questions for step in plan.steps if step.what.startswith("unseen")} == {len(CLEAN)}
    (of_other_names,) = checked(tmp_path, file, fields=FIELDS).verdicts
    (usual,) = checked(tmp_path, written(folder(tmp_path / "usual"), SEEN), "usual").verdicts
    assert (of_other_names.sentence, of_other_names.figures) == (usual.sentence, usual.figures)


def test_fields_without_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fields is 'answer=key', but tasks names no file of questions; name one, or"):
        checked(tmp_path, tasks="mmlu", fields="answer=key")


def test_rows_that_hold_no_question_are_named_in_the_plan_in_the_verdict_and_on_the_page(tmp_path: Path) -> None:
    docs = questions(40)
    for doc in docs[:10]:
        doc["choices"][0] = ""
    said = "10 of 40 rows are left out: option A is empty; it must have text (row 1, 2, 3, ...)"
    outcome = checked(tmp_path, written(tmp_path, docs))
    assert f"quiz: {said}" in outcome.plan.as_text.splitlines()
    (verdict,) = outcome.verdicts
    assert verdict.n == 30
    assert verdict.figures.endswith(f" Of its file, {said}.")
    assert said in outcome.page.read_text()


def test_questions_whose_orders_cannot_be_asked_are_counted_with_the_reason_in_the_verdict(tmp_path: Path) -> None:
    docs = questions(40)
    for doc in docs[:10]:
        doc["choices"] = ["the same"] * 4
    (verdict,) = checked(tmp_path, written(tmp_path, docs)).verdicts
    assert verdict.n == 40
    assert " of 30 questions flagged" in verdict.figures
    assert " Not tested: 10 questions (reason: all orders of its 4 option(s) read the same" in verdict.figures


def test_workers_are_informed_of_rows_that_hold_no_question_too(tmp_path: Path) -> None:
    docs = [{"question": "Which?", "choices": ["red"], "answer": 0}, *CLEAN]
    settings = {"model": "fake", "engine": "local", "dry_run": True, "output_path": tmp_path / "out"}
    outcome = run_plan(check_plan({**settings, "tasks": str(written(tmp_path, docs))}))
    said = f"quiz: 1 of {len(docs)} rows is left out: it has 1 option; at least 2 are needed (row 1)"
    assert said in outcome.plan_text


def test_one_file_spelled_in_two_ways_is_one_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, SEEN)
    assert words(checked(tmp_path, tasks=["quiz.jsonl", "./quiz.jsonl", str(tmp_path / "quiz.jsonl")])) == {
        "quiz": VerdictWord.STRONG_EVIDENCE
    }


def test_a_file_is_judged_though_the_include_path_has_a_task_of_its_name(tmp_path: Path) -> None:
    tasks = folder(tmp_path / "tasks")
    write_task(tasks, "quiz", CLEAN, **LETTERED)
    file = written(tmp_path, SEEN)
    assert words(checked(tmp_path, file, include_path=tasks)) == {"own_quiz": VerdictWord.STRONG_EVIDENCE}
    both = checked(tmp_path, tasks=[str(file), "quiz"], include_path=tasks)
    assert words(both) == {"own_quiz": VerdictWord.STRONG_EVIDENCE, "quiz": VerdictWord.NONE_FOUND}


def test_a_task_is_judged_though_an_earlier_check_had_a_file_of_its_name(tmp_path: Path) -> None:
    assert words(checked(tmp_path, written(tmp_path, SEEN))) == {"quiz": VerdictWord.STRONG_EVIDENCE}
    tasks = folder(tmp_path / "tasks")
    write_task(tasks, "quiz", CLEAN, **LETTERED)
    other = written(tmp_path, CLEAN, "other.jsonl")
    assert words(checked(tmp_path, tasks=[str(other), "quiz"], include_path=tasks)) == {
        "other": VerdictWord.NONE_FOUND,
        "quiz": VerdictWord.NONE_FOUND,
    }


def test_a_file_named_like_an_audit_of_another_one_does_not_replace_it(tmp_path: Path) -> None:
    files = [written(tmp_path, SEEN), written(tmp_path, CLEAN, "quiz_leakage_perm.jsonl")]
    assert words(checked(tmp_path, tasks=list(map(str, files)))) == {
        "quiz": VerdictWord.STRONG_EVIDENCE,
        "quiz_leakage_perm_questions": VerdictWord.NONE_FOUND,
    }


@pytest.mark.parametrize("other", ["Quiz!.jsonl", "quiz.json", "-quiz-.jsonl"])
def test_files_of_one_folder_with_names_that_cannot_be_distinguished_are_refused(tmp_path: Path, other: str) -> None:
    files = [str(written(tmp_path, docs, name)) for docs, name in ((CLEAN, "quiz.jsonl"), (SEEN, other))]
    with pytest.raises(ValueError, match="whose tasks would have one name; rename one of the files"):
        checked(tmp_path, tasks=files)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/x/a.jsonl", "/x/b.jsonl"], ["a", "b"]),
        (["/x/a/t.jsonl", "/x/b/t.jsonl"], ["a_t", "b_t"]),
        (["/a/x/t.jsonl", "/b/x/t.jsonl", "/a/y/t.jsonl"], ["a_x_t", "b_x_t", "y_t"]),
        (["/x/a/t.jsonl", "/x/b/t.jsonl", "/x/c/a_t.jsonl"], ["x_a_t", "b_t", "c_a_t"]),
        (["/t.jsonl", "/x/t.jsonl"], ["t", "x_t"]),
        (["/x/own_mmlu.jsonl", "/y/mmlu.jsonl"], ["x_own_mmlu", "y_mmlu"]),
    ],
)
def test_as_many_folders_are_named_as_distinguish_files(paths: list[str], names: list[str]) -> None:
    files = list(map(Path, paths))
    expected = dict(zip(files, names, strict=True))
    assert names_from_files(files, OTHERS) == names_from_files(files[::-1], OTHERS) == expected


def test_a_name_is_marked_where_a_task_a_group_a_tag_or_an_audit_of_ours_has_it() -> None:
    files = ("quiz", "trivia", "all", "fun", "free", "mmlu", "My quiz!")
    assert [name_from_file(Path(f"{name}.jsonl"), OTHERS) for name in files] == [
        *("own_quiz", "own_own_trivia", "own_all", "own_fun", "free", "own_mmlu", "my_quiz"),
    ]
