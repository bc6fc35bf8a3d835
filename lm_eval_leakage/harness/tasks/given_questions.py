"""Loads the questions of a benchmark as records, and builds audits of any subset of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lm_eval.tasks import TaskManager

from lm_eval_leakage.files import QUESTION_FILES
from lm_eval_leakage.harness.models.request_tokens import n_generated, tokens_of
from lm_eval_leakage.harness.seams.tasks import kind_of
from lm_eval_leakage.harness.tasks.audit import Config, as_shard_audit, audit_task, template_settings
from lm_eval_leakage.harness.tasks.audit_names import find_audits
from lm_eval_leakage.harness.tasks.data import ReadDoc, docs_of, fields_of
from lm_eval_leakage.harness.tasks.question_files import Rows, read_questions
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.questions.fields import Doc, question_from_doc
from lm_eval_leakage.records import Question

SPLIT = "test"
NO_METADATA: Mapping[str, object] = MappingProxyType({})


class GivenQuestions(LeakageTask):
    """An audit of `questions`, a subset of `pool`, which is the whole benchmark."""

    def __init__(self, questions: Sequence[Question], pool: Sequence[Question], config: Config) -> None:
        self._questions = {question.id: question for question in questions}
        self._pool = pool
        super().__init__(config)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        self.dataset = {SPLIT: Rows({"id": name} for name in self._questions)}

    def question(self, doc: Doc) -> Question:
        return self._questions[doc["id"]]

    def benchmark(self) -> Iterator[Question]:
        return iter(self._pool)


def audit_of(
    questions: Sequence[Question], suffix: str, pool: Sequence[Question], metadata: Mapping[str, object]
) -> LeakageTask:
    """Return the audit `suffix` of `questions`, whose ids must be distinct."""
    shape = template_settings(suffix)
    config = shape | {"task": suffix, "dataset_path": "memory", "test_split": SPLIT}
    config["metadata"] = {**shape["metadata"], **metadata}
    return as_shard_audit(GivenQuestions(questions, pool, config), config)


def questions_of(
    benchmark: str, include_path: str | None = None, metadata: Mapping[str, object] = NO_METADATA
) -> list[Question]:
    """Return all questions of a task, group or tag of the harness, as its audit reads them, or of a local file.

    A group for which we have a YAML with one data set, such as mmlu, is read as that data set.

    metadata: as in `--metadata`; `data_files` names a file whose questions are read instead of the task's own, and
        `fields` the fields of a file that hold the parts of a question
    """
    readings = (doc.reading for doc in given_rows(benchmark, include_path, metadata))
    return [reading for reading in readings if isinstance(reading, Question)]


def given_rows(
    benchmark: str, include_path: str | None = None, metadata: Mapping[str, object] = NO_METADATA
) -> list[ReadDoc]:
    """Return the rows of what `questions_of` reads, those that are no questions among them."""
    if benchmark.endswith(QUESTION_FILES):
        if "data_files" in metadata:
            given = metadata["data_files"]
            raise ValueError(f"benchmark is the file {benchmark!r} and data_files is {given!r}; give only one of them")
        return docs_of(read_questions(benchmark, fields_of(metadata)), question_from_doc)
    find_audits(TaskManager)
    manager, audit = TaskManager(include_path=include_path, metadata=dict(metadata)), f"{benchmark}_{FIRST_AUDIT}"
    if audit not in manager.task_index:
        raise ValueError(
            f"benchmark is {benchmark!r}; it must be a task, group or tag of the harness (`lm-eval-leakage ls tasks`) "
            f"or a file ending in one of: {', '.join(QUESTION_FILES)}"
        )
    entry = manager.task_index.get(benchmark)
    if entry is not None and kind_of(entry) == "TASK":
        (task,) = manager.load([benchmark])["tasks"].values()
        return audit_task(task, FIRST_AUDIT, metadata).eval_docs
    return [doc for audit in manager.load([audit])["tasks"].values() for doc in audit.eval_docs]


def n_tokens_asked(audit: LeakageTask) -> int:
    """Return the number of tokens of all requests of an audit that was run, including the maximum number of generated
    tokens."""
    questions = dict.fromkeys(instance.of for instance in audit.instances)
    requests = [arguments for question in questions for arguments in question.arguments]
    scored = sum(map(len, tokens_of(audit.lm, audit.probe.needs, requests)))
    return scored + sum(map(n_generated, requests))
