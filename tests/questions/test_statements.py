"""The field of a row that holds the text of a task's question."""

from __future__ import annotations

import pytest

from lm_eval_leakage.questions.statements import (
    StatementReader,
    has_statements,
    refusal_of_statements,
    statement_reader,
    with_slot,
)
from lm_eval_leakage.records import UntestableQuestion
from tests.word_problems import word_problems

ROWS = [row | {"solution": f"First {row['question'] * 3}", "id": "7"} for row in word_problems(20)]


def shown(doc):
    return f"Solve this.\n{doc['question']}\nAnswer:"


def test_the_field_is_the_one_that_the_prompt_shows() -> None:
    rows = [{"note": row["question"], "question": row["solution"]} for row in ROWS]
    assert statement_reader(rows, lambda doc: f"Q: {doc['note']}").path == ("note",)
    question = statement_reader(ROWS, shown)(ROWS[0])
    assert (question.stem, question.options) == (ROWS[0]["question"], ())
    assert question.prompt == shown(ROWS[0])


def test_without_a_prompt_the_name_of_the_field_says_so() -> None:
    assert statement_reader(ROWS).path == ("question",)
    nested = [{"data": {"problem": row["question"], "solution": row["solution"]}} for row in ROWS]
    assert statement_reader(nested).path == ("data", "problem")
    assert statement_reader(ROWS, field="solution").path == ("solution",)
    assert statement_reader(ROWS, lambda doc: 3).path == ("question",), "a prompt that is no text"
    assert statement_reader(ROWS, lambda doc: doc["missing"]).path == ("question",), "a template that fails"


def test_a_prompt_that_changes_the_text_is_not_used() -> None:
    read = statement_reader(ROWS, lambda doc: doc["question"].upper())
    assert read(ROWS[0]).prompt is None


def test_rows_without_a_text_have_a_reason() -> None:
    with pytest.raises(UntestableQuestion, match="no field of its rows holds the text of the task's questions"):
        statement_reader([{"a": 1}, {"question": "short"}])
    with pytest.raises(UntestableQuestion, match="its field question has no text"):
        StatementReader(("question",))({"question": " "})


def test_the_id_is_that_of_the_text() -> None:
    read = statement_reader(ROWS)
    assert read(ROWS[0]).id == read({**ROWS[0], "id": "8"}).id != read(ROWS[1]).id


def test_rows_with_names_are_asked_and_others_refused() -> None:
    read = statement_reader(ROWS)
    assert refusal_of_statements([read(row) for row in ROWS]) is None
    assert len(with_slot([read(row) for row in ROWS])) == len(ROWS)
    plain = [{"question": f"A robe takes {n} bolts of fibre."} for n in range(20)]
    few = [*ROWS[:1], *plain]
    refusal = refusal_of_statements([statement_reader(few)(row) for row in few])
    assert "20 of the first 21 have no given name" in refusal
    assert (has_statements(ROWS), has_statements(few), has_statements([{"a": 1}])) == (True, False, False)
