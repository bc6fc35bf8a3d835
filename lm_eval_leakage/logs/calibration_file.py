"""Calibration files: known scores of one model on one benchmark, as JSON (docs/log_format.md)."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.records import Described
from lm_eval_leakage.stats.combined import CombinedScore
from lm_eval_leakage.stats.known_scores import Calibration, KnownScores
from lm_eval_leakage.stats.order_sum import NaturalPart

CALIBRATION_VERSION = 3


class _Unseen(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    properties: dict[str, tuple[float, ...]]
    digests: list[str]


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)  # of the dataclasses within, too
    calibration: Literal[CALIBRATION_VERSION]  # type: ignore[valid-type]
    model: str
    benchmark: str
    whose: Literal["own", "copy"]
    origin: str
    detectors: dict[str, KnownScores]
    combined: CombinedScore | None
    unseen: _Unseen | None
    natural: NaturalPart | None = None
    answered: tuple[int, int] = (0, 0)
    by_letters: bool = False


def write_calibration(file: Path, calibration: Calibration) -> None:
    """The stems of the known-unseen questions are left out, since they may be private, and so is the test of texts,
    which is of the asked questions, too."""
    written = asdict(replace(calibration, unseen=None, texts=None))
    del written["texts"]
    for known in written["detectors"].values():
        if not known["seen_classes"]:
            del known["seen_classes"]
    if written["natural"] is None:
        del written["natural"]
    if not calibration.answered[1]:
        del written["answered"], written["by_letters"]
    if (kept := calibration.unseen) is not None:
        written["unseen"] = {"properties": kept.properties, "digests": list(kept.stems)}
    atomic_write(file, json.dumps({"calibration": CALIBRATION_VERSION, **written}))


def read_calibration(file: str | Path) -> Calibration:
    """Raises ValueError, with the remedy, for a file of another kind or version."""
    try:
        found = _File.model_validate_json(Path(file).expanduser().read_bytes())
    except OSError as error:
        raise ValueError(f"calibration is {str(file)!r}, which cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"calibration is {str(file)!r}, which is not a calibration file of version {CALIBRATION_VERSION} "
            f"({': '.join(filter(None, [where, first['msg']]))}); make one with `lm-eval-leakage calibrate`"
        ) from error
    parts = dict(found)
    del parts["calibration"]
    if found.unseen is not None:
        parts["unseen"] = Described(found.unseen.properties, dict.fromkeys(found.unseen.digests, ""))
    return Calibration(**parts)
