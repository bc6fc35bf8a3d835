"""Flags questions by a calibration set of known-unseen scores: `--metadata calibration=FILE`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from lm_eval_leakage.harness.patches.sharded_docs import all_docs
from lm_eval_leakage.inference.known_scores import NOT_CALIBRATED, Calibrated, Calibration, class_of
from lm_eval_leakage.inference.withheld import why_withheld
from lm_eval_leakage.logs.audit_line import score_names
from lm_eval_leakage.logs.calibration_file import read_calibration
from lm_eval_leakage.questions.described import described
from lm_eval_leakage.questions.fields import Doc
from lm_eval_leakage.records import Evidence, Question, Skipped, UntestableQuestion, Verdict

logger = logging.getLogger(__name__)

DEFAULT_FPR = 0.05


class CalibratedTask(Protocol):
    """What a calibration needs of an audit."""

    config: Any
    detectors: Mapping[str, str]

    def doc_iterator(
        self, *, rank: int, limit: int | None, world_size: int, samples: list[int] | None
    ) -> Iterator[tuple[int, Doc]]: ...

    def question(self, doc: Doc) -> Question: ...

    def guards(self, doc: Doc) -> tuple[str, ...]: ...


class Calibrator:
    """Flags questions by comparison with the scores of known-unseen questions, at a false-positive rate of `fpr`.

    withheld: why it flags none, as a sentence; None if it does
    """

    withheld: str | None = None

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

    def meet(self, lm: object, task: CalibratedTask) -> None:
        """Raises ValueError for a calibration of another model; warns if it has no scores of the task's detectors."""
        self.check_model(lm)
        if unmatched := self.unmatched(task.detectors.values()):
            logger.warning("%s: %s", task.config.task, unmatched)

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

    def compare(self, task: CalibratedTask, limit: int | None, samples: list[int] | None) -> None:
        """Withholds its verdicts, and says why, if they would not tell what the model has seen of the asked questions.

        limit, samples: which questions the run asks, in all of its processes and shards
        """
        self.withheld = why_withheld(self.calibration, described(_asked(task, limit, samples)))
        if self.withheld is not None:
            logger.warning("%s: calibrated rates are withheld: %s", task.config.task, self.withheld)

    def judge(self, verdict: Verdict, detector: str, question: Question, guarded: bool) -> Calibrated | Skipped | None:
        """The calibrated verdict, or NOT_CALIBRATED; None if there are no scores by the detector or of the class."""
        if self.withheld is not None:
            return NOT_CALIBRATED
        ranks_by = ("statistic",) if isinstance(verdict, Evidence) else getattr(verdict, "ranks_by", ())
        key, name = next(iter(score_names(detector, ranks_by).items()), ("", ""))
        known, of_class = self.calibration.detectors.get(name), class_of(len(question.options), guarded)
        if known is None or known.compared_with(of_class) is None:
            return None
        pvalue = known.pvalue(float(getattr(verdict, key)), of_class)
        of_seen, of_unseen = known.flagged(self.fpr)
        return Calibrated(pvalue <= self.fpr, pvalue, self.fpr, of_seen, of_unseen)


def _asked(task: CalibratedTask, limit: int | None, samples: list[int] | None) -> Iterator[tuple[Question, bool]]:
    """The readable questions of a run, each with whether it has a guard."""
    for _, doc in all_docs(task, limit, samples):
        try:
            yield task.question(doc), bool(task.guards(doc))
        except UntestableQuestion:
            continue
