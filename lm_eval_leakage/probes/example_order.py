"""Neighbouring questions of the benchmark (a shard) as one text, in the published order and in random orders.

Null hypothesis: the order in which a benchmark lists its questions makes no difference to a model that has not seen
it. Limits: neighbours that refer to each other (several questions on one passage) break it without leakage, and so do
questions sorted by topic, so no shard spans two subjects; a model that was trained on the questions in another order
shows nothing. Source: Oren et al. (arXiv 2310.17623), sharded likelihood comparison, a baseline of
Yao et al., EMNLP 2024 (arXiv 2406.13236).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from math import factorial

from lm_eval_leakage.detector_ids import OUTSIDE_ID
from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.probes.option_orders import distinct_orders, drawn_orders
from lm_eval_leakage.questions.rendering import context_and_block
from lm_eval_leakage.records import Question, Request, Shard, UntestableQuestion

BETWEEN = "\n\n"


@probes.register("example_order")
@dataclass(frozen=True)
class ExampleOrder(Probe):
    """A shard's examples are passed as the options of a question; request 0 is their published order.

    shards: how many shards are tested, evenly spaced over the benchmark (50 in both papers)
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
        for one in fields(self):
            value, least = getattr(self, one.name), 2 if one.name in ("shards", "examples") else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{one.name} is {value!r}; it must be a whole number of at least {least}")

    def requests(self, question: Question) -> tuple[Request, ...]:
        examples = question.options
        if len(set(examples)) < len(examples):
            raise UntestableQuestion(
                "two of its examples are identical, so some orders of them cannot be distinguished"
            )
        if len(examples) < 2:
            raise UntestableQuestion(f"it has {len(examples)} example(s); an order needs at least 2")
        context = question.stem + BETWEEN if question.stem else ""
        return tuple(Request(context, BETWEEN.join(examples[i] for i in order)) for order in self._orders(question))

    def _orders(self, shard: Question) -> Iterator[tuple[int, ...]]:
        n_orders = self.permutations + 1
        if factorial(len(shard.options)) <= n_orders:
            return distinct_orders(shard.options)
        return iter(drawn_orders(shard.options, n_orders, rng=random.Random(shard.id)))

    def of_shards(self, questions: Sequence[Question]) -> list[Shard]:
        whole = [
            shard
            for _, neighbours in groupby(enumerate(questions), key=lambda numbered: numbered[1].subject)
            for shard in self._cut(list(neighbours))
        ]
        n_shards = min(-(-self.shards // self.tasks_of_group), len(whole))
        return [whole[(2 * i + 1) * len(whole) // (2 * n_shards)] for i in range(n_shards)]

    def of_places(self, placed: Mapping[int, Question]) -> list[Shard]:
        """Every shard of a file whose questions were put in order by a key: places 0 to `examples` - 1, and so on.

        placed: the questions by their places in the file; a shard with a missing question is left out, which says
            nothing about the order of the others

        Subjects are ignored, since the key ordered all questions together.
        """
        shards = []
        for start in range(0, max(placed, default=-1) + 1, self.examples):
            places = range(start, start + self.examples)
            if all(place in placed for place in places):
                texts = tuple(published_text(placed[place]) for place in places)
                members = tuple(map(str, places))
                shards.append(Shard(f"{places[0]}-{places[-1]}", "", texts, members=members))
        return shards

    def _cut(self, neighbours: Sequence[tuple[int, Question]]) -> Iterator[Shard]:
        for start in range(0, len(neighbours) - 1, self.examples):
            places, examples = zip(*neighbours[start : start + self.examples], strict=True)
            texts = tuple(published_text(question) for question in examples)
            if len(texts) > 1:
                name = f"{examples[0].subject} {places[0]}-{places[-1]}".strip()
                yield Shard(name, "", texts, subject=examples[0].subject, members=tuple(q.id for q in examples))


def published_text(question: Question) -> str:
    """The question with its options as published, or the question alone if there are more options than labels."""
    context, block = context_and_block(question)
    try:
        return (context + block(question.options)).strip()
    except UntestableQuestion:
        return context.strip()
