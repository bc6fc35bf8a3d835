"""The requests about rows that exchange their names."""

from __future__ import annotations

import json

import pytest

from lm_eval_leakage.detectors.crossed_fillers import ALONE, NEARLY_ANOTHER, CrossedFillers
from lm_eval_leakage.questions.fields import content_id
from lm_eval_leakage.questions.slots import find_slot
from lm_eval_leakage.records import Question, UntestableQuestion
from tests.word_problems import road, word_problems


def question_of(text: str) -> Question:
    return Question(content_id(text, ()), text, (), prompt=f"Question: {text}\nAnswer:")


ROWS = [question_of(row["question"]) for row in word_problems(40)]


def probe_of(rows, **parameters):
    return CrossedFillers(**parameters).with_pool(lambda: rows)


def test_each_row_is_asked_with_every_name_of_its_block_the_published_one_first() -> None:
    probe = probe_of(ROWS, layouts="prompt")
    for row in ROWS:
        block, slot = probe.block(row), find_slot(row.stem)
        requests = probe.requests(row)
        texts = [request.context + request.continuation for request in requests]
        assert len(requests) == len(block.fillers)
        assert block.fillers[block.place] == slot.filler
        assert row.prompt.startswith(texts[0])
        assert {request.context for request in requests} == {"Question: "}
        others = [name for name in block.fillers if name != slot.filler]
        assert texts[1:] == [texts[0].replace(slot.filler, name) for name in others]


def test_the_rows_of_a_block_have_each_others_names() -> None:
    probe = probe_of(ROWS)
    blocks = {}
    for row in ROWS:
        blocks.setdefault(probe.block(row).name, []).append(row)
    for rows in blocks.values():
        fillers = {probe.block(row).fillers for row in rows}
        assert len(fillers) == 1
        published = [find_slot(row.stem).filler for row in sorted(rows, key=lambda row: probe.block(row).place)]
        assert published == [*fillers.pop()]


def test_the_text_ends_some_words_after_the_first_name_and_every_name_before_is_exchanged() -> None:
    text = "On Monday, Olga fed 3 cats, and then Olga's aunt fed 4 more cats near the old town hall of Bergen."
    row, other = question_of(text), question_of("Sheila has 4 dogs and 7 birds in her small garden.")
    probe = probe_of([row, other], layouts="prompt", words=6)
    first, second = probe.requests(row)
    assert first.context == "Question: On Monday, "
    assert first.continuation == "Olga fed 3 cats, and then Olga's"
    assert second.continuation == "Sheila fed 3 cats, and then Sheila's"


def test_layouts_are_the_prompt_and_a_row_of_json() -> None:
    row = question_of('Olga said "no" 3 times.')
    probe = probe_of([row, question_of("Sheila has 4 dogs.")], start="<s>")
    texts = [request.context + request.continuation for request in probe.requests(row)]
    assert texts[0] == '<s>Question: Olga said "no" 3 times.'
    assert texts[2] == '<s>{"question": ' + json.dumps(row.stem)[:-1]
    assert texts[3] == texts[2].replace("Olga", "Sheila")


def test_a_row_whose_task_shows_another_text_is_asked_without_a_prompt() -> None:
    rows = [Question(name, f"{name} {does}.", ()) for name, does in (("Olga", "has 4 dogs"), ("Sheila", "sold a hat"))]
    assert probe_of(rows, layouts="prompt").requests(rows[0])[0].context == ""


def test_the_control_form_has_the_words_of_the_row_in_alphabetical_order_and_not_the_name() -> None:
    row = question_of("Olga sells 5 warm bagels, and Olga's sister sells rolls.")
    probe = probe_of([row, question_of("Sheila has 4 dogs.")], start="<s>")
    first, second = probe.control(row)
    assert first.context == second.context == "<s>Words: bagels, rolls, sells, sister, warm. Name:"
    assert [first.continuation, second.continuation] == [" Olga", " Sheila"]


def why_not(probe: CrossedFillers, row: Question) -> str:
    with pytest.raises(UntestableQuestion) as raised:
        probe.requests(row)
    return str(raised.value)


def test_rows_that_cannot_be_asked_have_a_reason() -> None:
    alone, without = question_of("Kevin has 3 pens."), question_of("A robe takes 2 bolts.")
    again = question_of("Zoe has 3 dogs.")
    rows = [question_of("Olga has 4 dogs."), question_of("Sheila has 5 cats."), again, alone, without]
    probe = probe_of(rows)
    reasons = [why_not(probe, row) for row in rows if row.id not in probe._blocks]
    assert ALONE in reasons
    assert "it has no given name that could be exchanged for another" in reasons
    assert NEARLY_ANOTHER in reasons
    assert len(reasons) == 3


def test_a_name_that_recurs_everywhere_leaves_rows_out_with_a_reason() -> None:
    rows = [question_of(f"Kevin {road(number)}.") for number in range(8)]
    rows += [question_of("Omar has 1 pen and a dog.")]
    probe = probe_of(rows)
    reasons = [why_not(probe, row) for row in rows if row.id not in probe._blocks]
    assert len(reasons) == 7
    assert set(reasons) == {"no block of rows has room for its name or number, which stands in too many other rows"}


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"size": 1}, "size is 1"),
        ({"words": -1}, "words is -1"),
        ({"layouts": "csv"}, "layouts is 'csv'"),
        ({"start": 3}, "start is 3"),
    ],
)
def test_wrong_parameters_are_refused(parameters, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        CrossedFillers(**parameters)
