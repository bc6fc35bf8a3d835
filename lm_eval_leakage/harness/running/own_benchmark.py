"""Makes a task of lm_eval from a file of plain questions, so that a benchmark of one's own has an accuracy, too.

Questions whose right option the file does not tell cannot be scored: then there are audits, and no accuracy.
"""

from __future__ import annotations

from pathlib import Path
from string import ascii_uppercase

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.running.lettered_task import lettered_yaml, name_from_file
from lm_eval_leakage.harness.tasks.audit_suffixes import FIRST_AUDIT
from lm_eval_leakage.harness.tasks.data_files import ENDINGS, read_file
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.texts import as_json, as_yaml

SCORED_COMMENT = "# Written by `lm-eval-leakage check` from {source}: lettered options, as in MMLU."
SCORED_DATA = """dataset_path: json
dataset_kwargs:
  data_files:
    test: {rows}"""
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
    name = name_from_file(file)
    rows = folder / f"{name}.jsonl"
    atomic_write(rows, "".join(f"{as_json(_row(question))}\n" for question in questions))
    if all(question.answer is not None for question in questions):
        data = SCORED_DATA.format(rows=as_yaml(str(rows.resolve())))
        comment = SCORED_COMMENT.format(source=as_yaml(file.name))
        atomic_write(folder / f"{name}.yaml", lettered_yaml(name, data, comment))
    else:
        atomic_write(folder / f"{name}_{FIRST_AUDIT}.yaml", _audit_only(name, file, rows))
    return name


def _audit_only(name: str, file: Path, rows: Path) -> str:
    return AUDIT_ONLY_YAML.format(
        source=as_yaml(file.name),
        name=name,
        rows=as_yaml(rows.name),
        template=as_yaml(str(task_configs_path() / f"_{FIRST_AUDIT}_yaml")),
        audit=FIRST_AUDIT,
    )


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
