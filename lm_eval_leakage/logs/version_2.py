"""Names of scores in logs and calibration files of versions 1 and 2, in which `max_order` ranked questions by its
margin. Since version 3 it ranks them by `fixed_z`, so that scores of the two kinds must not share a name."""

from __future__ import annotations

import re

from lm_eval_leakage.inference.known_scores import MARGIN


def score_name(name: str) -> str:
    """The name today of a score that an earlier version named `name`: `max_order/margin` for `max_order`."""
    is_margin = re.split("[@:]", name, maxsplit=1)[0] == "max_order"
    return f"{name}/{MARGIN}" if is_margin else name
