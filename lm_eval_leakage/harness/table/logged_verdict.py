"""A verdict on one question as the harness's table and its samples log take it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from lm_eval_leakage.harness.table.aggregations import ELSEWHERE, given_to
from lm_eval_leakage.harness.table.declared_rows import OF_KNOWN_SCORES
from lm_eval_leakage.inference.known_scores import Calibrated
from lm_eval_leakage.records import Evidence, Measurement, Skipped, Verdict


class LoggedVerdict(dict[str, object]):
    """A question's keys in the samples log.

    The harness logs the whole mapping but aggregates what `items()` names. So a line carries flat scalars
    (flagged, pvalue, margin, ..., guards, and under each row's name what the question adds to it, for the
    harness's loggers) while the table gets its rows and no others, each from the verdict itself.
    """

    def __init__(
        self,
        verdict: Verdict,
        guards: Sequence[str],
        row_names: Sequence[str],
        calibrated: Calibrated | None = None,
        detector: str = "",
    ) -> None:
        logged = {"flagged": None, "pvalue": None} if isinstance(verdict, Skipped) else {"reason": None}
        added = _contributions(verdict, guards)
        shown = {name: added.get(name) for name in row_names}
        by_known = {} if calibrated is None else _by_known(calibrated)
        who = {"guards": ",".join(guards), "detector": detector}
        whole = logged | shown | asdict(verdict) | _ranking(verdict) | who | by_known
        super().__init__({key: _in_json(value) for key, value in whole.items()})
        self._rows = [
            (name, calibrated or ELSEWHERE if name in OF_KNOWN_SCORES else given_to(name, verdict, guards))
            for name in row_names
        ]

    def items(self) -> Iterable[tuple[str, Verdict | Calibrated]]:  # type: ignore[override]
        return self._rows


def _in_json(value: object) -> object:
    """None for a number that is undefined: JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _by_known(calibrated: Calibrated) -> dict[str, object]:
    return {
        "calibrated_flagged": calibrated.flagged,
        "calibrated_pvalue": calibrated.pvalue,
        "calibrated_rate": float(calibrated.flagged),
    }


def _ranking(verdict: Verdict) -> dict[str, object]:
    """By which of a line's keys questions can be ranked, higher meaning more leakage, and the decision."""
    if isinstance(verdict, Evidence):
        return {"statistic": verdict.statistic, "ranks_by": "statistic"}
    if isinstance(verdict, Measurement):
        return {"flagged": verdict.flagged, "ranks_by": ",".join(verdict.ranks_by)}
    return {"ranks_by": ""}


def _contributions(verdict: Verdict, guards: Sequence[str]) -> dict[str, float]:
    """What one question adds to rows, under the row's name; nothing where only all questions make a value."""
    if isinstance(verdict, Skipped):
        return {"skipped": 1.0}
    if isinstance(verdict, Measurement):
        return {"skipped": 0.0} | verdict.values()
    flagged = float(verdict.flagged)
    stratum = "flagged_rate_guarded" if guards else "flagged_rate_unguarded"
    return {"skipped": 0.0, "flagged_rate": flagged, stratum: flagged, "null_rate": verdict.null_rate}
