"""Test whether questions are still answered correctly when their options are shuffled, replaced, or both.

The method is known as "choice confusion". Each question is asked in four arms: with the original options, with
shuffled ones, with replaced ones, and with replaced and shuffled ones ("generalized").

Replacing: every wrong option is replaced by the right answer to another question, so that all options are right
answers but only one answers this question. A model that understands the question then finds it more easily; one that
memorised the published options does not. The published method replaces and shuffles at once, which confounds two
effects, so each has its own arm here.

Null hypothesis (McNemar's test): between the original and the generalized question, as many answers become wrong as
become right. Limits: the test shows that accuracy changed, not why; a clean model gains from replacing, by an unknown
amount, so a verdict on leakage needs the difference of a clean reference model; a model at chance has no gain to lose;
replacements may be right by accident. Source: Yao et al., EMNLP 2024 (arXiv 2406.13236), accuracy(generalized) -
accuracy(original), who did not publish the scope, the seed or the treatment of duplicates; the two intermediate arms,
the errors and the test are ours.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

from lm_eval_leakage.detectors import Probe, Statistic, check_choice, probes, refuse_few_options, statistics
from lm_eval_leakage.detectors.tail_answered import margin_and_rank
from lm_eval_leakage.questions.rendering import letter_requests
from lm_eval_leakage.records import Answered, DeclaredRow, Measurement, Question, Request, UntestableQuestion
from lm_eval_leakage.registry import OUTSIDE_ID
from lm_eval_leakage.stats.pooling import Verdicts, declare_row, mean_and_stderr, row_with_error

SCOPES = ("subject", "all")
SCORINGS = ("own", "letters", "texts")
DELTA, DELTA_STDERR = "delta,paired_accuracy", "delta_stderr,paired_accuracy"  # keys in lm_eval's results

Arm = tuple[tuple[str, ...], int]  # options as shown, and the index of the right option


@probes.register("choice_confusion")
@dataclass(frozen=True)
class ChoiceConfusion(Probe):
    """Asks for the likelihood of each option, or of its letter, in each arm.

    scope: replacements are right answers to questions of the same "subject", or to "all" questions of the task
    score: "letters" after a prompt that shows the options; "texts" of the options after a prompt that does not; "own"
        for whichever of the two the task itself does
    pool: questions whose right answers may replace wrong options
    """

    scope: str = "subject"
    score: str = "own"
    pool: tuple[Question, ...] = field(default=(), repr=False, metadata=OUTSIDE_ID)

    def __post_init__(self) -> None:
        check_choice("scope", self.scope, SCOPES)
        check_choice("score", self.score, SCORINGS)

    def with_pool(self, questions: Callable[[], Sequence[Question]]) -> ChoiceConfusion:
        """Return the same probe with the questions whose right answers may replace wrong options."""
        return replace(self, pool=tuple(questions()))

    def requests(self, question: Question) -> tuple[Request, ...]:
        """Return one request per option, arm after arm."""
        arms = self.arms(question)
        return tuple(request for options, _ in arms for request in self._requests_for(question, options))

    def original_requests(self, question: Question) -> tuple[Request, ...]:
        """Return the requests of the first arm, the options as published."""
        return self._requests_for(question, question.options)

    def arms(self, question: Question) -> tuple[Arm, ...]:
        """Return the options and the index of the right one for each arm.

        The arms are: as published, shuffled, replaced, and replaced and shuffled. The two shuffled arms have the same
        order, the two replaced arms the same replacements.
        """
        gold = question.answer
        if gold is None:
            raise UntestableQuestion("its right answer is not known, or it has several")
        refuse_few_options(question)
        n_options = len(question.options)
        rng = random.Random(question.id)
        order = list(range(n_options))
        rng.shuffle(order)
        others = iter(self._replacements(question, n_options - 1, rng))
        replaced = [option if place == gold else next(others) for place, option in enumerate(question.options)]
        moved = order.index(gold)
        return (
            (question.options, gold),
            (tuple(question.options[place] for place in order), moved),
            (tuple(replaced), gold),
            (tuple(replaced[place] for place in order), moved),
        )

    def gold(self, question: Question) -> tuple[int, ...]:
        """Return the index of the right option in each arm."""
        return tuple(place for _, place in self.arms(question))

    def _replacements(self, question: Question, count: int, rng: random.Random) -> list[str]:
        """Return `count` right answers to other questions, with different words than each other and the right option.

        Raises UntestableQuestion if there are not that many.
        """
        assert question.answer is not None
        right_words = _words(question.options[question.answer])
        by_words = self._right_answers.get(self._scope_key(question), {})
        others = [text for words, text in by_words.items() if words != right_words]
        if len(others) < count:
            raise UntestableQuestion(
                f"{count} replacements are needed, and other questions have {len(others)} different right answers "
                f"with scope={self.scope}; take them from all questions with scope=all"
            )
        return rng.sample(others, count)

    @cached_property
    def _right_answers(self) -> dict[str, dict[str, str]]:
        """Return the right answers of the pool by `_scope_key`, then by their words; of equal words, the first."""
        by_scope: dict[str, dict[str, str]] = {}
        for question in self.pool:
            if question.answer is not None:
                right = question.options[question.answer]
                by_scope.setdefault(self._scope_key(question), {}).setdefault(_words(right), right)
        return by_scope

    def _scope_key(self, question: Question) -> str:
        """Return a key that is the same for questions whose right answers may replace each other's wrong options."""
        return question.subject if self.scope == "subject" else ""

    def _requests_for(self, question: Question, options: Sequence[str]) -> tuple[Request, ...]:
        """Return the requests of one arm, which shows these options."""
        is_asked_without_options = question.prompt is not None
        if self.score == "letters" or (self.score == "own" and not is_asked_without_options):
            return letter_requests(question, options)
        prompt = question.prompt or f"Question: {question.stem.strip()}\nAnswer:"
        return tuple(Request(prompt, " " + option.strip()) for option in options)


def _words(option: str) -> str:
    """Return an option's words without regard to case and spaces."""
    return " ".join(option.casefold().split())


@dataclass(frozen=True)
class ArmsMeasurement(Measurement):
    """The verdict on one question: whether the right option was chosen in each arm; a tie counts as wrong.

    original, shuffled, replaced, generalized: the arms, as in `ChoiceConfusion.arms`
    confusion: margin of the right option over the best other among the published options, minus its margin among the
        replaced and shuffled ones, nats
    reference, reference_stderr: a clean model's delta and its standard error; None and 0 if not given
    shuffled_place: place of the right option when shuffled; None where the model is not shown another order than the
        published one: its options are scored alone, or the draw is the published order
    """

    ranks_by: ClassVar[tuple[str, ...]] = ("confusion",)
    original: bool
    shuffled: bool
    replaced: bool
    generalized: bool
    confusion: float
    reference: float | None = None
    reference_stderr: float | None = None
    shuffled_place: int | None = None


class Difference(NamedTuple):
    """The change in accuracy on the same questions; its fields are NaN where they are undefined.

    value: accuracy after minus accuracy before
    stderr: standard error of the paired difference
    pvalue: p-value of McNemar's test, two-sided and exact
    """

    value: float
    stderr: float
    pvalue: float


def accuracy_difference(before: Sequence[bool], after: Sequence[bool]) -> Difference:
    """Return the change in accuracy between two arms.

    The p-value is that of a binomial test on the questions whose correctness changed; it is 1 if none did.

    before, after: whether each question was answered correctly, `(n_questions,)`
    """
    from scipy.stats import binomtest

    changes = [int(now) - int(then) for then, now in zip(before, after, strict=True)]
    n_gained, n_changed = changes.count(1), sum(map(abs, changes))
    pvalue_unchanged = 1.0 if changes else math.nan
    pvalue = float(binomtest(n_gained, n_changed).pvalue) if n_changed else pvalue_unchanged
    return Difference(*mean_and_stderr(changes), pvalue)


def pvalue_below_reference(change: Difference, reference: float, reference_stderr: float) -> float:
    """Return the one-sided p-value of a change at least as far below a clean model's, by a normal approximation.

    It is NaN if neither change has a spread.
    """
    from scipy.stats import norm

    error = math.hypot(change.stderr, reference_stderr)
    return float(norm.cdf((change.value - reference) / error)) if error > 0 else math.nan


def _right_in_arm(verdicts: Verdicts, arm: str) -> list[bool]:
    """Return whether each tested question was answered correctly in an arm."""
    return [getattr(verdict, arm) for verdict in verdicts if isinstance(verdict, ArmsMeasurement)]


def _change_to(verdicts: Verdicts, arm: str) -> Difference:
    """Return the change in accuracy from the original options to an arm."""
    return accuracy_difference(_right_in_arm(verdicts, "original"), _right_in_arm(verdicts, arm))


def _reference_pvalue(verdicts: Verdicts) -> float:
    """Return the p-value of `delta` against a clean model's; NaN without one. It is the same in all verdicts."""
    first = next((verdict for verdict in verdicts if isinstance(verdict, ArmsMeasurement)), None)
    if first is None or first.reference is None:
        return math.nan
    return pvalue_below_reference(_change_to(verdicts, "generalized"), first.reference, first.reference_stderr or 0.0)


def _accuracy(arm: str, options: str) -> DeclaredRow:
    """Return the row for the accuracy in an arm; `options` says what is done to them."""
    meaning = f"Share of questions answered correctly with their options {options}."
    return declare_row(ArmsMeasurement, f"accuracy_{arm}", meaning, arm, higher_is_better=True)


def _delta(name: str, arm: str, meaning: str) -> DeclaredRow:
    """Return the row for the change in accuracy from the original options to an arm."""
    return row_with_error(
        name,
        f"accuracy_{arm} - accuracy_original, paired: {meaning}.",
        lambda verdicts: _change_to(verdicts, arm)[:2],
    )


@statistics.register("paired_accuracy")
@dataclass(frozen=True)
class PairedAccuracy(Statistic):
    """Compares the accuracies of the arms, on the same questions.

    reference: a clean model's `delta` on the same task, with which this model's is compared: a number, or the
        results file of its run, as FILE or, if it has several tasks, FILE#TASK
    reference_stderr: its standard error, if `reference` is a number
    """

    probe: ClassVar[str] = "choice_confusion"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        _accuracy("original", "as published"),
        _accuracy("shuffled", "shuffled"),
        _accuracy("replaced", "replaced"),
        _accuracy("generalized", "replaced and shuffled"),
        _delta("delta_shuffled", "shuffled", "the loss if letters are memorised"),
        _delta("delta_replaced", "replaced", "the loss if options are memorised"),
        _delta("delta", "generalized", "what a clean model gains (Yao et al., 2024)"),
        DeclaredRow(
            "mcnemar_pvalue",
            "Two-sided exact McNemar p-value of `delta`: as many answers become wrong as right.",
            lambda verdicts: _change_to(verdicts, "generalized").pvalue,
        ),
        DeclaredRow(
            "reference_pvalue",
            "Probability of a delta at least as far below the clean reference's; undefined without a reference.",
            _reference_pvalue,
        ),
    )

    # Both affect a row of the table, but no question's answers.
    reference: float | str | None = field(default=None, metadata=OUTSIDE_ID)
    reference_stderr: float = field(default=0.0, metadata=OUTSIDE_ID)

    def __post_init__(self) -> None:
        if isinstance(self.reference, str):
            delta, stderr = delta_of_run(self.reference)
            object.__setattr__(self, "reference", delta)
            object.__setattr__(self, "reference_stderr", stderr)
        elif self.reference is not None and not -1 <= self.reference <= 1:
            raise ValueError(f"reference is {self.reference!r}; it is a difference of accuracies, so between -1 and 1")

    def verdict(self, question: Answered) -> ArmsMeasurement:
        """Return whether the right option has the highest likelihood in each arm."""
        n_options = len(question.question.options)
        arms = [question.answers[start : start + n_options] for start in range(0, 4 * n_options, n_options)]
        margins = [margin_and_rank(scores, gold)[0] for scores, gold in zip(arms, question.gold, strict=True)]
        original, shuffled, replaced, generalized = (margin > 0 for margin in margins)
        assert not isinstance(self.reference, str), "__post_init__ replaces a file by its delta"
        contexts = {request.context for request in question.requests[: 2 * n_options]}  # of the first two arms
        shows_order = len(contexts) > 1
        return ArmsMeasurement(
            original,
            shuffled,
            replaced,
            generalized,
            margins[0] - margins[-1],
            self.reference,
            self.reference_stderr,
            shuffled_place=question.gold[1] if shows_order else None,
        )


def delta_of_run(reference: str) -> tuple[float, float]:
    """Return `delta` and its standard error from a results file of lm_eval.

    reference: names the file, as FILE or, if it has several tasks with a delta, FILE#TASK
    """
    name, _, task = reference.partition("#")
    file = Path(name).expanduser()
    try:
        results = json.loads(file.read_text(encoding="utf-8"))["results"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"reference is {reference!r}, which is neither a number nor a results file of lm_eval ({error!r})"
        ) from error
    rows = {name: row for name, row in results.items() if DELTA in row and task in ("", name)}
    if len(rows) != 1:
        raise ValueError(
            f"reference is {reference!r}; {len(rows)} tasks of that file have a delta ({', '.join(rows) or 'none'}); "
            "name one as FILE#TASK"
        )
    (row,) = rows.values()
    return float(row[DELTA]), float(row[DELTA_STDERR])
