"""What all charts share: their width, in SVG units, and their parts."""

from __future__ import annotations

from dataclasses import dataclass

WIDTH = 340  # that of a phone, so that text is not scaled down there
CHANCE = -1  # instead of the number of a series


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Box:
    """series: 0 or 1, or CHANCE for what is expected under the null hypothesis"""

    x: float
    y: float
    width: float
    height: float
    series: int
    title: str = ""
