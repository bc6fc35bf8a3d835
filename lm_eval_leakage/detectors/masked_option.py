"""Does the model write an option that is hidden from it, word for word (guided prompting)?

The model gets the question with one option masked, and the benchmark's name. Its reply is compared by exact match,
ROUGE-L and, optionally, the opinion of a judge model. Null hypothesis: none that gives a rate; an option that the
others imply can be guessed without leakage, and a wrong option is hidden, since a right one can be worked out. Limits:
needs a model that follows instructions; a judge can be wrong, so read some of its replies in the samples log. Source:
Golchin and Surdeanu (arXiv 2308.08493), whose judge is a chat model, in the form that Yao et al., EMNLP 2024 (arXiv
2406.13236) use for options; the wording is ours, and exact match and ROUGE-L are our default, since they need no
second model and are reproducible.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lm_eval_leakage.detectors import (
    Probe,
    Statistic,
    check_choice,
    check_template,
    filled,
    probes,
    refuse_few_options,
    statistics,
)
from lm_eval_leakage.detectors.completions import rouge_l
from lm_eval_leakage.questions.rendering import first_line, frame_of
from lm_eval_leakage.records import Answered, DeclaredRow, Measurement, Question, Request, UntestableQuestion
from lm_eval_leakage.registry import OUTSIDE_ID
from lm_eval_leakage.stats.pooling import mean_row

INSTRUCTION = """\
Below is a question of the test set of {{ benchmark }}, with one of its options hidden as {{ mask }}.
Write the hidden option exactly as the data set has it, and nothing else.

{{ question }}

Hidden option:"""
MASK = "[MASK]"
HIDDEN_KINDS = ("wrong", "right", "any")  # which option may be hidden
JUDGE_PROMPT = """\
Two texts stand for the same answer option of a multiple-choice question. Do they mean the same?

Question: {{ question }}
Published option: {{ option }}
Text to judge: {{ written }}

Reply with one word, Yes or No."""

JudgeModel = Callable[[Sequence[str]], Sequence[str | None]]  # from prompts to replies; None for a lost one


@probes.register("masked_option")
@dataclass(frozen=True)
class MaskedOption(Probe):
    """Sends one request, the question with an option hidden; the expected continuation is the hidden option.

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
        check_choice("hides", self.hides, HIDDEN_KINDS)
        check_template("instruction", self.instruction, "benchmark", "mask", "question")

    def requests(self, question: Question) -> tuple[Request, ...]:
        refuse_few_options(question)
        hidden = self.hidden_place(question)
        frame = frame_of(question)
        shown = [MASK if place == hidden else option for place, option in enumerate(question.options)]
        text = frame.before + frame.block(shown)
        prompt = filled(self.instruction, benchmark=self.benchmark, mask=MASK, question=text)
        return (Request(prompt, f" {question.options[hidden].strip()}"),)

    def hidden_place(self, question: Question) -> int:
        """Return the index of the option that is hidden; deterministic for a given question."""
        if self.hides == "right":
            if question.answer is None:
                raise UntestableQuestion(
                    "its right answer is not known, or it has several, so hides=right cannot hide it"
                )
            return question.answer
        places = range(len(question.options))
        candidates = [place for place in places if self.hides == "any" or place != question.answer]
        return random.Random(question.id).choice(candidates)


@dataclass(frozen=True)
class MaskedMeasurement(Measurement):
    """Records whether the model wrote the hidden option.

    exact: whether the text written is the hidden option, ignoring white space, case and a final full stop
    rouge: ROUGE-L F-measure of the two
    judged: whether the judge model finds that they mean the same; None without a judge model, or if its reply has no
        yes or no
    judge_reply: the judge model's reply; None without one
    """

    ranks_by: ClassVar[tuple[str, ...]] = ("rouge",)

    exact: bool
    rouge: float
    judged: bool | None = None
    judge_reply: str | None = None

    @property
    def flagged(self) -> bool:
        return self.exact if self.judged is None else self.judged


@statistics.register("masked_option")
@dataclass(frozen=True)
class MaskedOptionWritten(Statistic):
    """Compares the hidden option with the first non-empty line that the model wrote.

    judge_model: name of a harness model that says for each question whether both texts mean the same, such as
        local-chat-completions; None for no judge
    judge_args: its arguments, in the syntax of --model_args
    judge_prompt: Jinja template of `question`, `option` and `written` that asks for Yes or No
    loaded_judge: that model, once it is loaded
    """

    probe: ClassVar[str] = "masked_option"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row("exact_rate", "Whether the model writes the hidden option exactly", "exact", higher_is_better=False),
        mean_row("rouge", "ROUGE-L F of the hidden option and what the model writes", higher_is_better=False),
        mean_row(
            "judged_rate",
            "Whether a judge says that the two mean the same; undefined without `judge_model`",
            "judged",
            higher_is_better=False,
        ),
    )

    judge_model: str | None = None
    judge_args: str = ""
    judge_prompt: str = JUDGE_PROMPT
    loaded_judge: JudgeModel | None = field(default=None, compare=False, repr=False, metadata=OUTSIDE_ID)

    def __post_init__(self) -> None:
        check_template("judge_prompt", self.judge_prompt, "question", "option", "written")

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[MaskedMeasurement]:
        hidden_options = [question.requests[0].continuation.strip() for question in answered]
        written = [first_line(question.texts[0]) for question in answered]
        replies: Sequence[str | None] = [None] * len(answered)
        if self.loaded_judge is not None and answered:
            prompts = []
            for question, option, text in zip(answered, hidden_options, written, strict=True):
                stem = question.question.stem
                prompts.append(filled(self.judge_prompt, question=stem, option=option, written=text))
            replies = self.loaded_judge(prompts)
        return [
            MaskedMeasurement(
                exact=_normalised(option) == _normalised(text),
                rouge=rouge_l(option, text),
                judged=is_yes(reply),
                judge_reply=reply,
            )
            for option, text, reply in zip(hidden_options, written, replies, strict=True)
        ]


def is_yes(reply: str | None) -> bool | None:
    """Return whether the last yes or no in a reply, after any reasoning, is a yes; None if it has neither."""
    words = re.findall(r"\b(yes|no)\b", (reply or "").casefold())
    return words[-1] == "yes" if words else None


def _normalised(text: str) -> str:
    """Return the text without the differences that an exact match ignores."""
    return " ".join(text.casefold().split()).rstrip(".。")
