"""Probes: which texts to ask a model about. One module each, found by its registered name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from lm_eval_leakage.records import Question, Request, Shard
from lm_eval_leakage.registry import Registry


class Probe(ABC):
    """A frozen dataclass whose fields are the probe's parameters, settable from a task's `metadata`.

    needs: what a backend must be able to do, by the name of its method: loglikelihood; generate_until, where a
        request's continuation is what is hoped for; or token_scores, of every token under the model's own distribution
    """

    needs: ClassVar[str] = "loglikelihood"

    @abstractmethod
    def requests(self, question: Question) -> tuple[Request, ...]:
        """The texts about one question, the published wording first; the same for the same question.

        Raises UntestableQuestion, with the reason, for a question that the probe cannot ask about.
        """

    def with_pool(self, questions: Callable[[], Sequence[Question]]) -> Probe:
        """The probe with all questions of the benchmark at hand, for those that need others than the one asked."""
        return self

    def of_shards(self, questions: Sequence[Question]) -> Sequence[Shard] | None:
        """What is asked about by a probe of neighbours in the benchmark; None for a probe of single questions.

        questions: all of the benchmark, in its order
        """
        return None

    def gold(self, question: Question) -> tuple[int, ...]:
        """Place of the right option in each list of options that is shown, for probes that show several."""
        return ()

    def n_tokens(self, request: Request) -> int | None:
        """How many tokens to generate; None for those of the hoped-for continuation and one more."""
        return None


probes: Registry[type[Probe]] = Registry("probe", __name__)
