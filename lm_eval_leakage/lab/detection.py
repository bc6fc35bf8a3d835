"""Runs audits of given questions with one model, and caches each in a file, so that a kill loses at most one audit."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.lab.settings import pretrained_of
from lm_eval_leakage.logs.audit_line import AuditLine, loglikelihoods, read_line
from lm_eval_leakage.records import Question

logger = logging.getLogger(__name__)

KEPT_ASIDE = frozenset(
    ("arguments", "doc", "doc_hash", "doc_id", "filtered_resps", "prompt_hash", "resps", "target", "target_hash")
)


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


class Audits:
    """Audits of `questions` with one model; each is run once, and read from `folder` after that.

    model, model_args: as for lm_eval; the model is loaded only if an audit is missing
    block: number of neighbouring questions that were drawn together; they form one shard in tests of question order
    metadata: parameters of the audits; the control forms, which no score of a question needs, are asked only if
        `control_form` is true here
    references: log of the reference model's answers, for each audit that uses one
    """

    def __init__(
        self,
        folder: Path,
        model: str,
        model_args: str,
        questions: Sequence[Question],
        pool: Sequence[Question],
        *,
        block: int = 1,
        metadata: Mapping[str, object] | None = None,
        references: Mapping[str, Path] | None = None,
    ) -> None:
        self.folder, self.model, self.model_args = folder, model, model_args
        self.questions, self.pool, self.block = questions, pool, block
        self.metadata: dict[str, object] = {"control_form": False, **(metadata or {})}
        self.references = references or {}
        self._lm: Any = None

    def detectors(self, suffixes: Sequence[str]) -> list[Detector]:
        return [detector for suffix in suffixes for detector in read_detectors(suffix, self.audit(suffix))]

    def lines(self, suffix: str) -> list[AuditLine]:
        """The lines of one audit, one per question and statistic."""
        return read_lines(suffix, self.audit(suffix))

    def audit(self, suffix: str) -> dict[str, Any]:
        """One audit as stored in its file: lines, one per question and statistic, and its cost."""
        file = self.folder / f"{suffix}.json"
        if (kept := _kept(file)) is not None:
            return kept
        atomic_write(file, json.dumps(self._run(suffix)))
        answers: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return answers

    def answered(self, suffixes: Sequence[str]) -> Audits:
        """Runs all these audits and unloads the model."""
        for suffix in suffixes:
            self.audit(suffix)
        self.unload()
        return self

    def foresee(self, suffixes: Sequence[str]) -> None:
        """Raises ValueError for anything that would end one of these audits and is known before a model is loaded."""
        from lm_eval_leakage.harness.tasks.given_questions import audit_of

        for suffix in suffixes:
            questions, metadata = self._asked(suffix)
            audit_of(questions, suffix, self.pool, metadata)

    def answer_as_reference(self, folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
        """Writes the model's answers to each audit as a log in a sub-folder, as a reference for other models; existing
        logs are reused."""
        from lm_eval_leakage.harness.tasks.given_questions import load_model, run_audit
        from lm_eval_leakage.logs.reference_log import write_reference

        logs = {suffix: folder / suffix for suffix in suffixes}
        for suffix, log in logs.items():
            if not any(log.glob("samples_*.jsonl")):
                if self._lm is None:
                    self._lm = load_model(self.model, self.model_args)
                done = run_audit(self._lm, suffix, self.questions, self.pool, self.metadata)
                write_reference(log, pretrained_of(self.model_args), done.samples)
        self.unload()
        return logs

    def unload(self) -> None:
        """Frees the model's memory."""
        self._lm = None

    def _run(self, suffix: str) -> dict[str, Any]:
        from lm_eval_leakage.harness.tasks.given_questions import load_model, run_audit

        if self._lm is None:
            self._lm = load_model(self.model, self.model_args)
        questions, metadata = self._asked(suffix)
        if suffix in self.references:
            metadata = metadata | {"reference_log": str(self.references[suffix])}
        done = run_audit(self._lm, suffix, questions, self.pool, metadata)
        lines = [_stored(sample) for sample in done.samples]
        return {
            "lines": lines,
            "n_tokens": done.n_tokens,
            "seconds": done.seconds,
            "n_questions": len(questions),
        }

    def _asked(self, suffix: str) -> tuple[Sequence[Question], dict[str, object]]:
        from lm_eval_leakage.harness.tasks.given_questions import audits_shards

        if not audits_shards(suffix):
            return self.questions, self.metadata
        return _blocks_as_subjects(self.questions, self.block), self.metadata | self._of_shards()

    def _of_shards(self) -> dict[str, object]:
        return {"shards": max(2, len(self.questions)), "examples": self.block}


def _kept(file: Path) -> dict[str, Any] | None:
    """A cached audit; None if there is none or it cannot be read."""
    if not file.exists():
        return None
    try:
        answers = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        answers = None
    if isinstance(answers, dict) and "lines" in answers:
        return answers
    logger.warning("%s is truncated or damaged; its audit is run again", file)
    return None


def read_lines(suffix: str, audit: Mapping[str, Any]) -> list[AuditLine]:
    """The lines of one audit; `question` is the question's id (for a shard, that of its first question)."""
    return [
        read_line(
            {
                **line,
                "doc": {"id": line["id"]},
                "doc_hash": line["id"],
                "resps": [[[answer]] for answer in line["answers"]],
            },
            suffix,
        )
        for line in audit["lines"]
    ]


def read_detectors(suffix: str, audit: Mapping[str, Any]) -> Iterator[Detector]:
    """The detectors of one audit, computed from its lines."""
    cost = (audit["n_tokens"] / audit["n_questions"], audit["seconds"] / audit["n_questions"])
    whole = read_lines(suffix, audit)
    for detector in dict.fromkeys(line.detector for line in whole):
        lines = {line.question: line for line in whole if line.detector == detector}
        skipped = {name: line.reason for name, line in lines.items() if line.reason}
        tested = {name: line for name, line in lines.items() if name not in skipped}
        flags = {name: line.flagged for name, line in tested.items() if line.flagged is not None}
        nulls = [line.null_rate for line in tested.values() if line.null_rate is not None]
        null_rate = math.fsum(nulls) / len(nulls) if nulls else None
        for title in dict.fromkeys(title for line in tested.values() for title in line.scores):
            scores = {name: line.scores.get(title, math.nan) for name, line in tested.items()}
            yield Detector(title, suffix, scores, flags or None, null_rate, skipped, *cost)


def _blocks_as_subjects(questions: Sequence[Question], size: int) -> list[Question]:
    """Gives every block its own subject, which makes it a shard, since shards never span two subjects."""
    return [replace(question, subject=f"block {index // size}") for index, question in enumerate(questions)]


def _stored(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The stored part of a sample: all but the row and the texts, which follow from the simulation's settings."""
    doc = sample["doc"]
    kept = {key: value for key, value in sample.items() if key not in KEPT_ASIDE}
    name = (
        doc["members"][0] if "members" in doc else doc["id"]
    )  # a shard, whose questions are all in one half, counts once
    return {**kept, "id": name, "answers": loglikelihoods(sample)}
