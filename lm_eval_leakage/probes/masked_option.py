"""Guided prompting: the question with one option masked, and the benchmark's name; the model is to write the option.

Null hypothesis: none that gives a rate; an option that the others imply can be guessed without leakage. Limits: needs
generation, and a model that follows instructions; a wrong option is hidden, since a right one can be worked out.
Source: Golchin and Surdeanu (arXiv 2308.08493), guided prompting, in the form that Yao et al., EMNLP 2024 (arXiv
2406.13236) use for options; the wording is ours.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import ClassVar

from jinja2 import Environment, StrictUndefined, TemplateError

from lm_eval_leakage.detector_ids import OUTSIDE_ID
from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.questions.rendering import context_and_block
from lm_eval_leakage.records import Question, Request, UntestableQuestion

INSTRUCTION = """\
Below is a question of the test set of {{ benchmark }}, with one of its options hidden as {{ mask }}.
Write the hidden option exactly as the data set has it, and nothing else.

{{ question }}

Hidden option:"""
MASK = "[MASK]"
HIDES = ("wrong", "right", "any")


@probes.register("masked_option")
@dataclass(frozen=True)
class MaskedOption(Probe):
    """One request; its continuation is the hidden option.

    benchmark: the benchmark's name in the prompt
    hides: which option is hidden: a "wrong" one (any if the answer is not known), the "right" one, or "any"; drawn
        with the question's id as seed
    instruction: Jinja template of `benchmark`, `mask` and `question`, the text with the mask in place of the option
    """

    needs: ClassVar[str] = "generate_until"
    benchmark: str = field(default="a benchmark", metadata=OUTSIDE_ID)  # set from the task's name
    hides: str = "wrong"
    instruction: str = INSTRUCTION

    def __post_init__(self) -> None:
        if self.hides not in HIDES:
            raise ValueError(f"hides is {self.hides!r}; choose one of: {', '.join(HIDES)}")
        try:
            self._instructed("")
        except TemplateError as error:
            raise ValueError(
                f"instruction is {self.instruction!r}, which cannot be rendered ({error}); its variables are "
                "benchmark, mask and question"
            ) from error

    def requests(self, question: Question) -> tuple[Request, ...]:
        if len(question.options) < 2:
            raise UntestableQuestion(f"it has {len(question.options)} option(s); at least 2 are needed")
        hidden = self.hidden(question)
        before, block = context_and_block(question)
        shown = [MASK if place == hidden else option for place, option in enumerate(question.options)]
        return (Request(self._instructed(before + block(shown)), f" {question.options[hidden].strip()}"),)

    def hidden(self, question: Question) -> int:
        """Index of the option that is hidden; deterministic for a given question."""
        places = range(len(question.options))
        if self.hides == "right":
            if question.answer is None:
                raise UntestableQuestion("its right answer is not known, so hides=right cannot hide it")
            return question.answer
        wrong = [place for place in places if self.hides == "any" or place != question.answer]
        return random.Random(question.id).choice(wrong)

    def _instructed(self, question: str) -> str:
        template = Environment(undefined=StrictUndefined).from_string(self.instruction)
        return template.render(benchmark=self.benchmark, mask=MASK, question=question)
