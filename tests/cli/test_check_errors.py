"""What is wrong with a check is said in one sentence, before a task or a model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from lm_eval.tasks.manager import TaskManager

MODEL = ("--model_args", "pretrained=gpt2")
TASK = ("--tasks", "arc_easy")

pytestmark = pytest.mark.usefixtures("hub_cache")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--model_args", "pretrained=m/tyni", *TASK),
            "m/tyni, which is no folder and not in the hub's cache",
        ),
        (("--model_args", "pretrained=.", *TASK), "pretrained=., a folder without config.json; name the folder"),
        (
            ("--model_args", "pretrained=gpt2,dtpye=float32", *TASK),
            "'dtpye', which hf does not take; did you mean dtype",
        ),
        ((*MODEL, *TASK, "--limit", "30"), "check has no --limit; give --questions"),
        ((*MODEL, *TASK, "--limit=30"), "check has no --limit; give --questions"),
        ((*MODEL, "--tasks", "arc_esy"), "'arc_esy' is not a task, group, tag or audit; did you mean arc_easy"),
        ((*MODEL, "--tasks"), "argument --tasks/-t: expected at least one argument"),
        ((*MODEL, "--tasks", ""), "tasks is empty; name at least one task"),
        (MODEL, "check has no tasks; name benchmarks"),
        (TASK, "check has no model; name one"),
        (
            ("--model", "hf-prefix-tre", *MODEL, *TASK),
            "'hf-prefix-tre' is not a model of lm_eval; did you mean hf-",
        ),
        (
            (*MODEL, *TASK, "--questions", "enuff"),
            "questions is 'enuff'; give a whole number from 1, 'all' or",
        ),
        ((*MODEL, *TASK, "--engine", "slrum"), "engine is 'slrum'; choose one of: inline, local, ray, slurm"),
        ((*MODEL, *TASK, "--fail-on", "evidnece"), "fail_on is 'evidnece'; choose one of: strong_evidence, evidence"),
        ((*MODEL, *TASK, "--positive_control", "trian"), "positive_control is 'trian'; give train, none, or a file"),
        ((*MODEL, *TASK, "--metadata", "layots=every"), "'layots', which no audit knows; did you mean 'layouts'"),
        ((*MODEL, *TASK, "--output_path", "file"), "file is a file; choose a folder"),
        (
            (*MODEL, "--tasks", "rows.txt"),
            "'rows.txt', a file of a kind that is not read; its name must end in",
        ),
        ((*MODEL, "--tasks", "nowhere.csv"), "tasks has 'nowhere.csv', but there is no such file; check the path"),
        (
            (*MODEL, *TASK, "--reference", "rows.csv"),
            "reference is 'rows.csv', which is no folder; give one with",
        ),
        (
            ("--model", "openai-chat-completions", "--model_args", "model=gpt-4", *TASK),
            "leakage_perm cannot run: openai-chat-completions gives no log-likelihoods of given texts; choose another",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("further", [(), ("--dry_run",)], ids=["", "dry"])
def test_a_mistake_in_a_check_is_one_sentence_before_anything_is_loaded(
    typed, monkeypatch, tmp_path: Path, words, said, further
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(TaskManager, "load", lambda *_: pytest.fail("a task is loaded"))
    for name in ("file", "rows.txt", "rows.csv"):
        Path(name).touch()
    code, _, err = typed("check", *further, *words)
    assert code == 2
    assert said in err
    sentences = [line for line in err.splitlines() if not line.startswith(("usage:", " "))]
    assert len(sentences) == 1, err
