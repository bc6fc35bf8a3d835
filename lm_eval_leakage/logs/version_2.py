"""Logs and calibration files of versions 1 and 2, in which `max_order` ranked questions by its margin.

Since version 3 it ranks them by `fixed_z`, so that scores of the two kinds must not share a name, and a calibration
says whose scores it holds.
"""

from __future__ import annotations

import re

from lm_eval_leakage.inference.known_scores import FORMER_VALUE

UNKNOWN_CALIBRATION = (
    "its calibrated flags are not used: they were made before calibrations said whose scores they hold; give a "
    "calibration of the model's own scores (--calibration, see `lm-eval-leakage calibrate`)"
)


def name_before_version_3(name: str) -> str:
    """The name today of a score that was named `name`: `max_order/margin` for `max_order`."""
    return f"{name}/{FORMER_VALUE}" if re.match("max_order([@:]|$)", name) else name
