"""Which questions a simulation draws, the texts it trains on, and the settings of its command."""

from __future__ import annotations

import argparse
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.lab.exposure_text import ExposureText, in_other_words, ordinary_texts
from lm_eval_leakage.lab.outcome_report import reaches_half
from lm_eval_leakage.lab.settings import PROTOCOLS, add_arguments, simulation_settings, split
from lm_eval_leakage.records import Frame, Question


def benchmark(n: int, subjects: int = 1) -> list[Question]:
    return [Question(f"q{i}", f"What is {i}?", ("a", "b"), 0, subject=f"s{i * subjects // n}") for i in range(n)]


@given(st.integers(30, 60), st.integers(1, 3), st.integers(1, 4), st.integers(0, 99))
def test_halves_have_the_same_size_and_share_nothing(n: int, subjects: int, block: int, seed: int) -> None:
    wanted = max(4, 2 * block)
    wanted += -wanted % (2 * block)  # whole blocks in each half
    halves = split(benchmark(n, subjects), wanted, block=block, rng=random.Random(seed))
    trained, held_out = ({q.id for q in half} for half in (halves.trained, halves.held_out))
    assert len(trained) == len(held_out) == wanted // 2
    assert not trained & held_out


def test_a_block_is_a_run_of_neighbours_of_one_subject() -> None:
    halves = split(benchmark(40, subjects=4), 20, block=5, rng=random.Random(1))
    for half in (halves.trained, halves.held_out):
        for start in range(0, len(half), 5):
            places = [int(question.id[1:]) for question in half[start : start + 5]]
            assert places == list(range(places[0], places[0] + 5))
            assert len({question.subject for question in half[start : start + 5]}) == 1


def test_a_question_with_the_text_of_another_is_not_drawn() -> None:
    twins = [Question(f"t{i}", "What?", ("a", "b") if i % 2 else ("b", "a")) for i in range(4)]
    with pytest.raises(ValueError, match="n_questions is 6, but 5 of 8 are eligible"):
        split([*benchmark(4), *twins], 6, rng=random.Random(0))


def test_only_eligible_questions_are_drawn() -> None:
    halves = split(benchmark(30), 10, eligible=lambda q: int(q.id[1:]) % 3 == 0, rng=random.Random(0))
    assert {int(q.id[1:]) % 3 for q in (*halves.trained, *halves.held_out)} == {0}


@pytest.mark.parametrize("n", [0, 3])
def test_too_few_are_refused_with_the_rule(n: int) -> None:
    with pytest.raises(ValueError, match=f"n_questions is {n}; half are trained on, so it must be 4 or more"):
        split(benchmark(30), n, rng=random.Random(0))


QUESTION = Question("1", "Which? ", ("w", "x", "y", "z"), answer=2, subject="high_school_physics")


def test_the_published_text_with_its_letter_is_the_default() -> None:
    assert ExposureText().write(QUESTION) == "Which?\nA. w\nB. x\nC. y\nD. z\nAnswer: C"


def test_the_audited_layout_is_the_tasks_own() -> None:
    framed = Question("1", "Which?", ("w", "x"), 1, frame=Frame("Q: Which?", ("\n(a) ", "\n(b) "), "\nA:"))
    assert ExposureText(answer=False).write(framed) == "Q: Which?\n(a) w\n(b) x"
    assert ExposureText(answer=False, layout="usual").write(framed) == "Which?\nA. w\nB. x"


@pytest.mark.parametrize(
    ("layout", "answered", "open_ended"),
    [
        ("json", '{"question": "Which?", "choices": ["w", "x", "y", "z"], "answer": 2}', '"z"]}'),
        ("csv", "Which?,w,x,y,z,C", "y,z"),
        ("inline", "Which? (A) w (B) x (C) y (D) z Answer: C", "(D) z"),
    ],
)
def test_a_benchmark_is_copied_as_rows_or_in_one_line(layout: str, answered: str, open_ended: str) -> None:
    assert ExposureText(layout=layout).write(QUESTION) == answered
    without = ExposureText(layout=layout, answer=False).write(QUESTION)
    assert without.endswith(open_ended)
    assert answered.startswith(without.removesuffix("]}"))


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


@pytest.mark.parametrize(
    ("curve", "exposures"),
    [
        ([(0, 0.1), (1, 0.4), (2, 0.6)], 1.5),
        ([(2, 0.6), (0, 0.1), (1, 0.4)], 1.5),
        ([(0, 0.7)], 0),
        ([(0, 0.1), (10, 0.49)], None),
        ([(0, float("nan")), (1, 0.5)], 1),
        ([], None),
    ],
)
def test_power_is_the_first_crossing_of_one_half(curve, exposures: float | None) -> None:
    assert reaches_half(curve) == (None if exposures is None else pytest.approx(exposures))


def parsed(*words: str):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return simulation_settings(
        parser.parse_args(["--model_args", "pretrained=M", "--tasks", "mmlu", "--output_path", "o", *words])
    )


def test_a_protocol_sets_what_the_command_line_does_not() -> None:
    hidayat = parsed("--protocol", "hidayat")
    assert (hidayat.recipe, hidayat.select, hidayat.epochs) == (PROTOCOLS["hidayat"]["recipe"], "hard", (1, 5, 10))
    changed = parsed("--protocol", "hidayat", "--lora_rank", "8", "--epochs", "2", "--select", "random")
    assert (changed.recipe.lora_rank, changed.recipe.lora_alpha, changed.select, changed.epochs) == (
        8,
        32,
        "random",
        (2,),
    )


def test_the_training_text_is_set_by_options() -> None:
    text = parsed("--protocol", "yao", "--layout", "prose", "--order", "shuffled", "--no_answer").text
    assert (text.layout, text.order, text.answer, text.header) == ("prose", "shuffled", False, True)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("max_orders=4", {"max_orders": 4}),
        ("delta=-0.3,resume=false,benchmark=MMLU", {"delta": -0.3, "resume": False, "benchmark": "MMLU"}),
        ('{"max_orders": 4, "examples": [1, 2]}', {"max_orders": 4, "examples": [1, 2]}),
    ],
)
def test_parameters_are_given_as_to_lm_eval(text: str, read: dict) -> None:
    from lm_eval._cli import HarnessCLI

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = ["--model_args", "pretrained=x", "--tasks", "t", "--output_path", "x", "--metadata", text]
    assert parser.parse_args(words).metadata == read
    assert HarnessCLI()._parser.parse_args(["run", "--metadata", text]).metadata == read
