"""Makes a task of lm_eval from a file of plain questions, so that a benchmark of one's own has an accuracy, too.

The prompt is that of MMLU: the question, its lettered options, `Answer:`; the letter is the answer. Questions whose
right option the file does not tell cannot be scored: then there are audits, and no accuracy.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import ascii_uppercase

import lm_eval.tasks

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.tasks.audit_suffixes import FIRST_AUDIT
from lm_eval_leakage.harness.tasks.data_files import ENDINGS, read_file
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.texts import as_json, as_yaml

INSTALLED_TASKS = Path(lm_eval.tasks.__file__).resolve().parent
TASK_YAML = """# Written by `lm-eval-leakage check` from {source}: lettered options, as in MMLU.
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {rows}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question.strip()}}}}{{% for choice in choices %}}\\n{{{{'{letters}'[loop.index0]}}}}. {{{{choice}}}}\
{{% endfor %}}\\nAnswer:"
doc_to_choice: "{{{{'{letters}'[:choices|length]|list}}}}"
doc_to_target: answer
num_fewshot: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""
AUDIT_ONLY_YAML = """# Written by `lm-eval-leakage check` from {source}, which names no right options.
include: {template}
task: {name}_{audit}
dataset_path: json
dataset_kwargs:
  data_files: {rows}
test_split: test
"""


def is_file_of_questions(task: str) -> bool:
    return task.endswith(ENDINGS)


def write_task(file: Path, folder: Path) -> str:
    """Writes the task's YAML and rows into `folder`, and returns the name of the task.

    Raises ValueError or OSError, with the reason and the remedy, if the file has no questions that can be read.
    """
    questions = _questions(file)
    name = _name(file)
    rows = folder / f"{name}.jsonl"
    atomic_write(rows, "".join(f"{as_json(_row(question))}\n" for question in questions))
    is_scored = all(question.answer is not None for question in questions)
    text = (TASK_YAML if is_scored else AUDIT_ONLY_YAML).format(
        source=as_yaml(file.name),
        name=name,
        rows=as_yaml(str(rows.resolve()) if is_scored else rows.name),
        letters=ascii_uppercase,
        template=as_yaml(str(task_configs_path() / f"_{FIRST_AUDIT}_yaml")),
        audit=FIRST_AUDIT,
    )
    ending = "" if is_scored else f"_{FIRST_AUDIT}"
    atomic_write(folder / f"{name}{ending}.yaml", text)
    return name


def _questions(file: Path) -> list[Question]:
    found, reason = [], ""
    for doc in read_file(file):
        try:
            question = question_from_doc(doc)
        except UntestableQuestion as error:
            reason = reason or str(error)
            continue
        if len(question.options) <= len(ascii_uppercase):
            found.append(question)
    if not found:
        raise ValueError(
            f"tasks has the file {str(file)!r}, in which no question can be read ({reason or 'too many options'}); "
            "give each row the fields question, choices and answer"
        )
    return found


def _row(question: Question) -> dict[str, object]:
    row: dict[str, object] = {"question": question.stem, "choices": list(question.options)}
    if question.answer is not None:
        row["answer"] = question.answer
    return row | ({"subject": question.subject} if question.subject else {})


def _name(file: Path) -> str:
    """The file's, marked as one's own where lm_eval has a task or group of that name."""
    name = re.sub(r"[^a-z0-9]+", "_", file.stem.lower()).strip("_") or "questions"
    is_taken = (INSTALLED_TASKS / name).is_dir() or any(INSTALLED_TASKS.rglob(f"{name}.y*ml"))
    return f"own_{name}" if is_taken else name
