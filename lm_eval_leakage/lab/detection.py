"""Runs audits of given questions with one model, each once, and reads the results of their detectors.

An audit is saved as `lm_eval run --log_samples` saves it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_leakage.files import atomic_remove, atomic_write, published
from lm_eval_leakage.harness.arguments import parsed_args
from lm_eval_leakage.lab.settings import Simulation
from lm_eval_leakage.logs.audit_line import AuditLine, read_line
from lm_eval_leakage.records import Question

if TYPE_CHECKING:  # the harness takes seconds to import
    from lm_eval_leakage.harness.named_model import KeptModel
    from lm_eval_leakage.harness.tasks.task import LeakageTask

COST = "cost.json"  # tokens and seconds per question


@dataclass(frozen=True)
class Detector:
    """The results of one detector: they hold a score, a decision or a reason for each question of an audit.

    name: name of its score, such as max_order, or token_evidence/min_k if a statistic has several
    audit: suffix of the audit, such as leakage_perm
    scores: by question id (for a shard, the id of its first question); a higher score means more leakage
    flags: the published rule's decision, by question id; None if there is no rule
    null_rate: expected share of flagged questions under the statistic's null hypothesis; None if it has none
    skipped: the reason of each skipped question, by question id
    n_tokens: mean number of tokens per question, of all its requests
    seconds: mean time per question
    """

    name: str
    audit: str
    scores: Mapping[str, float]
    flags: Mapping[str, bool] | None
    null_rate: float | None
    skipped: Mapping[str, str]
    n_tokens: float
    seconds: float


@dataclass(frozen=True)
class Audits:
    """The audits of questions with one model; each has its folder in `folder`.

    settings: names the model, which is loaded only if an audit is missing. Neighbours that were drawn together form
        one shard in tests of question order. Control forms, which no score of a question needs, are scored only if
        `control_form` is true in the metadata
    questions: the audited questions
    pool: all questions of the benchmark
    references: log of the reference model's answers, for each audit that uses one
    """

    settings: Simulation
    folder: Path
    questions: Sequence[Question]
    pool: Sequence[Question]
    references: Mapping[str, Path] = field(default_factory=dict)

    def foresee(self, suffixes: Sequence[str]) -> None:
        """Raise ValueError for any failure of these audits that can be foreseen before a model is loaded."""
        for suffix in suffixes:
            self._task(suffix)

    def answered(self, suffixes: Sequence[str]) -> Audits:
        """Run those of these audits that are missing, and return this object. The model is loaded once, and its memory
        is freed afterwards. A kill loses at most the answers that are being computed."""
        from lm_eval_leakage.harness.named_model import one_loaded_model

        if missing := [suffix for suffix in suffixes if not (self.folder / suffix).exists()]:
            with one_loaded_model() as kept:
                for suffix in missing:
                    self._run(suffix, kept)
        return self

    def lines(self, suffix: str) -> list[AuditLine]:
        """Return the lines of an answered audit, one per question and statistic."""
        return read_lines(self.folder / suffix)

    def _run(self, suffix: str, kept: KeptModel) -> None:
        """Run an audit, record its cost, and publish its folder."""
        from lm_eval_leakage.harness.named_model import BATCH_SIZE, DEVICE, NamedModel
        from lm_eval_leakage.harness.saved_run import run_saved
        from lm_eval_leakage.harness.task_shelf import in_memory
        from lm_eval_leakage.harness.tasks.given_questions import n_tokens_asked

        task, work = self._task(suffix), self.folder / f"{suffix}_unfinished"
        for file in work.rglob("samples_*.jsonl"):  # of a run that was killed while it was saved
            file.unlink()
        arguments = parsed_args(self.settings.model_args)
        batch_size, device = arguments.pop("batch_size", BATCH_SIZE), arguments.pop("device", DEVICE)
        model = NamedModel(self.settings.model, arguments, batch_size, device)
        rows = {suffix: range(len(task.eval_docs))}
        started_at, loading = time.perf_counter(), kept.seconds_of_loading
        results = run_saved(model, in_memory(task), rows, work, kept)
        seconds = time.perf_counter() - started_at - (kept.seconds_of_loading - loading)
        assert results is not None, "a simulation is one process"
        n_questions = len(self.questions)
        cost = [n_tokens_asked(task) / n_questions, seconds / n_questions]
        atomic_write(results.with_name(COST), json.dumps(cost))
        published(results.parent, self.folder / suffix)
        atomic_remove(work)

    def _task(self, suffix: str) -> LeakageTask:
        """Return the task of an audit. Tests of question order need a subject per block, which makes it a shard."""
        from lm_eval_leakage.harness.tasks.audit import audits_shards
        from lm_eval_leakage.harness.tasks.given_questions import audit_of

        questions, block = self.questions, self.settings.together
        metadata = {"control_form": False, **self.settings.metadata}
        if suffix in self.references:
            metadata["reference_log"] = str(self.references[suffix])
        if audits_shards(suffix):
            questions = [replace(question, subject=f"block {i // block}") for i, question in enumerate(questions)]
            metadata |= {"shards": max(2, len(questions)), "examples": block}
        return audit_of(questions, suffix, self.pool, metadata)


def read_lines(audit: Path) -> list[AuditLine]:
    """Return the lines in the folder of an audit, with ids as `question` (for a shard, that of its first question)."""
    (log,) = audit.glob("samples_*.jsonl")
    with log.open(encoding="utf-8") as lines:
        samples = map(json.loads, lines)
        return [replace(read_line(sample, audit.name), question=_name(sample["doc"])) for sample in samples]


def _name(doc: Mapping[str, Any]) -> str:
    """Return the id of a question. A shard has that of its first question: all of its questions are in one half."""
    return str(doc["members"][0] if "members" in doc else doc["id"])


def read_detectors(audit: Path) -> Iterator[Detector]:
    """Yield the detectors of an audit, computed from its lines."""
    cost = json.loads((audit / COST).read_text(encoding="utf-8"))
    all_lines = read_lines(audit)
    for detector in dict.fromkeys(line.detector for line in all_lines):
        lines = {line.question: line for line in all_lines if line.detector == detector}
        skipped = {name: line.reason for name, line in lines.items() if line.reason}
        tested = {name: line for name, line in lines.items() if name not in skipped}
        flags = {name: line.flagged for name, line in tested.items() if line.flagged is not None}
        null_rates = [line.null_rate for line in tested.values() if line.null_rate is not None]
        null_rate = math.fsum(null_rates) / len(null_rates) if null_rates else None
        for title in dict.fromkeys(title for line in tested.values() for title in line.scores):
            scores = {name: line.scores.get(title, math.nan) for name, line in tested.items()}
            yield Detector(title, audit.name, scores, flags or None, null_rate, skipped, *cost)
