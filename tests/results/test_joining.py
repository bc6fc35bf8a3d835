from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("known", "answers", "partners"),
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
def test_an_answer_is_joined_by_the_hash_of_its_row_else_by_its_words(known, answers, partners) -> None:
    joining = Joining([audited(*one) for one in known])
    joined = joining.join(task(), [answer(place, *one) for place, one in enumerate(answers)])
    assert [one.audited and one.audited.doc_hash for one in joined] == partners


def test_what_several_tasks_answer_is_added_up() -> None:
    """The second task neither forgets the questions of the first nor its benchmark."""
    joining = Joining([audited("a", "1"), audited("b", "2"), audited("c", "3", "arc"), audited("d", "4", "csqa")])
    joining.join(task("first"), [answer(0, "a", "1"), answer(1, "b", "2"), answer(2, "x", "9")])
    joining.join(task("second"), [answer(0, "c", "3")])
    assert [str(problem) for problem in joining.problems()] == [
        "first: 1 question(s) are in no audit (doc_id 2); only counted in `n`"
    ]
    assert {name: [one.doc_hash for one in left] for name, left in joining.unanswered().items()} == {"csqa": ["d"]}
