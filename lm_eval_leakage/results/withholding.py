"""Applies `inference.withheld` to the lines of audits."""

from __future__ import annotations

from collections.abc import Iterable

from lm_eval_leakage.inference.known_scores import Calibration
from lm_eval_leakage.inference.withheld import why_withheld
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.questions.described import described
from lm_eval_leakage.records import Described


def described_lines(lines: Iterable[AuditLine]) -> Described:
    """What the questions of these lines are like, each question once; those that cannot be read are left out."""
    once = {line.question: line for line in lines if line.read is not None}
    return described((line.read, line.guarded) for line in once.values() if line.read is not None)


def refuse_withheld(calibration: Calibration, lines: Iterable[AuditLine]) -> None:
    """Raises ValueError, with the remedy, if the calibration allows no statement about what was seen."""
    of_run = list(lines)
    if reason := of_another_benchmark(calibration, of_run) or why_withheld(calibration, described_lines(of_run)):
        raise ValueError(reason)


def of_another_benchmark(calibration: Calibration, lines: Iterable[AuditLine]) -> str | None:
    others = sorted({line.benchmark for line in lines if not is_part(line.benchmark, calibration.benchmark)})
    if not others:
        return None
    return (
        f"the calibration is of the benchmark {calibration.benchmark!r}, but the run audits {', '.join(others)}; name "
        "a folder with audits of that benchmark alone, or make a calibration of this one"
    )


def is_part(benchmark: str, whole: str) -> bool:
    """Whether it is the other benchmark or, by its name, one of its tasks."""
    return benchmark == whole or benchmark.startswith(f"{whole}_")
