"""The question with its options up to a label; the model is to write the next option ("n-gram").

Null hypothesis: none that gives a rate; options that follow a template are reproduced without leakage, so the rate
at which a completion matches another option of the question is reported as a control. Limits: needs generation; does
not recognise paraphrases. Source: Hidayat et al., 2025 (arXiv 2505.24263), "n-gram".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.probes.letters import up_to_label
from lm_eval_leakage.questions.rendering import option_format
from lm_eval_leakage.records import Question, Request, UntestableQuestion


@probes.register("option_completions")
@dataclass(frozen=True)
class OptionCompletions(Probe):
    """Request k: everything up to the label of option k, with the published options before it; its continuation
    is option k, which a model that memorised the benchmark writes.

    format: as in `option_orders`
    """

    needs: ClassVar[str] = "generate_until"
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        if len(question.options) < 2:
            raise UntestableQuestion(f"it has {len(question.options)} option(s); at least 2 are needed")
        return tuple(
            Request(up_to_label(question, place, self.format), option) for place, option in enumerate(question.options)
        )
