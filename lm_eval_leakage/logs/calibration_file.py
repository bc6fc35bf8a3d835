"""Calibration files: known scores of one model on one benchmark, as JSON (docs/log_format.md)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.records import Described
from lm_eval_leakage.stats.combined import CombinedScore
from lm_eval_leakage.stats.known_scores import COMBINED, COPY, EVERY_CLASS, OWN, Calibration, KnownScores
from lm_eval_leakage.stats.order_power import CONTROL_FORMS
from lm_eval_leakage.stats.order_sum import NaturalPart

CALIBRATION_VERSION = 3


def write_calibration(file: Path, calibration: Calibration) -> None:
    """The stems of the known-unseen questions are left out, since they may be private."""
    written = asdict(replace(calibration, unseen=None))
    for known in written["detectors"].values():
        if not known["seen_classes"]:
            del known["seen_classes"]
    if written["natural"] is None:
        del written["natural"]
    if (kept := calibration.unseen) is not None:
        written["unseen"] = {"properties": kept.properties, "digests": list(kept.stems)}
    atomic_write(file, json.dumps({"calibration": CALIBRATION_VERSION, **written}))


def read_calibration(file: str) -> Calibration:
    """Raises ValueError, with the remedy, for a file of another kind or version."""
    try:
        found = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
        version = found.pop("calibration")
        if version == CALIBRATION_VERSION and not isinstance(version, bool):
            return _calibration(**found)
    except OSError as error:
        raise ValueError(f"calibration is {file!r}, which cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"calibration is {file!r}, which is not a calibration file ({error!r}); make one with "
            "`lm-eval-leakage calibrate`"
        ) from error
    raise ValueError(
        f"calibration is {file!r}, of version {version!r}; this package reads {CALIBRATION_VERSION}: make it again"
    )


def _calibration(
    model: Any,
    benchmark: Any,
    whose: Any,
    origin: Any,
    detectors: Any,
    combined: Any,
    unseen: Any,
    natural: Any = None,
) -> Calibration:
    """A calibration from its JSON. Raises TypeError or ValueError for invalid content."""
    for name, value in (("model", model), ("benchmark", benchmark), ("origin", origin)):
        _check(isinstance(value, str), f"its {name} is {value!r}, which is not a text")
    _check(whose in (OWN, COPY), f"its scores are of {whose!r}, which is neither {OWN!r} nor {COPY!r}")
    known = {name: _known_scores(name, **scores) for name, scores in detectors.items()}
    _check(COMBINED not in known or combined is not None, "it has combined scores but not how they are computed")
    together = None if combined is None else _combined(combined)
    described = None if unseen is None else _described(**unseen)
    measured = None if natural is None else _natural_part(**natural)
    return Calibration(model, benchmark, whose, origin, known, together, described, measured)


def _natural_part(n: Any, means: Any, errors: Any) -> NaturalPart:
    _check(isinstance(n, int) and n > 0, f"its natural part is of {n!r} questions")
    fitting = _are_numbers(means) and _are_numbers(errors) and len(means) == len(errors) == len(CONTROL_FORMS)
    _check(fitting, "its natural part lacks a mean and an error for each control form")
    return NaturalPart(n, tuple(means), tuple(errors))


def _described(properties: Any, digests: Any) -> Described:
    _check(all(map(_are_numbers, properties.values())), "a property of its unseen questions is not finite numbers")
    _check(all(isinstance(digest, str) for digest in digests), "a digest of its unseen questions is not a text")
    return Described({name: tuple(values) for name, values in properties.items()}, dict.fromkeys(digests, ""))


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
