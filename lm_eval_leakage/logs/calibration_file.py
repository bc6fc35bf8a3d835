"""Calibration files: known scores of one model on one benchmark, as JSON (docs/log_format.md).

Version 2 names scores as `audit_line.score_names` does; version 1 named them by `repr`.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.inference.combined import CombinedScore
from lm_eval_leakage.inference.known_scores import COMBINED, EVERY_CLASS, Calibration, KnownScores
from lm_eval_leakage.logs.version_1 import score_ids

CALIBRATION_VERSION = 2


def write_calibration(file: Path, calibration: Calibration) -> None:
    written = asdict(calibration)
    for known in written["detectors"].values():
        if not known["seen_classes"]:
            del known["seen_classes"]
    atomic_write(file, json.dumps({"calibration": CALIBRATION_VERSION, **written}))


def read_calibration(file: str) -> Calibration:
    """Raises ValueError, with the remedy, for a file of another kind or version."""
    try:
        found = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
        version = found.pop("calibration")
        if version in (1, CALIBRATION_VERSION) and not isinstance(version, bool):
            calibration = _calibration(**found)
            return calibration if version == CALIBRATION_VERSION else _with_ids(calibration)
    except OSError as error:
        raise ValueError(f"calibration is {file!r}, which cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"calibration is {file!r}, which is not a calibration file ({error!r}); make one with "
            "`lm-eval-leakage simulate`"
        ) from error
    raise ValueError(
        f"calibration is {file!r}, of version {version!r}; this package reads 1 and {CALIBRATION_VERSION}: make it "
        "again"
    )


def _with_ids(first: Calibration) -> Calibration:
    """A calibration of version 1, its scores renamed as in version 2."""
    ids = score_ids(first.detectors, kept=COMBINED)
    together = first.combined
    if together is not None:
        ids |= score_ids(together.detectors, kept=COMBINED)
        unseen = {ids[name]: scores for name, scores in together.unseen.items() if name in ids}
        together = replace(together, detectors=tuple(ids[name] for name in together.detectors), unseen=unseen)
    return replace(first, detectors={ids[name]: known for name, known in first.detectors.items()}, combined=together)


def _calibration(model: Any, benchmark: Any, origin: Any, detectors: Any, combined: Any) -> Calibration:
    """A calibration from its JSON. Raises TypeError or ValueError for invalid content."""
    for name, value in (("model", model), ("benchmark", benchmark), ("origin", origin)):
        _check(isinstance(value, str), f"its {name} is {value!r}, which is not a text")
    known = {name: _known_scores(name, **scores) for name, scores in detectors.items()}
    _check(COMBINED not in known or combined is not None, "it has combined scores but not how they are computed")
    return Calibration(model, benchmark, origin, known, None if combined is None else _combined(combined))


def _known_scores(name: str, unseen: Any, seen: Any, seen_classes: Any = ()) -> KnownScores:
    _check(EVERY_CLASS in unseen, f"{name} has no scores of {EVERY_CLASS!r} unseen questions")
    for own in (seen, *unseen.values()):
        _check(_are_numbers(own), f"{name} has scores that are not finite numbers")
    _check(len(seen_classes) in (0, len(seen)), f"{name} lacks one class per seen question")
    _check(all(isinstance(one, str) for one in seen_classes), f"a class of {name} is not a text")
    return KnownScores(unseen, seen, seen_classes or ())


def _combined(stored: Any) -> CombinedScore:
    together = CombinedScore.of(stored)
    _check(all(isinstance(name, str) for name in together.detectors), "a detector of the combined score is not a text")
    _check(len(together.weights) == len(together.detectors), "the combined score lacks one weight per detector")
    for name in together.detectors:
        _check(len(together.unseen[name]) > 0, f"the combined score has no unseen questions of {name}")
    numbers = [together.weights, [together.intercept], *together.unseen.values()]
    _check(all(map(_are_numbers, numbers)), "the combined score holds numbers that are not finite")
    return together


def _are_numbers(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
