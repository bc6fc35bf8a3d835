"""The one writer of an audit's lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from lm_eval_leakage.inference.known_scores import Calibrated
from lm_eval_leakage.logs.audit_line import CORE, VERSION, VERSION_KEY, Scalar
from lm_eval_leakage.records import Measurement, Skipped, Verdict


def written_line(
    verdict: Verdict,
    *,
    benchmark: str,
    detector: str,
    guards: Sequence[str] = (),
    row_names: Iterable[str] = (),
    calibrated: Calibrated | None = None,
) -> dict[str, Scalar]:
    """Our keys of one line: JSON scalars, those of CORE first.

    row_names: of the task's rows, each of which is a key, since the harness's loggers read it; null where one question
        adds nothing to it
    """
    core: dict[str, object] = dict.fromkeys(CORE) | {
        VERSION_KEY: VERSION,
        "benchmark": benchmark,
        "detector": detector,
        "guards": ",".join(guards),
        **_decision(verdict),
        **({} if calibrated is None else _calibrated(calibrated)),
    }
    added = _contributions(verdict, guards, calibrated)
    values = asdict(verdict) | {name: added.get(name) for name in sorted(row_names)}
    own = {name: value for name, value in values.items() if name not in core and _is_scalar(value)}
    return {key: _in_json(value) for key, value in (core | own).items()}


def _decision(verdict: Verdict) -> dict[str, object]:
    """The decision, and by which of a line's keys questions can be ranked, a higher value meaning more leakage."""
    if isinstance(verdict, Skipped):
        return {"reason": verdict.reason, "ranks_by": ""}
    if isinstance(verdict, Measurement):
        return {"flagged": verdict.flagged, "ranks_by": ",".join(verdict.ranks_by)}
    own = ("flagged", "pvalue", "null_rate", "statistic")
    return {"ranks_by": "statistic"} | {key: getattr(verdict, key) for key in own}


def _calibrated(calibrated: Calibrated) -> dict[str, object]:
    return {"calibrated_flagged": calibrated.flagged, "calibrated_pvalue": calibrated.pvalue}


def _contributions(verdict: Verdict, guards: Sequence[str], calibrated: Calibrated | None) -> dict[str, float]:
    """What one question adds to rows, under the row's name; nothing where only all questions make a value."""
    by_known = {} if calibrated is None else {"calibrated_rate": float(calibrated.flagged)}
    if isinstance(verdict, Skipped):
        return {"skipped": 1.0}
    if isinstance(verdict, Measurement):
        return {"skipped": 0.0} | verdict.values() | by_known
    flagged = float(verdict.flagged)
    stratum = "flagged_rate_guarded" if guards else "flagged_rate_unguarded"
    return {"skipped": 0.0, "flagged_rate": flagged, stratum: flagged} | by_known


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _in_json(value: Any) -> Scalar:
    """None for a number that is undefined: JSON has no NaN."""
    found: Scalar = None if isinstance(value, float) and not math.isfinite(value) else value
    return found
