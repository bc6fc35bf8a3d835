"""Writes the YAML of a task whose prompt is that of MMLU: the question, its lettered options, `Answer:`; needs only
lm_eval.

Rows have the fields question, choices and answer, the index of the right option.

Makes a task of lm_eval from a file of plain questions, so that a benchmark of one's own has an accuracy, too.

Questions whose right option the file does not have cannot be scored: then there are audits, and no accuracy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import NamedTuple

import lm_eval.tasks

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.files import QUESTION_FILES, atomic_write
from lm_eval_leakage.harness.tasks.data import docs_of
from lm_eval_leakage.harness.tasks.question_files import read_file, read_questions
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT, names_an_audit
from lm_eval_leakage.questions.fields import ROWS_NAMED, Doc, question_from_doc, right_options
from lm_eval_leakage.questions.named_fields import NO_FIELDS, OF_ROWS, QUESTION, Fields
from lm_eval_leakage.questions.rendering import refuse_unlabelled
from lm_eval_leakage.questions.statements import refusal_of_statements, statement_reader
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.results.formatting import count, counted
from lm_eval_leakage.texts import as_json, as_yaml

INSTALLED_TASKS = Path(lm_eval.tasks.__file__).resolve().parent
TASK_YAML = """{comment}
task: {name}
{data}
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
OPEN_ENDED_COMMENT = "# Written by `lm-eval-leakage check` from {source}: texts without options."
OPEN_ENDED_YAML = """{comment}
task: {name}
{data}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer.split('####')[-1].strip()}}}}"
generation_kwargs:
  until: ["\\n"]
filter_list:
  - name: first_line
    filter:
      - function: remove_whitespace
      - function: take_first
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
metadata:
  version: 1.0
"""
OPEN_ENDED = "its rows have no options, and no task says which answers to them are right"


def lettered_yaml(name: str, data: str, comment: str) -> str:
    """Return the task's YAML; `data`: its lines that say where the split `test` is loaded from; `comment`: lines with
    #."""
    return TASK_YAML.format(name=as_yaml(name), data=data, comment=comment, letters=ascii_uppercase)


def name_from_file(file: Path, others: Container[str], n_folders: int = 0) -> str:
    """Return the name of the file's task, marked as the user's own where another task, group or tag has that name.

    others: names of tasks, groups and tags
    n_folders: how many of the folders above the file are named before it
    """
    *folders, _ = file.parts
    words = "_".join([*(folders[-n_folders:] if n_folders else []), file.stem])
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_") or "questions"
    if names_an_audit(name):
        name += "_questions"
    while name in others or f"{name}_{FIRST_AUDIT}" in others:
        name = f"own_{name}"
    return name


def names_from_files(files: Collection[Path], others: Container[str]) -> dict[Path, str]:
    """Return a name for the task of each file, none of them among `others`. Files of one name are distinguished by the
    folders above them.

    Raises ValueError if the paths of two files differ only in their endings, in capitals or in punctuation.
    """
    depths = dict.fromkeys(files, 0)
    while True:
        names = {file: name_from_file(file, others, n) for file, n in depths.items()}
        counts = Counter(names.values())
        alike = [file for file in files if counts[names[file]] > 1]
        if not alike:
            return names
        for file in alike:
            if depths[file] == len(file.parts):
                other = next(candidate for candidate in alike if candidate != file and names[candidate] == names[file])
                raise ValueError(
                    f"tasks has {str(file)!r} and {str(other)!r}, whose tasks would have one name; rename one of the "
                    "files"
                )
            depths[file] += 1


def open_ended_yaml(name: str, data: str, comment: str) -> str:
    """Return the YAML of a task without options, which compares the first line that a model writes with the answer, or
    with what stands after its last `####`.

    data, comment: as in `lettered_yaml`
    """
    return OPEN_ENDED_YAML.format(name=as_yaml(name), data=data, comment=comment)


def is_file_of_questions(task: str) -> bool:
    return task.endswith(QUESTION_FILES)


class OwnTask(NamedTuple):
    """The task of a file.

    unscored: why there is no accuracy; empty if there is one
    unread: which rows of the file are left out, and why; empty if there are none
    """

    name: str
    unscored: str
    unread: str = ""


def write_task(file: Path, folder: Path, name: str, fields: Fields = NO_FIELDS) -> OwnTask:
    """Write the task's YAML and rows into `folder`.

    fields: of the file's rows, that hold the parts of a question

    Raises ValueError or OSError, with the reason and the remedy, if the file has no questions that can be read.
    """
    rows = folder / f"{name}.jsonl"
    questions, several, unread = _questions(file, fields)
    if not questions:
        return _write_open_ended(file, folder, name, fields, unread)
    atomic_write(rows, "".join(f"{as_json(_row(question))}\n" for question in questions.values()))
    scored, audit_only = folder / f"{name}.yaml", folder / f"{name}_{FIRST_AUDIT}.yaml"
    without = [row for row, question in questions.items() if question.answer is None]
    if not without:
        audit_only.unlink(missing_ok=True)  # of the file as it was before
        data = SCORED_DATA.format(rows=as_yaml(str(rows.resolve())))
        atomic_write(scored, lettered_yaml(name, data, SCORED_COMMENT.format(source=as_yaml(file.name))))
        return OwnTask(name, "", unread)
    scored.unlink(missing_ok=True)
    template = as_yaml(str(task_configs_path() / f"_{FIRST_AUDIT}_yaml"))
    given = {"source": as_yaml(file.name), "name": name, "rows": as_yaml(rows.name), "template": template}
    atomic_write(audit_only, AUDIT_ONLY_YAML.format(**given, audit=FIRST_AUDIT))
    none = [row for row in without if row not in several]
    kinds = (("no right answer", none), ("several right answers", [row for row in without if row in several]))
    parts = [
        f"{len(numbers):,} {'has' if len(numbers) == 1 else 'have'} {what} (row {_listed(numbers)})"
        for what, numbers in kinds
        if numbers
    ]
    why = f"of {len(questions):,} questions, {' and '.join(parts)}; give each one, or leave these out"
    return OwnTask(name, why, unread)


def _write_open_ended(file: Path, folder: Path, name: str, fields: Fields, unread: str) -> OwnTask:
    """Write the task of a file whose rows have no options, if names in them can be exchanged.

    unread: why no row is a question with options

    Raises ValueError, with both reasons, if they cannot.
    """
    docs = read_file(file)
    refusal, readings = unread, list[Question | UntestableQuestion]()
    try:
        read = statement_reader([*docs], field=fields.get(QUESTION))
    except UntestableQuestion:  # there is no text either
        pass
    else:
        readings = [doc.reading for doc in docs_of(docs, read)]
        why = refusal_of_statements(readings)
        refusal = f"{unread}; {why}" if why else ""
    if refusal:
        raise ValueError(f"tasks has the file {str(file)!r}, in which no question can be read ({refusal}); {OF_ROWS}")
    rows = folder / f"{name}.jsonl"
    texts = [reading.stem for reading in readings if isinstance(reading, Question)]
    atomic_write(rows, "".join(f"{as_json({'question': text, 'answer': ''})}\n" for text in texts))
    (folder / f"{name}_{FIRST_AUDIT}.yaml").unlink(missing_ok=True)
    data = SCORED_DATA.format(rows=as_yaml(str(rows.resolve())))
    comment = OPEN_ENDED_COMMENT.format(source=as_yaml(file.name))
    atomic_write(folder / f"{name}.yaml", open_ended_yaml(name, data, comment))
    return OwnTask(name, OPEN_ENDED, unread_in_words(readings))


def _listed(rows: Sequence[int]) -> str:
    return ", ".join(map(str, rows[:ROWS_NAMED])) + (", ..." if len(rows) > ROWS_NAMED else "")


def _questions(file: Path, fields: Fields) -> tuple[dict[int, Question], set[int], str]:
    """Return the questions of the rows, counted from 1, that can be asked; the rows that have several right answers;
    and which rows cannot be asked, with the reasons."""
    docs = docs_of(read_questions(file, fields), lettered_question)
    questions: dict[int, Question] = {}
    several: set[int] = set()
    for row, doc in enumerate(docs, 1):
        if isinstance(doc.reading, Question):
            questions[row] = doc.reading
            if len(right_options(doc) or ()) > 1:
                several.add(row)
    return questions, several, unread_in_words([doc.reading for doc in docs])


def lettered_question(doc: Doc) -> Question:
    """Read a row whose question is asked with a letter before each option. Raises UntestableQuestion, with the
    reason, if it holds none."""
    question = question_from_doc(doc)
    if len(question.options) < 2:
        raise UntestableQuestion("it has 1 option; at least 2 are needed")
    refuse_unlabelled(len(question.options))
    return question


def unread_in_words(readings: Sequence[Question | UntestableQuestion]) -> str:
    """Say which rows of a file, counted from 1, hold no question that can be asked, and why; empty if all hold one."""
    rows: dict[str, list[int]] = {}
    for row, reading in enumerate(readings, 1):
        if isinstance(reading, UntestableQuestion):
            rows.setdefault(str(reading), []).append(row)
    if not rows:
        return ""
    n_unread, most = sum(map(len, rows.values())), sorted(rows.items(), key=lambda reason: -len(reason[1]))
    reasons = [f"{reason} (row {_listed(numbers)})" for reason, numbers in most[:ROWS_NAMED]]
    if n_more := sum(len(numbers) for _, numbers in most[ROWS_NAMED:]):
        reasons.append(f"and {counted(n_more, 'row')} for other reasons")
    left_out = f"{count(n_unread)} of {counted(len(readings), 'row')} {'is' if n_unread == 1 else 'are'} left out"
    return f"{left_out}: {'; '.join(reasons)}"


def _row(question: Question) -> dict[str, object]:
    row: dict[str, object] = {"question": question.stem, "choices": list(question.options)}
    if question.answer is not None:
        row["answer"] = question.answer
    return row | ({"subject": question.subject} if question.subject else {})
