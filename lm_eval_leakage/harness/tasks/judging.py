"""From the responses about a task's questions to verdicts: the filters' statistics, guards, calibrations.

Whatever one question does to our own code after the model's work costs that question alone.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from lm_eval_leakage.detector_ids import detector_id
from lm_eval_leakage.harness.models.asking import LeakageInstance
from lm_eval_leakage.harness.models.processes import on_all
from lm_eval_leakage.harness.models.token_scores import TokenAnswer
from lm_eval_leakage.harness.table.aggregations import undecidable
from lm_eval_leakage.harness.tasks.calibrated import Calibrator
from lm_eval_leakage.harness.tasks.filters import LeakageFilter, judged_response
from lm_eval_leakage.inference.known_scores import Calibrated
from lm_eval_leakage.logs.reference_log import ReferenceLog
from lm_eval_leakage.probes import Probe
from lm_eval_leakage.records import Answered, Evidence, Question, Skipped, UntestableQuestion, Verdict

logger = logging.getLogger(__name__)
T = TypeVar("T")
REASONS_SHOWN = 5  # in the run's messages; the samples log has every question's
Asked = Sequence[LeakageInstance]  # all requests about one question


class JudgedTask(Protocol):
    """As much of a task as its verdicts need."""

    config: Any
    reference: ReferenceLog | None
    calibrator: Calibrator | None
    probe: Probe
    pooled_probe: Probe

    def question(self, doc: Mapping[str, Any]) -> Question: ...

    def guards(self, doc: Mapping[str, Any]) -> tuple[str, ...]: ...


class Judging:
    """The verdicts on `questions`, this process's, of one task."""

    def __init__(self, task: JudgedTask, questions: Sequence[Asked]) -> None:
        self.task, self.questions = task, questions
        self._answered: dict[int, Answered] = {}
        self._guards: dict[int, tuple[str, ...]] = {}

    def judge(self, pipelines: Sequence[Any]) -> None:
        """Gives every response its place in each pipeline's results, the first of a question with the verdict."""
        self._drop_unused_reference()
        for place, asked in enumerate(self.questions):
            self._guards[place] = self._or_skipped(asked, "the search for natural orders", self._guards_of, ())
            if asked[0].skipped is None:
                asked[0].skipped = self._without_reference(asked)
            if asked[0].skipped is None:
                answered = self._or_skipped(asked, "reading its answers", self._answered_of, None)
                if answered is not None:
                    self._answered[place] = answered
        for ensemble in pipelines:
            (make_filter,) = ensemble.filters
            self._judge(ensemble.name, make_filter())

    def _judge(self, pipeline: str, judge: LeakageFilter) -> None:
        reference = None if self.task.reference is None else self.task.reference.model
        detector = detector_id(self.task.probe, judge.statistic, reference)
        verdicts: dict[int, Verdict] = dict(
            zip(self._answered, judge.apply(None, list(self._answered.values())), strict=True)
        )
        for place, asked in enumerate(self.questions):
            for instance in asked:
                instance.filtered_resps[pipeline] = judged_response(instance.resps[0])
            judged = asked[0].filtered_resps[pipeline]
            judged.verdict = asked[0].skipped or verdicts[place]
            judged.detector, judged.guards = detector, self._guards[place]
            judged.calibrated = self._calibrated(place, judged.verdict, detector)
        self._report(pipeline)

    def _or_skipped(self, asked: Asked, what: str, compute: Callable[[Asked], T], otherwise: T) -> T:
        try:
            return compute(asked)
        except UntestableQuestion:
            return otherwise  # it has its reason since its requests were built
        except Exception as error:  # hours of the model's work must not be lost to one question
            asked[0].skipped = asked[0].skipped or Skipped(f"{what} failed on it ({error!r})")
            return otherwise

    # ------------------------------------------------------------------ of one question

    def _guards_of(self, asked: Asked) -> tuple[str, ...]:
        return self.task.guards(asked[0].doc)

    def _answered_of(self, asked: Asked) -> Answered:
        question, probe = self.task.question(asked[0].doc), self.task.pooled_probe
        answers = [instance.resps[0] for instance in asked]
        loglikelihoods = tuple(answer[0] for answer in answers if isinstance(answer, tuple))
        expected: tuple[float, ...] = ()
        if self.task.reference is not None:
            expected = tuple(self.task.reference.of([instance.args for instance in asked]) or ())
            loglikelihoods = tuple(own - other for own, other in zip(loglikelihoods, expected, strict=True))
        return Answered(
            question,
            probe.requests(question),
            loglikelihoods,
            probe.gold(question),
            tuple(answer.tokens for answer in answers if isinstance(answer, TokenAnswer)),
            tuple(answer for answer in answers if isinstance(answer, str)),
            expected,
        )

    def _calibrated(self, place: int, verdict: Verdict, detector: str) -> Calibrated | None:
        calibrator = self.task.calibrator
        if calibrator is None or isinstance(verdict, Skipped):
            return None
        question = self._answered[place].question
        return calibrator.judge(verdict, detector, question, bool(self._guards[place]))

    # ------------------------------------------------------------------ the reference

    def _drop_unused_reference(self) -> None:
        reference = self.task.reference
        if reference is not None and on_all(all(map(self._without_reference, self.questions))):
            logger.warning(
                "%s: the log of %s holds no text of this audit, which is judged without a reference",
                self.task.config.task,
                reference.model,
            )
            self.task.reference = None

    def _without_reference(self, asked: Asked) -> Skipped | None:
        reference = self.task.reference
        if reference is None or reference.of([instance.args for instance in asked]) is not None:
            return None
        return Skipped("the reference's log does not hold all of its texts")

    # ------------------------------------------------------------------ messages

    def _report(self, pipeline: str) -> None:
        """What the table has no room for: reasons of skipped questions, and why a rate may be missing."""
        name = self.task.config.task
        verdicts = [asked[0].filtered_resps[pipeline].verdict for asked in self.questions]
        evidence = [verdict for verdict in verdicts if isinstance(verdict, Evidence)]
        if undecidable(evidence):
            logger.warning(
                "%s, %s: with 2 options no question's p-value is below 1/2, so none can be flagged and no rate is "
                "shown; %d of %d questions show the sign, %d would by chance: read dataset_pvalue",
                name,
                pipeline,
                sum(verdict.flagged for verdict in evidence),
                len(evidence),
                round(sum(verdict.null_rate for verdict in evidence)),
            )
        reasons = Counter(verdict.reason for verdict in verdicts if isinstance(verdict, Skipped))
        for reason, count in reasons.most_common(REASONS_SHOWN):
            logger.warning("%s, %s: %d question(s) skipped: %s", name, pipeline, count, reason)
