"""Audits of given questions with one model, each saved as `lm_eval run --log_samples` saves it and run once."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_leakage.files import atomic_remove, atomic_write, published
from lm_eval_leakage.lab.settings import Simulation
from lm_eval_leakage.logs.audit_line import AuditLine, read_line
from lm_eval_leakage.records import Question

if TYPE_CHECKING:  # the harness takes seconds to import
    from lm_eval_leakage.harness.named_model import KeptModel
    from lm_eval_leakage.harness.tasks.task import LeakageTask

COST = "cost.json"  # tokens and seconds per question


@dataclass(frozen=True)
class Detector:
    """Results of one detector over questions.

    name: name of its score, such as max_order, or token_evidence/min_k if a statistic has several
    audit: suffix of the audit, such as leakage_perm
    scores: by question id (for a shard, that of its first question); a higher score means more leakage
    flags: the published rule's decision, by question id; None if there is no rule
    null_rate: expected share of flagged questions under the statistic's null hypothesis; None if it has none
    skipped: reasons, by question id
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
    """Audits of `questions` with one model, each in a folder of its own in `folder`.

    settings: its model is loaded only if an audit is missing; neighbours that were drawn together form one shard in
        tests of question order; the control forms, which no score of a question needs, are asked only if
        `control_form` is true in its metadata
    references: log of the reference model's answers, for each audit that uses one
    """

    settings: Simulation
    folder: Path
    questions: Sequence[Question]
    pool: Sequence[Question]
    references: Mapping[str, Path] = field(default_factory=dict)

    def foresee(self, suffixes: Sequence[str]) -> None:
        """Raises ValueError for anything that would end one of these audits and is known before a model is loaded."""
        for suffix in suffixes:
            self._task(suffix)

    def answered(self, suffixes: Sequence[str]) -> Audits:
        """Runs those of these audits that are missing. The model is loaded once, and its memory is free afterwards. A
        kill loses at most the answers that the model is giving."""
        from lm_eval_leakage.harness.named_model import one_loaded_model

        if missing := [suffix for suffix in suffixes if not (self.folder / suffix).exists()]:
            with one_loaded_model() as kept:
                for suffix in missing:
                    self._run(suffix, kept)
        return self

    def lines(self, suffix: str) -> list[AuditLine]:
        """The lines of an answered audit, one per question and statistic."""
        return read_lines(self.folder / suffix)

    def _run(self, suffix: str, kept: KeptModel) -> None:
        from lm_eval_leakage.harness.named_model import BATCH_SIZE, DEVICE, NamedModel
        from lm_eval_leakage.harness.preflight import parsed_args
        from lm_eval_leakage.harness.saved_run import run_saved
        from lm_eval_leakage.harness.task_shelf import in_memory
        from lm_eval_leakage.harness.tasks.given_questions import n_tokens_asked

        task, work = self._task(suffix), self.folder / f"{suffix}_unfinished"
        for file in work.rglob("samples_*.jsonl"):  # of a run that was killed while it was saved
            file.unlink()
        arguments = parsed_args(self.settings.model_args)
        how = arguments.pop("batch_size", BATCH_SIZE), arguments.pop("device", DEVICE)
        begun, loading = time.perf_counter(), kept.seconds_of_loading
        who, asked = NamedModel(self.settings.model, arguments, *how), {suffix: range(len(task.eval_docs))}
        results = run_saved(who, in_memory(task), asked, work, kept)
        seconds = time.perf_counter() - begun - (kept.seconds_of_loading - loading)
        assert results is not None, "a simulation is one process"
        n_questions = len(self.questions)
        cost = [n_tokens_asked(task) / n_questions, seconds / n_questions]
        atomic_write(results.with_name(COST), json.dumps(cost))
        published(results.parent, self.folder / suffix)
        atomic_remove(work)

    def _task(self, suffix: str) -> LeakageTask:
        """For tests of question order, every block has its own subject, which makes it a shard."""
        from lm_eval_leakage.harness.tasks.audit import audits_shards
        from lm_eval_leakage.harness.tasks.given_questions import audit_of

        questions, block = self.questions, self.settings.together
        metadata = {"control_form": False, **self.settings.metadata}
        if suffix in self.references:
            metadata["reference_log"] = str(self.references[suffix])
        if audits_shards(suffix):
            questions = [replace(one, subject=f"block {i // block}") for i, one in enumerate(questions)]
            metadata |= {"shards": max(2, len(questions)), "examples": block}
        return audit_of(questions, suffix, self.pool, metadata)


def read_lines(audit: Path) -> list[AuditLine]:
    """Of the folder of one audit; `question` is the question's id (for a shard, that of its first question)."""
    (log,) = audit.glob("samples_*.jsonl")
    with log.open(encoding="utf-8") as lines:
        samples = map(json.loads, lines)
        return [replace(read_line(one, audit.name), question=_name(one["doc"])) for one in samples]


def _name(doc: Mapping[str, Any]) -> str:
    """The questions of a shard are all in one half, so that it counts once."""
    return str(doc["members"][0] if "members" in doc else doc["id"])


def read_detectors(audit: Path) -> Iterator[Detector]:
    """The detectors of one audit, computed from its lines."""
    cost = json.loads((audit / COST).read_text(encoding="utf-8"))
    whole = read_lines(audit)
    for detector in dict.fromkeys(line.detector for line in whole):
        lines = {line.question: line for line in whole if line.detector == detector}
        skipped = {name: line.reason for name, line in lines.items() if line.reason}
        tested = {name: line for name, line in lines.items() if name not in skipped}
        flags = {name: line.flagged for name, line in tested.items() if line.flagged is not None}
        nulls = [line.null_rate for line in tested.values() if line.null_rate is not None]
        null_rate = math.fsum(nulls) / len(nulls) if nulls else None
        for title in dict.fromkeys(title for line in tested.values() for title in line.scores):
            scores = {name: line.scores.get(title, math.nan) for name, line in tested.items()}
            yield Detector(title, audit.name, scores, flags or None, null_rate, skipped, *cost)
