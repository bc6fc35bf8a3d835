"""Turn the model's responses to a leakage task into verdicts.

The statistics are filters of lm_eval, one in each pipeline of the task. An error of our own code on one question,
after the model has done its work, skips only that question.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval.api.filter import Filter

from lm_eval_leakage.detectors import Probe, statistics
from lm_eval_leakage.detectors.crossed_fillers import FillerMeasurement
from lm_eval_leakage.harness.models.processes import of_every
from lm_eval_leakage.harness.models.question_requests import QuestionRequests
from lm_eval_leakage.harness.seams.registries import add_filter
from lm_eval_leakage.harness.table import JudgedQuestion, undecidable
from lm_eval_leakage.harness.tasks.judge_model import load_judge
from lm_eval_leakage.questions.families import question_key, shared_texts
from lm_eval_leakage.records import (
    Answered,
    Evidence,
    FillerAnswers,
    OrderAnswers,
    Question,
    Skipped,
    TokenScores,
    UntestableQuestion,
    Verdict,
)
from lm_eval_leakage.stats.crossed_blocks import by_form
from lm_eval_leakage.stats.order_sum import averaged, averaged_controls

logger = logging.getLogger(__name__)
REASONS_SHOWN = 5  # in log messages; the samples log has the reason of every question


@dataclass
class _Prepared:
    """One question as all statistics read it.

    key: equal for copies of the question
    guards: names of the reasons for which its options may have a natural order
    answered: the question with the model's answers; None if they cannot be read
    orders: what the verdict on the data set reads of it; None if the probe does not score orders
    """

    key: str = ""
    guards: tuple[str, ...] = ()
    answered: Answered | None = None
    orders: OrderAnswers | None = None


def judge_questions(task: Any, questions: Sequence[QuestionRequests]) -> None:
    """Compute the verdicts on this process's questions of one task, in each of its pipelines.

    The harness finds the verdict in `judged` of a question's requests, as the first filtered response.
    """
    reference = task.reference
    if reference is not None and all(of_every(all(reference.of(item.arguments) is None for item in questions))):
        logger.warning(
            "%s: the log of %s has no texts of this audit, which is judged without a reference",
            task.config.task,
            reference.model,
        )
        task.compare_with(None)
    prepared = [_prepared(task, item) for item in questions]
    answered = [reading.answered for reading in prepared if reading.answered is not None]
    for pipeline, judge in task.judges.items():
        detector = task.detectors[pipeline]
        verdicts = iter(judge.apply(None, answered))
        for item, reading in zip(questions, prepared, strict=True):
            outcome: Any = None if reading.answered is None else next(verdicts)
            verdict = outcome if item.skipped is None else item.skipped
            item.judged[pipeline] = JudgedQuestion(
                verdict,
                detector,
                reading.guards,
                task.audited,
                orders=None if isinstance(verdict, Skipped) else reading.orders,
                fillers=verdict.answers if isinstance(verdict, FillerMeasurement) else None,
                key=reading.key,
                number=item.metadata[1] or 0,
            )
        _report(task, pipeline, [item.judged[pipeline].verdict for item in questions])
        for reading in prepared:
            reading.orders = None  # the verdict on the data set is computed from them once, not for each statistic


def _prepared(task: Any, item: QuestionRequests) -> _Prepared:
    """Return a question as all statistics read it; set `item.skipped`, with the reason, if it cannot be judged."""
    reading = _Prepared()
    try:
        reading.key, reading.guards = question_key(task.question(item.doc)), task.guards(item.doc)
        if item.skipped is None and task.reference is not None and task.reference.of(item.arguments) is None:
            item.skipped = Skipped("the reference log does not have all of its texts")
        if item.skipped is None:
            _read_answers(task, item, reading)
    except UntestableQuestion:
        pass  # its reason was recorded when its requests were built
    except Exception as error:  # one question must not lose hours of the model's work
        item.skipped = item.skipped or Skipped(f"our code failed on it ({error!r})")
    return reading


def _read_answers(task: Any, item: QuestionRequests, reading: _Prepared) -> None:
    """Fill `reading` with the model's answers; skip the question if one in a control form is not finite.

    Answers to the same request in several layouts become one, and the log-likelihoods of a reference model are
    subtracted.
    """
    question, probe = task.question(item.doc), task.probe_for(bool(reading.guards))
    if probe.exchanges_fillers:
        reading.answered = _with_fillers(task, probe, question, item)
        return
    n_asked, n_layouts = len(item.requests), len(probe.asked_layouts)
    n_orders, responses = n_asked // n_layouts, item.responses
    everything = tuple(response[0] for response in responses if isinstance(response, tuple))
    scores = averaged(everything[:n_asked], n_layouts)
    of_control = averaged_controls(everything[n_asked:], n_layouts)
    expected: tuple[float, ...] = ()
    loglikelihoods = scores
    if task.reference is not None:
        expected = averaged(task.reference.of(item.arguments[:n_asked]) or (), n_layouts)
        loglikelihoods = tuple(score - other for score, other in zip(scores, expected, strict=True))
    answers = [instance.answer for instance in item.instances[:n_orders]]
    reading.answered = Answered(
        question,
        item.requests[:n_orders],
        loglikelihoods,
        probe.gold(question),
        tuple(answer for answer in answers if isinstance(answer, TokenScores)),
        tuple(response for response in responses[:n_orders] if isinstance(response, str)),
        expected,
        probe.candidates(question),
    )
    if probe.asks_orders:
        item.skipped = _not_finite(everything[n_asked:], begin=n_asked)
        reading.orders = answers_of_orders(task, question, bool(reading.guards), scores, of_control, expected)


def _with_fillers(task: Any, probe: Probe, question: Question, item: QuestionRequests) -> Answered:
    """Return a row with the model's answers about each filler of its block; skip it if one in the control form is not
    finite."""
    block = probe.block(question)
    assert block is not None, "a probe that exchanges fillers puts rows into blocks"
    n_fillers, n_asked = len(block.fillers), len(item.requests)
    answers = [response[0] for response in item.responses if isinstance(response, tuple)]
    control = by_form(answers[n_asked:], n_fillers, block.place)
    expected = () if task.reference is None else task.reference.of(item.arguments[:n_asked]) or ()
    item.skipped = _not_finite(answers[n_asked:], begin=n_asked)
    fillers = FillerAnswers(
        block.name,
        block.place,
        by_form(answers[:n_asked], n_fillers, block.place),
        control[0] if control else (),
        by_form(expected, n_fillers, block.place),
        probe.asked_layouts,
        getattr(probe, "start", None) or "",
        is_drawn=task.seal is not None,
        fillers=task.fillers,
    )
    return Answered(question, item.requests, tuple(answers[:n_asked]), fillers=fillers)


def answers_of_orders(
    task: Any,
    question: Question,
    guarded: bool,
    scores: Sequence[float],
    of_control: Sequence[float] = (),
    expected: Sequence[float] = (),
) -> OrderAnswers:
    """Return what the verdict on the data set reads of a question.

    guarded: whether the question has a guard
    scores: the model's log-likelihoods of the question's orders
    of_control: those of the compared orders in each control form
    expected: the reference model's log-likelihoods of the orders
    """
    probe = task.probe_for(guarded)
    return OrderAnswers(
        tuple(scores),
        task.orders.status,
        guarded,
        tuple(of_control),
        tuple(expected),
        shared_texts(question),
        probe.compared(question),
        probe.right_places(question),
        probe.asked_layouts if len(probe.asked_layouts) > 1 else (),
    )


def _report(task: Any, pipeline: str, verdicts: Sequence[Verdict]) -> None:
    """Log what the table does not show: why questions were skipped, and why a rate may be missing."""
    evidence = [verdict for verdict in verdicts if isinstance(verdict, Evidence)]
    if undecidable(evidence) and any(row.withheld_if_undecidable for row in task.rows.values()):
        logger.warning(
            "%s, %s: with 2 options no question's p-value is below 1/2, so a flag means little and no rate is shown; "
            "%d of %d questions meet the criterion, %d would by chance: see dataset_pvalue in the section "
            "leakage_details of the results",
            task.config.task,
            pipeline,
            sum(verdict.flagged for verdict in evidence),
            len(evidence),
            round(sum(verdict.null_rate for verdict in evidence)),
        )
    reasons = Counter(verdict.reason for verdict in verdicts if isinstance(verdict, Skipped))
    for reason, count in reasons.most_common(REASONS_SHOWN):
        logger.warning("%s, %s: %d question(s) skipped: %s", task.config.task, pipeline, count, reason)


class LeakageFilter(Filter):  # type: ignore[misc]
    """Judges all questions of a leakage task at once by one statistic.

    statistic: registered name, such as max_order
    device: where it is computed; auto uses an accelerator if there is one
    parameters: those of the statistic, such as delta
    """

    def __init__(self, statistic: str, device: str = "auto", **parameters: object) -> None:
        chosen: Any = statistics.get(statistic)
        try:
            self.statistic = chosen(**parameters)
        except TypeError as error:
            raise ValueError(f"parameters {parameters!r} do not fit the statistic {statistic!r}: {error}") from error
        if getattr(self.statistic, "judge_model", None) is not None:
            judge = load_judge(self.statistic.judge_model, self.statistic.judge_args)
            self.statistic = replace(self.statistic, loaded_judge=judge)
        self.device = device
        if device != "auto":
            from lm_eval_leakage.stats.order_scores import find_device  # needs torch, which takes a second

            find_device(device)

    def apply(self, resps: object, docs: Sequence[Answered]) -> list[Verdict]:
        """Return the verdicts on questions with their answers, which `judge_questions` passes as `docs`.

        A question with a log-likelihood that is not finite is skipped.
        """
        refused = [_not_finite(question.answers) for question in docs]
        sound = [question for question, refusal in zip(docs, refused, strict=True) if refusal is None]
        tested = iter(self._judged(sound))
        return [refusal or next(tested) for refusal in refused]

    def _judged(self, sound: Sequence[Answered]) -> Sequence[Verdict]:
        """Return the verdicts on questions, judged at once.

        If the statistic raises, they are judged one by one, so that only the offending questions are skipped. If it
        raises for each of several questions, the fault is the statistic's, and its error is raised.
        """
        try:
            judged: Sequence[Verdict] = self.statistic.judge(sound, self.device) if sound else []
            return judged
        except Exception:  # one question must not lose the model's work
            verdicts = [self._judged_alone(question) for question in sound]
            if len(sound) > 1 and all(isinstance(verdict, Skipped) for verdict in verdicts):
                raise
            return verdicts

    def _judged_alone(self, question: Answered) -> Verdict:
        """Return the verdict on one question; it is skipped if the statistic raises."""
        try:
            verdict: Verdict = self.statistic.judge([question], self.device)[0]
            return verdict
        except Exception as error:
            return Skipped(f"{type(self.statistic).__name__} failed on it ({error!r})")


def _not_finite(scores: Sequence[float], begin: int = 0) -> Skipped | None:
    """Return why a question is skipped if one of its log-likelihoods is not finite; None if all are finite.

    begin: the number of the request that the first of the scores answers
    """
    for index, score in enumerate(scores, begin):
        if not math.isfinite(score):
            return Skipped(f"log-likelihood of request {index} is {score}; it must be finite")
    return None


add_filter("leakage", LeakageFilter)
