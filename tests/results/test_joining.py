from __future__ import annotations

from pathlib import Path

from lm_eval_leakage.logs.run import Run
from lm_eval_leakage.results.annotate import Joining
from lm_eval_leakage.results.answered import TaskRun
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion


def audited(doc_hash: str, content: str, benchmark: str = "mmlu") -> AuditedQuestion:
    return AuditedQuestion(doc_hash, content, benchmark, "history", "Question?", ("a", "b"), 0, flagged=True)


def answer(doc_id: int, doc_hash: str, content: str) -> AnnotatedQuestion:
    return AnnotatedQuestion("", doc_id, doc_hash, content, "history", 10, {"acc,none": 1.0})


def task(name: str = "mmlu_history", log: Path | None = None) -> TaskRun:
    return TaskRun(name, "5", Run("m", "2026-01-01"), log, 2)


def partners(joining: Joining, *answers: AnnotatedQuestion) -> list[str | None]:
    joined = joining.join(task(), answers)
    return [None if one.audited is None else one.audited.doc_hash for one in joined]


def test_a_question_of_another_row_with_the_same_words_is_joined() -> None:
    joining = Joining([audited("audited", "words"), audited("other", "other words")])
    assert partners(joining, answer(0, "another field", "words"), answer(1, "new", "new words")) == ["audited", None]


def test_rows_whose_words_could_not_be_read_are_not_taken_for_each_other() -> None:
    joining = Joining([audited("audited", "")])
    assert partners(joining, answer(0, "another", ""), answer(1, "audited", "")) == [None, "audited"]


def test_of_two_audited_rows_with_the_same_words_an_answer_finds_the_one_with_its_own_hash() -> None:
    joining = Joining([audited("first", "words"), audited("second", "words")])
    assert partners(joining, answer(0, "first", "words"), answer(1, "second", "words")) == ["first", "second"]
    assert joining.problems() == []


def test_what_several_tasks_answer_is_added_up() -> None:
    """The second task neither forgets the questions of the first nor its benchmark."""
    joining = Joining([audited("a", "1"), audited("b", "2"), audited("c", "3", "arc"), audited("d", "4", "csqa")])
    joining.join(task("first"), [answer(0, "a", "1"), answer(1, "b", "2"), answer(2, "x", "9")])
    joining.join(task("second"), [answer(0, "c", "3")])
    assert [str(problem) for problem in joining.problems()] == [
        "first: 1 question(s) are in no audit (doc_id 2); only counted in `n`"
    ]
    assert {name: [one.doc_hash for one in left] for name, left in joining.unanswered().items()} == {"csqa": ["d"]}
