"""The comparison plot as one SVG drawing, for notebooks and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.report.comparison import comparison
from lm_eval_leakage.report.environment import render
from lm_eval_leakage.results.result_types import Annotation
from lm_eval_leakage.results.suspicion import benchmarks, suspicion


@dataclass(frozen=True)
class Plot:
    """svg: a drawing that needs no other file; it follows the reader's light or dark mode"""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Writes the drawing to a file.

        Raises ValueError if its name does not end in .svg.
        """
        file = Path(path)
        if file.suffix.lower() != ".svg":
            raise ValueError(f"the plot is an SVG drawing and cannot be saved as {file.name!r}; name a file *.svg")
        atomic_write(file, f"{self.svg}\n")


def comparison_plot(annotations: Sequence[Annotation]) -> Plot:
    """The interval plot at the top of a report: each model and benchmark, the most suspicious first.

    Raises ValueError if no audit has anything to draw.
    """
    rows = [row for annotation in annotations for row in benchmarks(annotation.rows)]
    found = comparison(sorted(rows, key=lambda row: suspicion(row.verdict)))
    if found is None:
        raise ValueError("there is nothing to plot: no audit of these runs has option orders or flags; run one first")
    return Plot(render("plot.svg.j2", found=found).strip())
