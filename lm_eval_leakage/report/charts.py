"""What charts have in common: their size, in the units of their SVG, and their parts."""

from __future__ import annotations

from dataclasses import dataclass

WIDTH = 340  # a phone's, so that text is not shrunk there
CHANCE = -1  # in the place of a series


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Box:
    """series: 0 or 1, or CHANCE for what the null hypothesis gives"""

    x: float
    y: float
    width: float
    height: float
    series: int
    title: str = ""
