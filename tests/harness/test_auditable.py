"""What `ls TASK` says: from a task's settings, or from its first rows."""

from __future__ import annotations

import pytest
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.auditable import Finding, as_list, findings_of
from lm_eval_leakage.harness.tasks.templates import suffixes
from tests.written_tasks import write_task

UTILS = """
import random

def as_query(docs):
    return docs.map(lambda doc: {"query": "Q: " + doc["stem"], "options": [doc["a"] + "!", doc["b"] + "!"]})

def shuffled(docs):
    def one(doc):
        options = [doc["a"] + "!", doc["b"] + "!", doc["c"] + "!"]
        random.shuffle(options)
        return {"query": "Q: " + doc["stem"], "options": options}
    return docs.map(one)

def in_a_row(docs):
    def one(doc):
        options = [doc["a"], doc["b"], doc["c"]]
        place = int(doc["a"].split()[1]) % 3
        return {"query": doc["stem"], "options": options[place:] + options[:place]}
    return docs.map(one, remove_columns=["a", "b", "c"])

def in_turns(doc):
    first = len(doc["stem"]) % 2
    return doc["stem"] + "".join(f"\\n{label} - {doc[name]}" for label, name in zip("AB", ["ab", "ba"][first]))

def gap(doc):
    return {"1": 0, "2": 1}["1"]

def before_gap(doc):
    return ["It is " + doc["a"], "It is " + doc["b"]]
"""
LETTERED = '"{{stem}}\\nA. {{a}}\\nB. {{b}}\\nAnswer:"'
TASKS = {  # prompt, choices, and what is found
    "letters": (LETTERED, "[A, B]", "covered", "options in the prompt"),
    "texts": ('"Q: {{stem}}\\nA:"', '"{{[a, b]}}"', "covered", "options are the choices"),
    "one_field": ('"{{block}}\\nAnswer:"', '["(A)", "(B)"]', "covered", "options inside one field, found by their"),
    "as_query": ("query", "options", "covered", "options are the choices"),
    "shuffled": ("query", "options", "refused", "the task orders or draws its options with random numbers"),
    "in_a_row": ("query", "options", "refused", "the task puts the options into an order of its own: they come from"),
    "by_text": ("!function utils.in_turns", "[A, B]", "refused", "the task puts the options into an order of its own"),
    "columns": ('"{{stem}}\\n- A: {{c}}\\n- B: {{a}}"', "[A, B]", "covered", "options in the prompt"),
    "words": ('"{{stem}} True or false?"', '["true", "false"]', "refused", "the options are words of the task"),
    "lines": (
        "stem",
        '["no\\nway", "yes"]',
        "refused",
        "the options are words of the task, the same for every question: no way",
    ),
    "shown_words": ('"{{stem}}\\nA. fine\\nB. bad\\n"', '["A", "B"]', "refused", "the options are words of the task"),
    "sentences": ('""', '"{{[a, b]}}"', "refused", "the task asks no question"),
    "in_context": ("!function utils.gap", '"{{[a, b]}}"', "refused", "each option is inside a context of its own"),
    "as_winogrande": (
        "!function utils.gap",
        "!function utils.before_gap",
        "refused",
        "each option is inside a context",
    ),
    "one": ('"{{stem}}"', '"{{[a]}}"', "unknown", "the harness cannot load it"),
    "no_module": ("!function missing.function", '["A", "B"]', "unknown", "the harness cannot load it (ImportError"),
    "exits": ("!function exits.function", '["A", "B"]', "unknown", "the harness cannot load it (SystemExit"),
    "no_data": (LETTERED, "[A, B]", "unknown", "the harness cannot load it"),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "utils.py").write_text(UTILS)
    (folder / "exits.py").write_text("raise SystemExit(1)\n")
    rows = [
        {"stem": f"Which is the {n}th?", "a": f"ash {n}", "b": f"box {n}", "c": f"cat {n}", "answer": 0}
        | {"block": f"Which is {n}?\n(A) oak {n}\n(B) elm {n}"}
        for n in range(30)
    ]
    for name, (text, choices, _, _) in TASKS.items():
        process = f"process_docs: !function utils.{name}\n" if f"def {name}(" in UTILS else ""
        write_task(folder, name, rows, text, choices, process)
    (folder / "no_data.jsonl").unlink()
    (folder / "written.yaml").write_text("task: written\nclass: !function utils.gap\n")
    (folder / "all.yaml").write_text("group: all\ntask: [letters, {group: inner, task: [words, texts]}]\n")
    return TaskManager(include_path=str(folder), include_defaults=False).task_index


@pytest.mark.parametrize("name", TASKS)
def test_the_first_rows_show_whether_a_task_can_be_audited(name: str, index) -> None:
    *_, status, reason = TASKS[name]
    (finding,) = findings_of(name, index)
    assert (finding.status, finding.reason[: len(reason)]) == (status, reason)


def test_findings_on_a_group_are_those_of_its_tasks(index) -> None:
    findings = findings_of("all", index, each=True)
    assert [(finding.task, finding.status) for finding in findings] == [
        ("letters", "covered"),
        ("words", "refused"),
        ("texts", "covered"),
    ]
    assert [finding.status for finding in findings_of("all", index)] == ["covered", "unknown", "unknown"]
    with pytest.raises(KeyError):
        findings_of("nowhere", index)


def test_the_list_names_the_audits_and_apart_those_that_need_a_seal() -> None:
    findings = [Finding("letters", "covered", "options in the prompt"), Finding("words", "refused", "why")]
    first, second, _, audits, sealed = as_list(findings).splitlines()
    assert first == "letters  covered  options in the prompt"
    assert second == "words    refused  why"
    others = sorted({*suffixes()} - {"leakage_wording"})
    assert audits == "audits: " + ", ".join(f"TASK_{suffix}" for suffix in others)
    assert sealed == "if it is sealed, with --metadata seal=PRIVATE_FOLDER: TASK_leakage_seal, TASK_leakage_wording"
    assert "letters_leakage_perm" in as_list(findings[:1])
    assert "audits" not in as_list(findings[1:])
