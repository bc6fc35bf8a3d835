from __future__ import annotations

from lm_eval_leakage.results.annotation import Suspicion
from lm_eval_leakage.results.answers import Answer
from lm_eval_leakage.results.chosen_runs import Answered
from lm_eval_leakage.results.joining import Joining
from lm_eval_leakage.results.runs import Run


def suspicion(doc_hash: str, content: str, benchmark: str = "mmlu") -> Suspicion:
    return Suspicion(doc_hash, content, benchmark, "history", "Question?", ("a", "b"), 0, flagged=True)


def answer(doc_id: int, doc_hash: str, content: str) -> Answer:
    return Answer(doc_id, doc_hash, content, "history", 10, {"acc,none": 1.0})


def task(name: str = "mmlu_history") -> Answered:
    return Answered(name, "0", Run("m", "2026-01-01", None, {}, {}), None, 2)


def partners(joining: Joining, *answers: Answer) -> list[str | None]:
    joined = joining.join(task(), answers)
    return [None if one.suspicion is None else one.suspicion.doc_hash for one in joined]


def test_a_question_of_another_row_with_the_same_words_is_joined() -> None:
    joining = Joining([suspicion("audited", "words"), suspicion("other", "other words")])
    assert partners(joining, answer(0, "another field", "words"), answer(1, "new", "new words")) == ["audited", None]


def test_rows_whose_words_could_not_be_read_are_not_taken_for_each_other() -> None:
    joining = Joining([suspicion("audited", "")])
    assert partners(joining, answer(0, "another", ""), answer(1, "audited", "")) == [None, "audited"]


def test_of_two_audited_rows_with_the_same_words_an_answer_finds_the_one_with_its_own_hash() -> None:
    joining = Joining([suspicion("first", "words"), suspicion("second", "words")])
    assert partners(joining, answer(0, "first", "words"), answer(1, "second", "words")) == ["first", "second"]
    assert joining.problems() == []
