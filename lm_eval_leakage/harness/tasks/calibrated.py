"""Flags questions by a calibration set of known-unseen scores: `--metadata calibration=FILE`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from lm_eval_leakage.inference.known_scores import Calibrated, Calibration, class_of
from lm_eval_leakage.logs.audit_line import score_names
from lm_eval_leakage.logs.calibration_file import read_calibration
from lm_eval_leakage.records import Evidence, Question, Verdict

logger = logging.getLogger(__name__)

DEFAULT_FPR = 0.05


class Calibrator:
    """Flags questions by comparison with the scores of known-unseen questions, at a false-positive rate of `fpr`."""

    def __init__(self, calibration: Calibration, fpr: float = DEFAULT_FPR) -> None:
        if isinstance(fpr, bool) or not isinstance(fpr, (int, float)) or not 0 < fpr < 1:
            raise ValueError(f"fpr is {fpr!r}; it is a false-positive rate, above 0 and below 1")
        self.calibration, self.fpr = calibration, fpr

    @classmethod
    def of(cls, metadata: Mapping[str, Any], task: str) -> Calibrator | None:
        """The calibrator that `metadata` asks for, if any. Raises ValueError if it is not of `task`'s benchmark."""
        if metadata.get("calibration") is None:
            return None
        calibration = read_calibration(str(metadata["calibration"]))
        benchmark = str(metadata.get("audit_of") or task)
        if benchmark != calibration.benchmark and not benchmark.startswith(f"{calibration.benchmark}_"):
            raise ValueError(
                f"calibration is {metadata['calibration']!r}, made on {calibration.benchmark!r}, but {task} "
                f"audits {benchmark!r}; make one on that benchmark, or leave it out"
            )
        if "audit_of" in metadata and benchmark != calibration.benchmark:
            logger.warning(
                "%s audits %r with a calibration made on %r; it is valid only if the one is a part of the other",
                task,
                benchmark,
                calibration.benchmark,
            )
        return cls(calibration, metadata.get("fpr", DEFAULT_FPR))

    def check_model(self, lm: object) -> None:
        """Raises ValueError for a calibration of another model; warns if the model's name is not known."""
        names = [getattr(lm, key, None) for key in ("pretrained", "model")]
        name = next((name for name in names if isinstance(name, str)), None)
        if name is None:
            logger.warning(
                "%s has no known name; the calibration is of the model %r", type(lm).__name__, self.calibration.model
            )
        elif name != self.calibration.model:
            raise ValueError(
                f"the calibration is of the model {self.calibration.model!r}, but this run's model is {name!r}; "
                "scores of one say nothing about the other, so make a calibration of this model, or leave it out"
            )

    def unmatched(self, detectors: Iterable[str]) -> str | None:
        """Why the file has no scores for any of these detectors; None if it has some."""
        return self.calibration.unmatched(detectors)

    def judge(self, verdict: Verdict, detector: str, question: Question, guarded: bool) -> Calibrated | None:
        """The calibrated verdict; None if the question was not tested or the file has no scores for the detector."""
        ranks_by = ("statistic",) if isinstance(verdict, Evidence) else getattr(verdict, "ranks_by", ())
        key, name = next(iter(score_names(detector, ranks_by).items()), ("", ""))
        known = self.calibration.detectors.get(name)
        if known is None:
            return None
        pvalue = known.pvalue(float(getattr(verdict, key)), class_of(len(question.options), guarded))
        of_seen, of_unseen = known.flagged(self.fpr)
        return Calibrated(pvalue <= self.fpr, pvalue, self.fpr, of_seen, of_unseen)
