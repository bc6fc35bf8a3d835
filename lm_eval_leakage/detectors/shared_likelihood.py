"""Is the published order of a benchmark's questions more likely than other orders, over many shards of it?

A shard is some neighbouring questions as one text, scored in the published order and in random orders.

Null hypothesis: the orders of a shard are exchangeable to a model that has not seen them. Then the published order's
gain over the mean of the others has mean 0, which a one-sided t-test over shards tests, and each of a shard's orders
is equally likely to be the published one, which gives an exact permutation test without a normal approximation: the
sum over shards of exp(standardised score), as for option orders (`stats.order_sum`). Limits: neighbours that refer to
each other (several questions on one passage) break it without leakage, and so do questions sorted by topic, so no
shard spans two subjects; a preference that all shards share, as in a file sorted by length or topic, looks like
leakage (the audit warns of files whose texts reveal their order); a model that was trained on the questions in another
order shows nothing; the verdict is on the data set, since one shard in 26 is flagged by chance. Source: Oren et al.
(arXiv 2310.17623), sharded likelihood comparison with a t-test, a baseline of Yao et al., EMNLP 2024 (arXiv
2406.13236); the permutation test and the verdict on each shard are ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import factorial
from typing import ClassVar

from lm_eval_leakage.detectors import Probe, Statistic, check_counts, check_shares, probes, refuse_repeated, statistics
from lm_eval_leakage.detectors.option_orders import distinct_orders, drawn_orders
from lm_eval_leakage.detectors.tail_answered import margin_and_rank
from lm_eval_leakage.questions.rendering import whole_text
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence, Question, Request, Shard, UntestableQuestion
from lm_eval_leakage.registry import OUTSIDE_ID
from lm_eval_leakage.stats.order_sum import version_sum
from lm_eval_leakage.stats.pooling import FLAGGED_RATE, NULL_RATE_ROW, Verdicts, mean_and_stderr, row_with_error

SEPARATOR = "\n\n"
SHARD_LEVEL = 0.05


@probes.register("example_order")
@dataclass(frozen=True)
class ExampleOrder(Probe):
    """Sends a request for each chosen order of a shard's examples, the published order first.

    The examples are passed as the options of a question.

    shards: number of shards that are tested, evenly spaced over the benchmark (50 in both papers)
    examples: questions per shard; the last ones are left out if they do not fit into the model's window
    permutations: other orders per shard, without repetition. The papers take 250; the mean of 25 has nearly the same
        error at a tenth of the cost, since most of the t-test's noise is between shards.
    tasks_of_group: number of tasks that share `shards`, each having at least one; set by the audit of a group
    """

    shards: int = field(default=50, metadata=OUTSIDE_ID)
    examples: int = 10
    permutations: int = 25
    tasks_of_group: int = field(default=1, metadata=OUTSIDE_ID)

    def __post_init__(self) -> None:
        check_counts(2, shards=self.shards, examples=self.examples)
        check_counts(1, permutations=self.permutations, tasks_of_group=self.tasks_of_group)

    def requests(self, question: Question) -> tuple[Request, ...]:
        examples = question.options
        refuse_repeated(examples, "examples")
        if len(examples) < 2:
            raise UntestableQuestion(f"it has {len(examples)} example(s); an order needs at least 2")
        context = question.stem + SEPARATOR if question.stem else ""
        return tuple(Request(context, SEPARATOR.join(examples[i] for i in order)) for order in self._orders(question))

    def _orders(self, shard: Question) -> Iterator[tuple[int, ...]]:
        n_orders = self.permutations + 1
        if factorial(len(shard.options)) <= n_orders:
            return distinct_orders(shard.options)
        return iter(drawn_orders(shard.options, n_orders, rng=random.Random(shard.id)))

    def of_shards(self, questions: Sequence[Question]) -> list[Shard]:
        whole = []
        for subject, group in groupby(enumerate(questions), key=lambda numbered: numbered[1].subject):
            neighbours = list(group)
            for start in range(0, len(neighbours) - 1, self.examples):
                places, examples = zip(*neighbours[start : start + self.examples], strict=True)
                name = f"{subject} {places[0]}-{places[-1]}".strip()
                whole.append(_shard(name, examples, [example.id for example in examples], subject))
        n_shards = min(-(-self.shards // self.tasks_of_group), len(whole))
        return [whole[(2 * i + 1) * len(whole) // (2 * n_shards)] for i in range(n_shards)]

    def of_places(self, placed: Mapping[int, Question]) -> list[Shard]:
        """Return every shard of a file whose questions a key put in order: places 0 to `examples` - 1, and so on.

        Subjects are ignored, since the key ordered all questions together.

        placed: the questions by their places in the file; a shard with a missing question is left out, which does not
            depend on the order of the others
        """
        shards = []
        for start in range(0, max(placed, default=-1) + 1, self.examples):
            places = range(start, start + self.examples)
            if all(place in placed for place in places):
                examples = [placed[place] for place in places]
                shards.append(_shard(f"{places[0]}-{places[-1]}", examples, map(str, places)))
        return shards


def _shard(name: str, examples: Sequence[Question], members: Iterable[str], subject: str = "") -> Shard:
    return Shard(name, "", tuple(map(published_text, examples)), subject=subject, members=tuple(members))


def published_text(question: Question) -> str:
    """Return the question with its options as published, or alone if there are more options than labels."""
    try:
        return whole_text(question).strip()
    except UntestableQuestion:
        return question.stem.strip()


@dataclass(frozen=True)
class ShardEvidence(Evidence):
    """Records whether the published order of a shard is among its most likely orders.

    flagged: the p-value is at most `level`
    pvalue: rank of the published order over the number of orders; ties rank it lower
    gain: nats by which the published order beats the mean of the others
    n_examples: number of questions of the shard that fitted into the model's window
    loglikelihoods: log-likelihood of the published order, then those of the others, nats
    """

    ranked_by: ClassVar[str] = "gain"
    gain: float
    n_examples: int
    loglikelihoods: tuple[float, ...]


def _shards(verdicts: Verdicts) -> list[ShardEvidence]:
    return [verdict for verdict in verdicts if isinstance(verdict, ShardEvidence)]


def _gains(verdicts: Verdicts) -> list[float]:
    return [shard.gain for shard in _shards(verdicts)]


ORDER_ROWS = (
    row_with_error(
        "order_gain",
        "Nats by which a shard's published order beats the mean of other orders; mean over shards.",
        lambda verdicts: mean_and_stderr(_gains(verdicts)),
        higher_is_better=False,
    ),
    DeclaredRow(
        "ttest_pvalue",
        "One-sided t-test over shards that `order_gain` is above 0 (Oren et al., 2023); invalid for sorted questions.",
        lambda verdicts: ttest_pvalue(_gains(verdicts)),
    ),
    DeclaredRow(
        "permutation_pvalue",
        "Permutation test: probability, without leakage, of a sum over shards at least as high (exact, unless the "
        "questions are sorted: then every model may prefer their order).",
        lambda verdicts: version_sum([shard.loglikelihoods for shard in _shards(verdicts)]).pvalue,
    ),
)


@statistics.register("shared_likelihood")
@dataclass(frozen=True)
class SharedLikelihood(Statistic):
    """Compares the published order of each shard with its other orders.

    level: a shard is flagged at this p-value or below
    """

    probe: ClassVar[str] = "example_order"
    # no row about guards, which apply to single questions
    rows: ClassVar[tuple[DeclaredRow, ...]] = (*ORDER_ROWS, FLAGGED_RATE, NULL_RATE_ROW)
    level: float = SHARD_LEVEL

    def __post_init__(self) -> None:
        check_shares(level=self.level)

    def verdict(self, question: Answered) -> ShardEvidence:
        published, *others = question.answers
        n_orders = len(question.answers)
        rank = margin_and_rank(question.answers, 0)[1]
        highest_flagged = math.floor(self.level * n_orders + 1e-9)
        return ShardEvidence(
            rank <= highest_flagged,
            rank / n_orders,
            highest_flagged / n_orders,
            published - math.fsum(others) / len(others),
            len(question.question.options),
            question.answers,
        )


def ttest_pvalue(gains: Sequence[float]) -> float:
    """Return the one-sided p-value of a t-test that the mean gain of the shards is above 0; NaN if undefined."""
    if len(gains) < 2 or len(set(gains)) == 1:
        return math.nan
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(gains, 0.0, alternative="greater").pvalue)
