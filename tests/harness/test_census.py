from __future__ import annotations

import json
import signal
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness import auditable as census
from lm_eval_leakage.harness import auditable as census_report
from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.harness.tasks.templates import suffixes

extend_harness(TaskManager)

UTILS = """
import random

CONNECTORS = {"cause": "because", "effect": "so"}

def connected(doc):
    return doc["premise"] + CONNECTORS[doc["question"]]

def lettered(doc):
    lines = [f"{letter}- {doc[f'Option {place}']}" for place, letter in enumerate("ABC", 1)]
    return "\\n".join([doc["Question"], *lines, "Answer:"])

def as_query(docs):
    def one(doc):
        return {"query": "Q: " + doc["q"], "options": [doc["right"], doc["wrong1"]]}
    return docs.map(one)

def shuffled(docs):
    def one(doc):
        options = [doc["right"], doc["wrong1"]]
        random.shuffle(options)
        return {"query": "Q: " + doc["q"], "options": options}
    return docs.map(one)

def waits_for_ever(doc):
    while doc["again"]:
        pass

def breaks(doc):
    return doc["nothing"].no_such_method()

def gap(doc):
    return {"1": 0, "2": 1}[doc["answer"]]
"""
TASKS = {
    "letters": (
        '"{{question.strip()}}\\nA. {{A}}\\nB. {{B}}\\nAnswer:"',
        "[A, B]",
        "covered",
        "options in the prompt",
    ),
    "five": (
        '"{{question}}\\n{% for c in choices %}{{loop.index}}) {{c}}\\n{% endfor %}{{choices[4]}}?"',
        '["1", "2", "3", "4", "5"]',
        "covered",
        "options in the prompt",
    ),
    "texts": ('"Q: {{goal}}\\nA:"', '"{{[sol1, sol2]}}"', "covered", "options are the choices"),
    "nested": ('"{{question.stem}}"', '"{{question.choices.text}}"', "covered", "options are the choices"),
    "written": ('"Q: {{question}}"', "!function utils.written", "covered", "options are the choices"),
    "connected": ("!function utils.connected", '"{{[choice1, choice2]}}"', "covered", "options are the choices"),
    "function": ("!function utils.lettered", '["A", "B", "C"]', "covered", "options in the prompt"),
    "one_field": ('"{{input}}\\nAnswer:"', '["(A)", "(B)", "(C)"]', "covered", "options inside one field, found by"),
    "processed": ("query", "options", "covered", "options are the choices"),
    "random": ("query", "options", "refused", "the task orders or draws its options with random numbers"),
    "words": ('"{{premise}} True or false?"', '["true", "false"]', "refused", "the options are words of the task"),
    "shown_words": ('"{{text}}\\nA. fine\\nB. bad\\n"', '["A", "B"]', "refused", "the options are words of the task"),
    "sentences": ('""', '"{{[sentence_good, sentence_bad]}}"', "refused", "the task asks no question"),
    "in_context": (
        "!function utils.gap",
        '"{{[option1, option2]}}"',
        "refused",
        "each option is inside a context of its own",
    ),
    "one": ('"{{question}}"', '"{{[answer_text]}}"', "refused", "the task offers 1 choice"),
    "no_module": ("!function missing.function", '["A", "B"]', "refused", "the harness itself cannot load it"),
    "broken": ("!function utils.breaks", '["A", "B"]', "failed", "no made-up row works with its code"),
    "endless": ("!function utils.waits_for_ever", '["A", "B"]', "failed", "no made-up row works with its"),
}
PROCESSED = {"processed": "as_query", "random": "shuffled"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, census.Finding]:
    folder = tmp_path_factory.mktemp("harness") / "tasks" / "made_up"
    folder.mkdir(parents=True)
    written = '\ndef written(doc):\n    import ast\n    return ast.literal_eval(doc["choices"])\n'
    (folder / "utils.py").write_text(UTILS + written)
    for name, (text, choices, _, _) in TASKS.items():
        process = f"process_docs: !function utils.{PROCESSED[name]}\n" if name in PROCESSED else ""
        (folder / f"{name}.yaml").write_text(
            f"task: {name}\noutput_type: multiple_choice\ndataset_path: none\ntest_split: test\n"
            f"doc_to_text: {text}\ndoc_to_choice: {choices}\ndoc_to_target: answer\n{process}"
        )
    (folder / "all.yaml").write_text("group: all\ntask: [letters, {group: inner, task: [words]}]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(census, "SECONDS", 0.5)
        patch.setattr(census, "constants", lambda task: original(task)[:5])
        index = TaskManager(include_path=str(folder), include_defaults=False).task_index
        listed = census_report.findings_of("all", index)
        findings = {finding.task: finding for finding in census.findings(index)}
    return findings | {"listed": listed}


original = census.constants


@pytest.mark.parametrize("name", TASKS)
def test_a_made_up_row_shows_whether_a_task_can_be_audited(name: str, found) -> None:
    *_, status, reason = TASKS[name]
    assert (found[name].status, found[name].reason[: len(reason)]) == (status, reason)


def test_every_task_is_found_once_under_its_folder(found) -> None:
    findings = [finding for name, finding in found.items() if name != "listed"]
    assert sorted(finding.task for finding in findings) == sorted(TASKS)
    assert {finding.folder for finding in findings} == {"made_up"}


def test_findings_on_a_group_are_those_of_its_tasks(found) -> None:
    assert [(finding.task, finding.status) for finding in found["listed"]] == [
        ("letters", "covered"),
        ("words", "refused"),
    ]
    first, second, _, audits, sealed = census_report.as_list(found["listed"]).splitlines()
    assert first == "letters  covered  options in the prompt"
    assert second.startswith("words    refused  the options are words of the task")
    others = sorted({*suffixes()} - {"leakage_wording"})
    assert audits == "audits: " + ", ".join(f"TASK_{suffix}" for suffix in others)
    assert sealed == ("if it is sealed, with --metadata seal=PRIVATE_FOLDER: TASK_leakage_seal, TASK_leakage_wording")
    assert "letters_leakage_perm" in census_report.as_list([found["letters"]])
    assert "audits" not in census_report.as_list([found["words"]])


def test_the_report_counts_and_gives_every_reason(found) -> None:
    findings = [finding for name, finding in found.items() if name != "listed"]
    lines = census_report.as_markdown(findings).splitlines()
    assert lines[0] == "| folder | covered | refused | failed |"
    assert lines[2] == "| all | 9 | 7 | 2 |"
    assert lines[3] == "| made_up | 9 | 7 | 2 |"
    for finding in findings:
        assert any(finding.reason in line for line in lines)
    assert {entry["task"] for entry in json.loads(census_report.as_json(findings))} == set(TASKS)


def test_folders_of_tasks_outside_the_harness_are_named_in_full(tmp_path: Path) -> None:
    from lm_eval.tasks._index import Entry, Kind

    entry = Entry("mine", Kind.TASK, tmp_path / "mine.yaml")
    assert census.folder_of(entry) == str(tmp_path)


def test_a_time_limit_that_strikes_while_garbage_is_collected_strikes_again() -> None:
    """An exception in the callback of a weak reference would be lost, and pytest would fail another test for it."""
    with census.at_most(60):
        handler = signal.getsignal(signal.SIGALRM)
        assert callable(handler)
        handler(signal.SIGALRM, SimpleNamespace(f_globals=vars(weakref)))
        with pytest.raises(TimeoutError, match="no answer within 60 s"):
            handler(signal.SIGALRM, SimpleNamespace(f_globals=globals()))
