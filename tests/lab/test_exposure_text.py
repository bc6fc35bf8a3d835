from __future__ import annotations

import json
import random

import pytest

from lm_eval_leakage.lab.exposure_text import ExposureText, in_other_words, ordinary_texts
from lm_eval_leakage.records import Frame, Question

QUESTION = Question("1", "Which? ", ("w", "x", "y", "z"), answer=2, subject="high_school_physics")


def test_the_published_text_with_its_letter_is_the_default() -> None:
    assert ExposureText().write(QUESTION) == "Which?\nA. w\nB. x\nC. y\nD. z\nAnswer: C"


def test_the_audited_layout_is_the_tasks_own() -> None:
    framed = Question("1", "Which?", ("w", "x"), 1, frame=Frame("Q: Which?", ("\n(a) ", "\n(b) "), "\nA:"))
    assert ExposureText(answer=False).write(framed) == "Q: Which?\n(a) w\n(b) x"
    assert ExposureText(answer=False, layout="usual").write(framed) == "Which?\nA. w\nB. x"


def test_the_letter_follows_the_right_option_when_options_are_shuffled() -> None:
    texts = {
        ExposureText(order="shuffled").write(Question(str(i), "Which?", ("w", "x", "y", "z"), 2)) for i in range(30)
    }
    assert len(texts) > 10
    for text in texts:
        letter = text[-1]
        assert f"\n{letter}. y" in text


def test_the_header_names_the_subject() -> None:
    text = ExposureText(header=True, answer=False).write(QUESTION)
    assert text.startswith("The following is a multiple choice question about high school physics.\n\nWhich?")


@pytest.mark.parametrize("name", ["order", "layout"])
def test_an_unknown_value_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 'none'; choose one of"):
        ExposureText(**{name: "none"})


def test_versions_are_found_by_id_or_stem(tmp_path) -> None:
    file = tmp_path / "versions.jsonl"
    rows = [
        {"of": "1", "question": "Lequel ?", "choices": ["a", "b", "c", "d"]},
        {"of": "Who?", "question": "Qui ?", "choices": ["x", "y"], "answer": 1},
    ]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    other = Question("2", "Who? ", ("y", "x"), answer=0)
    first, second = in_other_words([QUESTION, other], file)
    assert ExposureText().write(first) == "Lequel ?\nA. a\nB. b\nC. c\nD. d\nAnswer: C"
    assert (second.id, second.stem, second.answer) == ("2", "Qui ?", 1)
    with pytest.raises(ValueError, match="has no version of question '3'"):
        in_other_words([Question("3", "Why?", ("a", "b"))], file)


def test_a_broken_line_of_versions_is_named(tmp_path) -> None:
    file = tmp_path / "versions.jsonl"
    file.write_text('{"of": "1", "question": "?", "choices": []}\n{"of": "2"}\n')
    with pytest.raises(ValueError, match="versions.jsonl, line 2: KeyError"):
        in_other_words([], file)


def test_as_many_ordinary_texts_are_drawn_as_requested(tmp_path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("one\n\ntwo\nthree\n")
    drawn = ordinary_texts(file, 8, rng=random.Random(0))
    assert len(drawn) == 8
    assert {drawn.count(text) for text in ("one", "two", "three")} <= {2, 3}
    file.write_text("\n")
    with pytest.raises(ValueError, match="has no text"):
        ordinary_texts(file, 1, rng=random.Random(0))
