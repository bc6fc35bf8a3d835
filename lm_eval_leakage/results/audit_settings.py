"""The settings of an audit: verdicts and flags of two models are compared only where these are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from lm_eval_leakage.results.formatting import count, whole_percent
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.verdict import Basis

COMPARISONS = {
    Basis.ORDERS: "other orders",
    Basis.REFERENCE: "a reference model",
    Basis.CONTROL: "control forms",
    Basis.FILLERS: "exchanged names or numbers",
}
NAMES = {
    "method": "another method",
    "prompts": "another prompt format",
    "layouts": "other layouts",
    "n_questions": "another number of questions",
    "questions": "other questions drawn",
    "aim": "another aim",
}


@dataclass(frozen=True)
class AuditSettings:
    """The settings that two audits of a benchmark must share for their results to be compared, each as it is shown.

    method: id of the detector whose flags count, and what the verdict compares the published orders with
    prompts: whether a chat template was applied to them, and the system instruction
    layouts: in which the options were shown
    n_questions: the number of scored questions
    questions: digest of the benchmark and seed of the draw, as far as the run records them
    aim: share of seen questions that the verdict had to find or to exclude
    """

    method: str
    prompts: str
    layouts: str
    n_questions: str
    questions: str
    aim: str


Settings = Mapping[str, AuditSettings]  # of one model, by benchmark


def settings_in_row(row: Row, detector: str) -> AuditSettings:
    """Return how the questions of a row were audited.

    detector: id of the detector whose flags count
    """
    verdict, provenance = row.verdict, row.provenance
    comparison = COMPARISONS.get(verdict.basis, "") if verdict.basis else ""
    seed = "" if provenance.seed is None else f"seed {provenance.seed}"
    digest = f"digest {provenance.digest}" if provenance.digest else ""
    return AuditSettings(
        method=" and ".join(filter(None, (detector, comparison))),
        prompts=provenance.prompt_format or "prompt format not recorded",
        layouts=", ".join(verdict.layouts) or "one layout",
        n_questions=count(verdict.n_asked or row.n_tested),
        questions=", ".join(filter(None, (digest, seed))) or "draw not recorded",
        aim=whole_percent(verdict.detect) if verdict.basis else "no aim",
    )


def why_not_ranked(settings: Settings, other: Settings) -> str:
    """Return a sentence that names the settings in which a model differs from those above it; empty if there are none.

    settings, other: of the model, and of those above it
    """
    parts = []
    if settings.keys() != other.keys():
        benchmarks, others = (", ".join(sorted(side)) or "none" for side in (settings, other))
        parts.append(f"verdicts on other benchmarks ({benchmarks} instead of {others})")
    shared = sorted(settings.keys() & other.keys())
    for field in fields(AuditSettings):
        values = [(getattr(settings[task], field.name), getattr(other[task], field.name)) for task in shared]
        differing = [(task, *pair) for task, pair in zip(shared, values, strict=True) if pair[0] != pair[1]]
        if differing:
            task, value, instead_of = differing[0]
            more = f"; {len(differing) - 1} more differ" if len(differing) > 1 else ""
            parts.append(f"{NAMES[field.name]} ({task}: {value} instead of {instead_of}{more})")
    if not parts:
        return ""
    different_settings = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"Not ranked against the models above: {different_settings}."
