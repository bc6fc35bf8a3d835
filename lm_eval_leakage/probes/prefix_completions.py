"""The published text cut off at several places; the model is to continue it.

Null hypothesis: none that gives a rate; common phrases are continued without leakage. Limits: needs generation;
the rate by chance depends on the text. Source: Xu et al. (arXiv 2404.18824), n-gram accuracy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.questions.rendering import context_and_block
from lm_eval_leakage.records import Question, Request, UntestableQuestion


@probes.register("prefix_completions")
@dataclass(frozen=True)
class PrefixCompletions(Probe):
    """Requests: question and options up to each of `starts` equally spaced words; the continuation is the rest.

    starts: number of places where the text is cut off
    n: number of tokens that the model writes at each
    """

    needs: ClassVar[str] = "generate_until"
    starts: int = 5  # Xu et al.
    n: int = 5  # Xu et al.

    def __post_init__(self) -> None:
        for name, value in (("starts", self.starts), ("n", self.n)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1")

    def requests(self, question: Question) -> tuple[Request, ...]:
        context, block = context_and_block(question)
        text = context + block(question.options)
        ends = [word.end() for word in re.finditer(r"\S+", text)]
        if len(ends) <= self.starts:
            raise UntestableQuestion(f"its text has {len(ends)} words; more than {self.starts} starts are needed")
        chosen = [ends[round(start * len(ends) / (self.starts + 1)) - 1] for start in range(1, self.starts + 1)]
        return tuple(Request(text[:end], text[end:]) for end in chosen)

    def n_tokens(self, request: Request) -> int | None:
        return self.n
