"""The question with its options as published, as one text in which every token is scored.

Null hypothesis: none; a text's likelihood has no expected value. Limits: domain, style and length affect every score,
so scores mean something only next to those of known-unseen questions; needs a backend that gives the full next-token
distribution. Source: Shi et al. (arXiv 2310.16789), Zhang et al. (arXiv
2404.02936).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.questions.rendering import context_and_block, option_format
from lm_eval_leakage.records import Question, Request, UntestableQuestion


@probes.register("published_text")
@dataclass(frozen=True)
class PublishedText(Probe):
    """One request: the whole text; it has no context.

    format: as in `option_orders`
    """

    needs: ClassVar[str] = "token_scores"
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        if not question.options:
            raise UntestableQuestion("it has no options")
        context, block = context_and_block(question, self.format)
        return (Request("", context + block(question.options)),)
