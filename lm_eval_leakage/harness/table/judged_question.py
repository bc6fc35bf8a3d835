"""What one pipeline says about one question, on its way from the filter to the table and to the samples log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from lm_eval_leakage.inference.known_scores import Calibrated
from lm_eval_leakage.records import DeclaredRow, Evidence, Measurement, Skipped, Verdict

ELSEWHERE = Skipped("it belongs to another row")


@dataclass(frozen=True)
class JudgedQuestion:
    """Stands where the harness keeps the filtered response to a question's first request.

    calibrated: the verdict by known scores, where the run has some
    detector: who judged
    guards: on the question
    contributions: what it adds to each row by itself, by the row's name; None where only all questions make a value
    """

    verdict: Verdict
    detector: str = ""
    guards: tuple[str, ...] = ()
    calibrated: Calibrated | None = None
    contributions: Mapping[str, float | None] = field(default_factory=dict)

    def given_to(self, row: DeclaredRow) -> Verdict | Calibrated:
        """What a row is computed from; ELSEWHERE for a row of other questions, since the harness wants something from
        each."""
        if row.questions == "calibrated":
            return self.calibrated or ELSEWHERE
        of_others = {"guarded": not self.guards, "unguarded": bool(self.guards)}.get(row.questions, False)
        return ELSEWHERE if of_others else self.verdict

    def with_contributions(self, rows: Mapping[str, DeclaredRow]) -> JudgedQuestion:
        """rows: by their names and those of their errors"""
        return replace(self, contributions={name: self._contribution(row, name) for name, row in rows.items()})

    def _contribution(self, row: DeclaredRow, name: str) -> float | None:
        given = self.given_to(row)
        is_error = name != row.name
        return None if is_error or given is ELSEWHERE or row.per_question is None else row.per_question(given)


def finished_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample of one of our tasks as it is logged, with the verdict in flat scalars."""
    of_harness = {key: value for key, value in sample.items() if key not in sample["metrics"]}
    responses = {"filtered_resps": [first for first, *_ in sample["resps"]]}
    return of_harness | responses | line_of(sample["filtered_resps"][0])


def is_judged(sample: Mapping[str, Any]) -> bool:
    responses = sample.get("filtered_resps")
    return isinstance(responses, list) and bool(responses) and isinstance(responses[0], JudgedQuestion)


def line_of(judged: JudgedQuestion) -> dict[str, Any]:
    """A question's keys in the samples log: flat scalars (flagged, pvalue, margin, ..., guards, and under each row's
    name what the question adds to it, for the harness's loggers)."""
    verdict = judged.verdict
    logged = {"flagged": None, "pvalue": None} if isinstance(verdict, Skipped) else {"reason": None}
    who = {"guards": ",".join(judged.guards), "detector": judged.detector}
    by_known = {} if judged.calibrated is None else _by_known(judged.calibrated)
    whole = logged | dict(judged.contributions) | asdict(verdict) | _ranking(verdict) | who | by_known
    return {key: _in_json(value) for key, value in whole.items()}


def _in_json(value: object) -> object:
    """None for a number that is undefined: JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _by_known(calibrated: Calibrated) -> dict[str, object]:
    return {"calibrated_flagged": calibrated.flagged, "calibrated_pvalue": calibrated.pvalue}


def _ranking(verdict: Verdict) -> dict[str, object]:
    """By which of a line's keys questions can be ranked, higher meaning more leakage, and the decision."""
    if isinstance(verdict, Evidence):
        return {"statistic": verdict.statistic, "ranks_by": "statistic"}
    if isinstance(verdict, Measurement):
        return {"flagged": verdict.flagged, "ranks_by": ",".join(verdict.ranks_by)}
    return {"ranks_by": ""}
