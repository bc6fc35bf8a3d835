"""Which of the remaining options does the model expect next? The n-gram method by log-likelihood, without generation.

Null hypothesis: the options are in random order, so that at each step every remaining option is equally likely to
be the published one. Limits: natural orders break it as they do for whole orders. Source: ours, after the n-gram
method of Hidayat et al., 2025 (arXiv 2505.24263).
"""

from __future__ import annotations

from dataclasses import dataclass

from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.probes.letters import up_to_label
from lm_eval_leakage.questions.rendering import option_format
from lm_eval_leakage.records import Question, Request, UntestableQuestion


@probes.register("option_steps")
@dataclass(frozen=True)
class OptionSteps(Probe):
    """For every place but the last: each option published there or later, after the published options before it and
    the label of the place; the published one first. n(n+1)/2 - 1 requests.

    format: as in `option_orders`
    """

    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        options = question.options
        if len(options) < 2:
            raise UntestableQuestion(f"it has {len(options)} option(s); at least 2 are needed")
        if len({option.strip() for option in options}) < len(options):
            raise UntestableQuestion("two of its options are identical and cannot be distinguished")
        before = [up_to_label(question, place, self.format) for place in range(len(options) - 1)]
        return tuple(
            Request(text, f" {option.strip()}\n") for place, text in enumerate(before) for option in options[place:]
        )
