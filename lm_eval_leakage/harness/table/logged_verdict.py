"""A verdict on one question as the harness's table and its samples log take it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lm_eval_leakage.harness.table.aggregations import ELSEWHERE, given_to
from lm_eval_leakage.harness.table.declared_rows import OF_KNOWN_SCORES
from lm_eval_leakage.inference.known_scores import Calibrated
from lm_eval_leakage.logs.line_writer import written_line
from lm_eval_leakage.records import Verdict


class LoggedVerdict(dict[str, object]):
    """A question's keys in the samples log.

    The harness logs the whole mapping but aggregates what `items()` names. So a line carries the flat scalars of
    `line_writer` while the table gets its rows and no others, each from the verdict itself.
    """

    def __init__(
        self,
        verdict: Verdict,
        guards: Sequence[str],
        row_names: Sequence[str],
        calibrated: Calibrated | None = None,
        detector: str = "",
        benchmark: str = "",
    ) -> None:
        super().__init__(
            written_line(
                verdict,
                benchmark=benchmark,
                detector=detector,
                guards=guards,
                row_names=row_names,
                calibrated=calibrated,
            )
        )
        self._rows = [
            (name, calibrated or ELSEWHERE if name in OF_KNOWN_SCORES else given_to(name, verdict, guards))
            for name in row_names
        ]

    def items(self) -> Iterable[tuple[str, Verdict | Calibrated]]:  # type: ignore[override]
        return self._rows
