"""Says before a model is asked whether the option orders of a benchmark can have a verdict at all.

Which questions a verdict counts, and which of them are one unit of evidence, follows from the questions alone: from
their guards, their families, the status of their published orders and what they are compared with. The verdict's own
functions decide that, on random numbers in place of a model's answers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from lm_eval_leakage.harness.tasks.judging import answers_of_orders
from lm_eval_leakage.questions.families import each_once, question_key
from lm_eval_leakage.questions.guards import PASSAGE
from lm_eval_leakage.records import OrderAnswers, Question, UntestableQuestion
from lm_eval_leakage.results.data_verdict import PATTERN_ALONE, natural_part, untestable
from lm_eval_leakage.results.formatting import count, counted
from lm_eval_leakage.results.published_orders import OrderStatus, is_exact
from lm_eval_leakage.results.verdict import FEWEST_JUDGED, Basis, DataVerdict
from lm_eval_leakage.stats.order_power import CONTROL_FORMS
from lm_eval_leakage.stats.order_sum import NaturalPart

TRIED_FIRST = 60  # questions; those of most benchmarks can be tested, so that no more are read
TRIED_FOR_A_REMEDY = 400  # questions, of all that a remedy would count
GUARDS_NAMED = 3
NATURAL = NaturalPart(FEWEST_JUDGED, (0.0,) * len(CONTROL_FORMS), (0.1,) * len(CONTROL_FORMS))
Row = tuple[Any, int]  # an audit, and the place of a question in its rows


@dataclass(frozen=True)
class Obstacle:
    """The reason why the option orders of some questions have no verdict, whatever a model answers.

    reason: a clause
    remedies: what may change it, as clauses; by `check`
    """

    reason: str
    remedies: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """Return a clause; empty without any remedy."""
        return f"a verdict may be possible with {', or with '.join(self.remedies)}" if self.remedies else ""


@dataclass(frozen=True)
class Prospect:
    """The prospect of a verdict on the option orders of some questions, before a model answers.

    rows: the questions; copies count once
    has_reference: whether another model is audited for comparison
    natural: what unseen questions say; any value where some are asked
    """

    rows: Sequence[Row]
    has_reference: bool = False
    natural: NaturalPart | None = None
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0), repr=False, compare=False)

    @cached_property
    def obstacle(self) -> Obstacle | None:
        """Return why no verdict is possible; None if one is, and where the questions are too few, guarded or not."""
        if len(self.rows) < FEWEST_JUDGED or not all(task.probe.asks_orders for task, _ in self.rows[:1]):
            return None
        first = untestable([*self.answers(_some(self.rows, TRIED_FIRST))], self.natural)
        if first is None or self._is_wanted(first):
            return None
        questions = self._questions
        if len(questions) < FEWEST_JUDGED:
            return None
        verdict = untestable([*self.answers(questions)], self.natural)
        if verdict is None or self._is_wanted(verdict):
            return None
        return Obstacle(self._reason(verdict), (*self._remedies(verdict),))

    def _is_wanted(self, verdict: DataVerdict) -> bool:
        """Return whether the user chose to have only a ratio, which is no verdict, by asking no control forms."""
        return verdict.basis == Basis.RATIO and not self._asks_control

    @cached_property
    def _questions(self) -> list[Row]:
        """Return the rows with a question, without copies."""
        keyed = []
        for row in self.rows:
            question = _question(row)
            if question is not None:
                keyed.append((row, question_key(question)))
        return [row for row, _ in each_once(keyed, lambda pair: pair[1])]

    @staticmethod
    def _guards(row: Row) -> frozenset[str]:
        task, place = row
        return frozenset(task.guards(task.eval_docs[place]))

    # ------------------------------------------------------------------ what the verdict would read

    def answers(
        self,
        rows: Sequence[Row],
        *,
        status: str = "",
        has_reference: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> Iterator[OrderAnswers]:
        """Return random answers to the questions that can be asked.

        status: of the published orders, instead of the true one
        without: guards that do not count
        """
        refers = has_reference or self.has_reference
        for row in rows:
            task, question = row[0], _question(row)
            if question is None:
                continue
            guarded = bool(self._guards(row) - without)
            orders = status or task.orders.status
            if guarded and not is_exact(orders):  # it counts in no verdict
                yield OrderAnswers((0.0,), orders, guarded=True)
                continue
            probe = task.probe_for(False)
            try:
                n_orders = len(probe.requests(question)) // len(probe.asked_layouts)
            except UntestableQuestion:
                continue
            has_control = task.asks_control and probe.control(question)
            n_control = len(CONTROL_FORMS) * len(probe.compared(question)) if has_control else 0
            numbers = (self._rng.random(n).tolist() for n in (n_orders, n_control, n_orders if refers else 0))
            yield replace(answers_of_orders(task, question, guarded, *numbers), orders=orders)

    # ------------------------------------------------------------------ in words

    def _reason(self, verdict: DataVerdict) -> str:
        n, parts = len(self._questions), []
        guards = [self._guards(row) for row in self._questions]
        n_guarded = 0 if self._is_exact or verdict.doubt == PATTERN_ALONE else sum(map(bool, guards))
        if n_guarded:
            usual = Counter(name for row_guards in guards for name in row_guards).most_common(GUARDS_NAMED)
            named = ", ".join(f"{name} {count(times)}" for name, times in usual)
            parts.append(f"{count(n_guarded)} of {counted(n)} have a natural order ({named})")
        if not verdict.doubt and verdict.basis in (Basis.RATIO, Basis.CONTROL) and self._asks_control:
            answers = self.answers(self._questions)
            n_plain = sum(not (answer.guarded or answer.control) for answer in answers)
            alike = "are the same in capitals, so that they have no control forms"
            parts += [f"{count(n_plain)} of {counted(n)} {alike}"] if n_plain else []
        n_left = count(verdict.n) if verdict.n else "none"
        return "; ".join([*parts, verdict.doubt or f"{n_left} can be tested, and a verdict needs {FEWEST_JUDGED}"])

    @cached_property
    def has_enough_families(self) -> bool:
        """Return whether there are enough families for a verdict if no guard counts."""
        rows = _some(self._questions, TRIED_FOR_A_REMEDY)
        return self._would_do(self.answers(rows, status=OrderStatus.DRAWN))

    @property
    def _is_exact(self) -> bool:
        return all(is_exact(task.orders.status) for task in self._tasks)

    @property
    def _asks_control(self) -> bool:
        return all(task.asks_control for task in self._tasks)

    @property
    def _tasks(self) -> list[Any]:
        return [*{id(task): task for task, _ in self.rows}.values()]

    def _remedies(self, verdict: DataVerdict) -> Iterator[str]:
        rows = _some(self._questions, TRIED_FOR_A_REMEDY)
        if not self.has_reference and self._would_do(self.answers(rows, has_reference=True)):
            yield "another model as the reference (`--reference`)"
        if verdict.doubt == PATTERN_ALONE and self._would_do(self.answers(rows), NATURAL):
            yield "questions of the same kind that the model cannot have seen (`--unseen FILE`)"
        statuses = {task.orders.status for task in self._tasks}
        may_be_drawn = statuses <= {OrderStatus.UNDECIDED, OrderStatus.CONSISTENT}  # no test contradicts it
        if may_be_drawn and self.has_enough_families:
            yield "the author's word that the orders were drawn at random (`--orders 'random: SOURCE'`)"
        if self._would_do(self.answers(rows, without=frozenset((PASSAGE,)))):
            yield "another task on the same questions that shows no text before them"

    def _would_do(self, answers: Iterable[OrderAnswers], natural: NaturalPart | None = None) -> bool:
        return untestable([*answers], natural or self.natural) is None


def _some(rows: Sequence[Row], n: int) -> Sequence[Row]:
    """Return some rows at random; the first rows may be of one subject."""
    return random.Random(0).sample(rows, min(n, len(rows)))


def natural_before(unseen: Mapping[str, Any]) -> NaturalPart | None:
    """Return what the unseen questions of these audits would say, with random numbers; None if they are too few."""
    rows = [(task, place) for task in unseen.values() for place in range(len(task.eval_docs))]
    return natural_part(Prospect(rows).answers(rows))


def obstacle_of_unseen(unseen: Mapping[str, Any]) -> str:
    """Return why the option orders of unseen questions cannot say what is natural; empty if they can, and for too few
    questions, guarded or not."""
    rows = [(task, place) for task in unseen.values() for place in range(len(task.eval_docs))]
    obstacle = Prospect(rows, natural=NATURAL).obstacle
    return "" if obstacle is None else obstacle.reason


def _question(row: Row) -> Question | None:
    task, place = row
    try:
        question: Question = task.question(task.eval_docs[place])
        return question
    except UntestableQuestion:
        return None
