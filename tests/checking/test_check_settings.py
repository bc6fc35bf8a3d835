"""What a check accepts, and the sentence for what it does not."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import pytest

from lm_eval_leakage.cli.check import check_arguments
from lm_eval_leakage.jobs.check_settings import as_command, check_settings

GIVEN = {"model": "hf", "model_args": "pretrained=m,dtype=bfloat16", "tasks": ["mmlu,arc_easy", "piqa"]}


def test_values_are_read_as_lm_eval_reads_them() -> None:
    found = check_settings(GIVEN)
    assert found.model_args == {"pretrained": "m", "dtype": "bfloat16"}
    assert found.tasks == ("mmlu", "arc_easy", "piqa")
    assert (found.questions, found.seed, found.output_path) == (300, 0, Path("leakage"))


def test_a_file_has_the_same_names_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "model: hf\nmodel_args: {pretrained: m}\ntasks: [piqa]\nquestions: all\nseed: 3\nfail_on: evidence\n"
        "allow_untold: true\n"
    )
    found = check_settings({"questions": "20", "tasks": None}, file)
    assert (found.tasks, found.questions, found.seed) == (("piqa",), 20, 3)
    assert (found.fail_on, found.allow_untold) == ("evidence", True)


def test_leakage_yaml_is_taken_only_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("leakage.yaml").write_text("model: hf\nmodel_args: {pretrained: m}\ntasks: piqa\nseed: 7\n")
    assert check_settings({}).seed == 7
    assert check_settings(GIVEN).seed == 0


def test_the_example_of_the_docs_is_accepted(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    file = tmp_path / "leakage.yaml"
    file.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    assert check_settings({}, file).tasks == ("openbookqa", "arc_challenge")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"model": None, "model_args": None}, "model is not given; name one as for lm_eval"),
        ({"tasks": None}, "tasks is not given; name benchmarks as for lm_eval"),
        ({"questions": "0"}, "questions is '0'; give a whole number from 1, or 'all'"),
        ({"questions": "many"}, "questions is 'many'; give a whole number from 1, or 'all'"),
        ({"questions": True}, "questions is True; give a whole number from 1, or 'all'"),
        ({"seed": "x"}, "seed is 'x'; give a whole number"),
        ({"fail_on": "leaks"}, "fail_on is 'leaks'; choose one of: strong_evidence, evidence, none_found"),
        ({"runs": "/no/such/folder"}, "runs is '/no/such/folder', which does not exist; name the --output_path"),
        ({"reference": "/no/such"}, "reference is '/no/such', which is no folder; give one with another model's"),
        ({"unseen": "/no/such", "tasks": "piqa"}, "unseen is '/no/such', which is not a file; give one"),
        (
            {"orders": "random", "tasks": "piqa"},
            "orders is 'random'; write STATUS: SOURCE, with one of random, written",
        ),
        ({"orders": "shuffled: p. 3", "tasks": "piqa"}, "orders is 'shuffled: p. 3'; write STATUS: SOURCE"),
        ({"model_args": "gpt2"}, "model_args is 'gpt2'; write it as for lm_eval: pretrained=MODEL"),
        ({"batch_size": "-1"}, "batch_size is '-1'; give a whole number from 1, or auto"),
        ({"output_path": __file__}, f"{__file__} is a file; choose a folder"),
        ({"question": 3}, "check has 'question', which is not a setting; did you mean 'questions'?"),
        ({"quiet": "yes"}, "quiet is 'yes'; give true or false"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_sentence_with_the_remedy(given: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match="\\w") as raised:
        check_settings(GIVEN | given)
    assert str(raised.value).startswith(sentence)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("model: hf\nmodle_args: {}\n", "did you mean 'model_args'?"),
        ("- a\n", "holds ['a']; give names and values"),
        ("a: [\n", "is not valid YAML"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "leakage.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match="\\w") as raised:
        check_settings({}, file)
    assert str(file) in str(raised.value)
    assert sentence in str(raised.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"config is 'no.yaml', which is not a file"):
        check_settings(GIVEN, "no.yaml")


def test_unseen_questions_are_for_one_task(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.touch()
    with pytest.raises(ValueError, match="name one task with --unseen"):
        check_settings(GIVEN | {"unseen": str(file)})


def test_a_documented_draw_is_of_one_task() -> None:
    with pytest.raises(ValueError, match="name one task with --orders"):
        check_settings(GIVEN | {"orders": "random: page 3"})


def test_more_processes_than_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="check runs in one process"):
        check_settings(GIVEN)


def test_a_check_as_a_command_is_read_as_the_same_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = GIVEN | {"questions": "all", "seed": 4, "runs": [tmp_path], "apply_chat_template": True}
    settings = check_settings(given)
    _, _, *words = shlex.split(as_command(settings))
    parser = argparse.ArgumentParser()
    check_arguments(parser)
    told = {name: value for name, value in vars(parser.parse_args(words)).items() if name != "config"}
    assert check_settings(told) == settings
