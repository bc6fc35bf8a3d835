from __future__ import annotations

import argparse

import pytest

from lm_eval_leakage.lab.command import add_arguments, settings
from lm_eval_leakage.lab.outcome_report import reaches_half
from lm_eval_leakage.lab.settings import PROTOCOLS


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
    return settings(
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
