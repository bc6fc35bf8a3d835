"""Does the model, when it generates, write the published options or text?

Reproduction: the model gets the question with its options up to a label, to write the next option; or the published
text cut off at several places, to continue it. Null hypothesis: none that gives a rate. For options, the rate at which
completions match the next option of the question instead of their own is the control: the rate due to templates and
shared words. Limits: paraphrases are not recognised; common phrases and options that follow a template are reproduced
without leakage. Source: "n-gram" of Hidayat et al., 2025 (arXiv 2505.24263): an option is reproduced if its ROUGE-L is
above 0.75, and a question is flagged if a share of at least T = 0.25 of its options is; n-gram accuracy of Xu et al.
(arXiv 2404.18824).

Guided prompting: the model gets the question with one option masked, and the benchmark's name. Its reply is compared
by exact match, ROUGE-L and, optionally, the opinion of a judge model. Null hypothesis: none that gives a rate; an
option that the others imply can be guessed without leakage, and a wrong option is hidden, since a right one can be
worked out. Limits: needs a model that follows instructions; a judge can be wrong, so read some of its replies in the
samples log. Source: Golchin and Surdeanu (arXiv 2308.08493), whose judge is a chat model, in the form that Yao et al.,
EMNLP 2024 (arXiv 2406.13236) use for options; the wording is ours, and exact match and ROUGE-L are our default, since
they need no second model and are reproducible.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from lm_eval_leakage.detectors import (
    Probe,
    Statistic,
    check_choice,
    check_counts,
    check_shares,
    check_template,
    filled,
    probes,
    refuse_few_options,
    statistics,
)
from lm_eval_leakage.questions.rendering import first_line, frame_of, option_format, up_to_label, whole_text
from lm_eval_leakage.records import Answered, DeclaredRow, Measurement, Question, Request, UntestableQuestion
from lm_eval_leakage.registry import OUTSIDE_ID
from lm_eval_leakage.stats.pooling import mean_row

ROUGE_L = 0.75  # Hidayat et al. (2025)
LEAST_SHARE = 0.25  # Hidayat et al. (2025), T: one of four options
INSTRUCTION = """\
Below is a question of the test set of {{ benchmark }}, with one of its options hidden as {{ mask }}.
Write the hidden option exactly as the data set has it, and nothing else.

{{ question }}

Hidden option:"""
MASK = "[MASK]"
HIDES = ("wrong", "right", "any")
JudgeModel = Callable[[Sequence[str]], Sequence[str | None]]  # from prompts to replies
JUDGE_PROMPT = """\
Two texts stand for the same answer option of a multiple-choice question. Do they mean the same?

Question: {{ question }}
Published option: {{ option }}
Text to judge: {{ written }}

Reply with one word, Yes or No."""


@probes.register("option_completions")
@dataclass(frozen=True)
class OptionCompletions(Probe):
    """Sends a request for each option: everything up to its label, with the published options before it.

    The continuation is the option, which a model that memorised the benchmark writes.

    format: as in `option_orders`
    """

    needs: ClassVar[str] = "generate_until"
    format: str | None = None

    def __post_init__(self) -> None:
        option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        refuse_few_options(question)
        return tuple(
            Request(up_to_label(question, place, self.format).rstrip(), option)
            for place, option in enumerate(question.options)
        )


@probes.register("prefix_completions")
@dataclass(frozen=True)
class PrefixCompletions(Probe):
    """Sends the question and its options up to each of `starts` equally spaced words; the continuation is the rest.

    starts: number of places where the text is cut off
    n: number of tokens that the model writes at each
    """

    needs: ClassVar[str] = "generate_until"
    starts: int = 5  # Xu et al.
    n: int = 5  # Xu et al.

    def __post_init__(self) -> None:
        check_counts(1, starts=self.starts, n=self.n)

    def requests(self, question: Question) -> tuple[Request, ...]:
        text = whole_text(question)
        ends = [word.end() for word in re.finditer(r"\S+", text)]
        if len(ends) <= self.starts:
            raise UntestableQuestion(f"its text has {len(ends)} words; more than {self.starts} starts are needed")
        chosen = [ends[round(start * len(ends) / (self.starts + 1)) - 1] for start in range(1, self.starts + 1)]
        return tuple(Request(text[:end], text[end:]) for end in chosen)

    def n_tokens(self, request: Request) -> int | None:
        return self.n


@dataclass(frozen=True)
class ReproductionMeasurement(Measurement):
    """Records how many of a question's options the model reproduced.

    reproduced: whether the hit rate is at least LEAST_SHARE
    control: the same if each completion is compared with the option after its own
    hit_rate: share of the options that are reproduced
    mean_rouge, best_rouge: mean and highest ROUGE-L F-measure of a completion and its option
    """

    ranks_by: ClassVar[tuple[str, ...]] = ("mean_rouge", "best_rouge")

    reproduced: bool
    control: bool
    hit_rate: float
    mean_rouge: float
    best_rouge: float

    @property
    def flagged(self) -> bool:
        return self.reproduced


@statistics.register("reproduction")
@dataclass(frozen=True)
class Reproduction(Statistic):
    """Compares each completion with its option, by ROUGE-L.

    rouge: a completion with a ROUGE-L F-measure above this is a hit
    share: share of the options that must be hit for a question to count as reproduced; the paper's T
    """

    probe: ClassVar[str] = "option_completions"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row(
            "reproduced_rate",
            "Whether the model reproduces at least a share T of the options",
            "reproduced",
            higher_is_better=False,
        ),
        mean_row(
            "control_rate",
            "The same with completions compared with the next option: the rate due to shared words",
            "control",
        ),
    )

    rouge: float = ROUGE_L
    share: float = LEAST_SHARE

    def __post_init__(self) -> None:
        check_shares(rouge=self.rouge, share=self.share)

    def verdict(self, question: Answered) -> ReproductionMeasurement:
        options, texts = question.question.options, question.texts
        scores = list(map(rouge_l, options, texts))
        shifted = list(map(rouge_l, (*options[1:], options[0]), texts))
        hits = sum(score > self.rouge for score in scores) / len(options)
        controls = sum(score > self.rouge for score in shifted) / len(options)
        mean = sum(scores) / len(options)
        return ReproductionMeasurement(hits >= self.share, controls >= self.share, hits, mean, max(scores))


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # imports nltk and scikit-learn, which takes over a second

    return RougeScorer(["rougeL"], use_stemmer=True)


def rouge_l(option: str, completion: str) -> float:
    """Return the ROUGE-L F-measure of an option and the completion written for it, with stemming.

    The scorer ignores everything but Latin letters and digits. For an option without any, the result is 1 if the
    completion begins with the option, else 0.
    """
    if not _scorer()._tokenizer.tokenize(option):
        return float(bool(option.strip()) and completion.strip().startswith(option.strip()))
    return float(_scorer().score(option, completion)["rougeL"].fmeasure)


@dataclass(frozen=True)
class NgramMeasurement(Measurement):
    """Records how often the model continued the published text.

    ngram_accuracy: share of the places where the model writes exactly the continuation of the text
    """

    ranks_by: ClassVar[tuple[str, ...]] = ("ngram_accuracy",)
    ngram_accuracy: float


@statistics.register("ngram_accuracy")
@dataclass(frozen=True)
class NgramAccuracy(Statistic):
    """Counts the places where the model writes exactly the continuation of the published text."""

    probe: ClassVar[str] = "prefix_completions"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row(
            "ngram_accuracy",
            "Share of places where the model writes exactly the continuation of the published text",
            higher_is_better=False,
        ),
    )

    def verdict(self, question: Answered) -> NgramMeasurement:
        matches = [
            bool(text.strip()) and request.continuation.strip().startswith(text.strip())
            for request, text in zip(question.requests, question.texts, strict=True)
        ]
        return NgramMeasurement(sum(matches) / len(matches))


# ---------------------------------------------------------------------- guided prompting


@probes.register("masked_option")
@dataclass(frozen=True)
class MaskedOption(Probe):
    """Sends one request, the question with an option hidden; the continuation is the hidden option.

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
        check_choice("hides", self.hides, HIDES)
        check_template("instruction", self.instruction, "benchmark", "mask", "question")

    def requests(self, question: Question) -> tuple[Request, ...]:
        refuse_few_options(question)
        hidden = self.hidden(question)
        frame = frame_of(question)
        shown = [MASK if place == hidden else option for place, option in enumerate(question.options)]
        text = frame.before + frame.block(shown)
        prompt = filled(self.instruction, benchmark=self.benchmark, mask=MASK, question=text)
        return (Request(prompt, f" {question.options[hidden].strip()}"),)

    def hidden(self, question: Question) -> int:
        """Return the index of the option that is hidden; deterministic for a given question."""
        places = range(len(question.options))
        if self.hides == "right":
            if question.answer is None:
                raise UntestableQuestion(
                    "its right answer is not known, or it has several, so hides=right cannot hide it"
                )
            return question.answer
        wrong = [place for place in places if self.hides == "any" or place != question.answer]
        return random.Random(question.id).choice(wrong)


@dataclass(frozen=True)
class MaskedMeasurement(Measurement):
    """Records whether the model wrote the hidden option.

    exact: the text written is the hidden option, ignoring white space, case and a final full stop
    rouge: ROUGE-L F-measure of the two
    judged: whether the judge says that they mean the same; None without a judge, or if its reply has no yes or no
    judge_reply: the judge's reply
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
    ask: the loaded judge
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
    ask: JudgeModel | None = field(default=None, compare=False, repr=False, metadata=OUTSIDE_ID)

    def __post_init__(self) -> None:
        check_template("judge_prompt", self.judge_prompt, "question", "option", "written")

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[MaskedMeasurement]:
        options = [question.requests[0].continuation.strip() for question in answered]
        written = [first_line(question.texts[0]) for question in answered]
        replies: Sequence[str | None] = [None] * len(answered)
        if self.ask is not None and answered:
            stems = [question.question.stem for question in answered]
            texts = zip(stems, options, written, strict=True)
            replies = self.ask(
                [filled(self.judge_prompt, question=stem, option=option, written=text) for stem, option, text in texts]
            )
        return [
            MaskedMeasurement(_plain(option) == _plain(text), rouge_l(option, text), opinion(reply), reply)
            for option, text, reply in zip(options, written, replies, strict=True)
        ]


def opinion(reply: str | None) -> bool | None:
    """Return whether the last yes or no in a reply, after any reasoning, is a yes; None if there is neither."""
    words = re.findall(r"\b(yes|no)\b", (reply or "").casefold())
    return words[-1] == "yes" if words else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".。")
