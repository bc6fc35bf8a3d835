"""A sealed benchmark on disk, and models that have seen it or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.harness.sealing import sealing_of, write_sealing
from lm_eval_leakage.results.seal_audit import SealAudit
from lm_eval_leakage.seal.drawn import Seal
from lm_eval_leakage.seal.folders import read_seal
from lm_eval_leakage.seal.looks_file import read_ledger
from lm_eval_leakage.stats.looks import Look
from tests.checking.conftest import written
from tests.fakes import FakeLM, Score, by_hash

extend_harness(TaskManager)
NAME = "trees"
KINDS = ("apple", "birch", "cedar", "maple")


def rows(n: int, wordings: int = 3) -> list[dict[str, Any]]:
    others = ("Of which kind is tree {}?", "Tree {} is of a kind; of which?", "Name the kind of tree {}.")
    return [
        {
            "question": f"Which kind is tree number {i}?",
            "choices": [f"{kind} {i}" for kind in KINDS],
            "answer": i % 4,
            "wordings": [other.format(i) for other in others[:wordings]],
        }
        for i in range(n)
    ]


@dataclass(frozen=True)
class SealedFolder:
    folder: Path
    seal: Seal

    @property
    def private(self) -> Path:
        return self.folder / "private"

    @property
    def public(self) -> Path:
        return self.folder / "public"


def sealed_folder(folder: Path, given: Sequence[Mapping[str, Any]], seed: int = 0) -> SealedFolder:
    """Seals rows with a key that is the same in every run, since a clean model is claimed to have seen something with
    some keys."""
    folder.mkdir(parents=True, exist_ok=True)
    file = written(folder, given, f"{NAME}.jsonl")
    with patch("lm_eval_leakage.harness.sealing.new_key", lambda: sha256(b"%d" % seed).digest()):
        write_sealing(sealing_of(str(file), NAME, "keep", None), folder / "sealed")
    return SealedFolder(folder / "sealed", read_seal(folder / "sealed" / "private"))


def looks_in(private: Path) -> tuple[Look, ...]:
    return read_ledger(private, read_seal(private)).looks


def problems_of(audit: SealAudit) -> str:
    """Those of all models, a line each."""
    problems = [*audit.problems, *(problem for verdict in audit.verdicts for problem in verdict.problems)]
    return "\n".join(map(str, problems))


def texts_of(seal: Seal, seen: range) -> Iterator[tuple[str, str]]:
    """Return the texts that a model finds likely if it has seen these places of the public file: stems, and options in
    order."""
    for place in seen:
        question = seal.questions[place]
        block = "".join(f"\n{letter}. {option}" for letter, option in zip("ABCDEF", question.options, strict=False))
        yield question.wordings[0], block


def has_seen(seal: Seal, seen: range, by: float = 1.0) -> Score:
    """Prefers each published stem, each published block of options, and published neighbours."""
    texts = list(texts_of(seal, seen))
    whole = [stem + block for stem, block in texts]
    stems, blocks = {stem for stem, _ in texts}, {block for _, block in texts}
    pairs = [f"{line}\n\n{other}" for line, other in pairwise(whole)]

    def score(context: str, continuation: str) -> float:
        if not context and "\n\n" not in continuation:  # a stem alone, which costs about as much per byte as any other
            return per_byte(context, continuation) + by * (continuation in stems)
        n_pairs = sum(pair in continuation for pair in pairs) if "\n\n" in continuation else 0
        return by_hash(context, continuation) + by * ((continuation in blocks) + n_pairs)

    return score


def per_byte(context: str, continuation: str) -> float:
    """A model that has memorised nothing, and finds longer texts less likely."""
    return len(continuation) * (by_hash(context, continuation) + 9) / 20


def run_sealed(
    sealed: SealedFolder,
    audit: str,
    score: Score | FakeLM,
    output_path: Path | None = None,
    model: str = "org/fake",
    limit: int | None = None,
    **metadata: object,
) -> tuple[FakeLM, dict[str, Any]]:
    """Runs an audit of the public benchmark with the private folder; saves as lm_eval does."""
    lm = score if isinstance(score, FakeLM) else FakeLM(score)
    metadata_of_run = {"seal": str(sealed.private)} | metadata
    manager = TaskManager(include_path=str(sealed.public), include_defaults=False, metadata=metadata_of_run)
    tracker = None if output_path is None else EvaluationTracker(output_path=str(output_path))
    results = simple_evaluate(
        model=lm,
        tasks=[f"{NAME}_{audit}"],
        task_manager=manager,
        log_samples=True,
        limit=limit,
        evaluation_tracker=tracker,
        bootstrap_iters=0,
    )
    if tracker is not None:
        tracker.general_config_tracker.model_name = model
        tracker.general_config_tracker.model_name_sanitized = model.replace("/", "__")
        samples = results.pop("samples")
        results["model_name"] = model
        tracker.save_results_aggregated(results=results, samples=samples)
        for task in results["configs"]:
            tracker.save_results_samples(task_name=task, samples=samples[task])
        results["samples"] = samples
    return lm, results
