"""Ordered pairs of a question's options, as if it had only two: n(n-1) short texts instead of n! long ones.

Null hypothesis: which of two options comes first makes no difference to a model that has not seen them in the
published order. Limits: the published statistic compares texts of different words, so that short options win; the
like-for-like statistic compares a pair with its own reverse. Natural orders break the null hypothesis as they do for
whole orders. Source: Hidayat et al., 2025 (arXiv 2505.24263), "permutation-Q".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.questions.rendering import option_block, option_format, stem_text
from lm_eval_leakage.records import Question, Request, UntestableQuestion


@probes.register("option_pairs")
@dataclass(frozen=True)
class OptionPairs(Probe):
    """Context = the question, continuation = two options; request 0 is the first two in the published order.

    format: "usual" ("A. ") or "papers" ("question:" and "A:")
    """

    format: str = "usual"

    def __post_init__(self) -> None:
        option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        options = [option.strip() for option in question.options]
        if len(options) < 2:
            raise UntestableQuestion(f"it has {len(options)} option(s); at least 2 are needed")
        if len(set(options)) < len(options):
            raise UntestableQuestion(
                "two of its options are identical, so a pair of them reads the same in both orders"
            )
        style = option_format(self.format)
        context = stem_text(question, style)
        return tuple(
            Request(context, option_block([question.options[i], question.options[j]], style))
            for i, j in permutations(range(len(options)), 2)
        )
