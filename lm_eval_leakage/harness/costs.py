"""What runs of tasks and audits will ask: requests and tokens, counted with a tokenizer and without a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from lm_eval.evaluator_utils import get_sample_size

from lm_eval_leakage.harness.models.question_requests import n_characters
from lm_eval_leakage.harness.models.request_tokens import (
    ALONE,
    AS_TREE,
    IN_BLOCKS,
    MERGED,
    READ_BY,
    SCORED,
    TokenizerOnly,
    n_generated,
    read_by,
    size_estimated,
    tokens_of,
)
from lm_eval_leakage.harness.seams.tasks import all_docs
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.harness.tasks.given_questions import NO_METADATA
from lm_eval_leakage.harness.tasks.task import LeakageTask, drawn
from lm_eval_leakage.questions.prompt_parser import texts_in
from lm_eval_leakage.records import UntestableQuestion
from lm_eval_leakage.results.formatting import DASH, about, count, counted, duration, markdown_of
from lm_eval_leakage.scoring.prefix_tree import ENGINE_BLOCK, Lengths, TokenEstimate, together

ROWS_MEASURED = 60  # drawn at random; the rest is taken to be like them


@dataclass(frozen=True)
class RunSize:
    """What is asked about `n_questions` questions, estimated from some of them.

    method: the method of the model that answers
    tokens: of the texts, with the number of requests
    n_generated: the most tokens that are generated
    n_characters: of the texts
    untestable: questions that cannot be asked, by reason
    """

    method: str
    tokens: TokenEstimate
    n_generated: int
    n_characters: int
    untestable: Counter[str]

    @property
    def n_requests(self) -> int:
        return self.tokens.counts.n_texts

    def n_read(self, model: str) -> int:
        """Tokens that the backend reads."""
        return read_by(model, self.tokens.counts)


def needs_of(task: Any) -> str:
    """The method of the model that answers a task's requests."""
    if isinstance(task, LeakageTask):
        return str(task.probe.needs)
    method = str(task.OUTPUT_TYPE)
    return method if method in ("generate_until", "loglikelihood_rolling") else "loglikelihood"


def row_lengths(task: Any, row: int) -> tuple[int, int]:
    """Characters of a question and of its options; of all texts in the row if it is not read as a question."""
    doc = task.eval_docs[row]
    if isinstance(task, LeakageTask):
        try:
            question = task.question(doc)
        except UntestableQuestion:
            return 0, 0
        return len(question.stem), sum(map(len, question.options))
    return sum(map(len, texts_in(doc))), 0


def size_of_chosen(
    leaves: Mapping[str, Any],
    samples: Mapping[str, Sequence[int]],
    tokenizer: TokenizerOnly | None,
    chat_template: bool | str,
) -> RunSize:
    """Of the chosen questions of these tasks, estimated from some of them.

    samples: indices of the chosen questions by task
    """
    rows = [(leaves[name], row) for name, own in samples.items() for row in own]
    if tokenizer is not None:
        for task in leaves.values():
            prepare_to_count(task, tokenizer)
    chat = tokenizer.apply_chat_template if tokenizer is not None and chat_template else None
    return size_of(drawn(rows, ROWS_MEASURED, 0), len(rows), tokenizer, chat)


def size_of(
    rows: Iterable[tuple[Any, int]],
    n_questions: int,
    tokenizer: Any = None,
    chat: Callable[..., str] | None = None,
    mean_lengths: Sequence[float] | None = None,
) -> RunSize:
    """rows: the questions that are measured, as task and index, drawn at random from the `n_questions` that are asked
    tokenizer: a model, or a stand-in for one, whose tokenizer is used; None takes four bytes for a token
    chat: a model's chat template, if it is applied
    mean_lengths: those of `row_lengths` over all questions, if they are known
    """
    lengths, seen = [], set[int]()
    method, texts, reasons, n_written, n_long = "", [], Counter[str](), 0, 0
    for task, row in rows:
        method, asked = needs_of(task), _asked(task, row, chat)
        if reason := _why_not_asked(asked):
            reasons[reason] += 1
            asked = []
        requests = _not_yet_sent(task, [one.args for one in asked], seen)
        texts.append(tokens_of(tokenizer, method, requests))
        n_written += sum(map(n_generated, requests))
        n_long += sum(map(n_characters, requests))
        lengths.append(row_lengths(task, row) if mean_lengths is not None else ())
    scale = n_questions / max(1, len(texts))
    return RunSize(
        method,
        size_estimated(method, texts, n_questions, None if mean_lengths is None else Lengths(lengths, mean_lengths)),
        round(scale * n_written),
        round(scale * n_long),
        Counter({reason: round(scale * n) for reason, n in reasons.items()}),
    )


def size_together(sizes: Sequence[RunSize]) -> RunSize:
    """Of several tasks, which share no texts."""
    return RunSize(
        sizes[0].method,
        together([one.tokens for one in sizes]),
        sum(one.n_generated for one in sizes),
        sum(one.n_characters for one in sizes),
        sum((one.untestable for one in sizes), Counter()),
    )


def _not_yet_sent(task: Any, requests: Sequence[tuple[Any, ...]], seen: set[int]) -> list[tuple[Any, ...]]:
    """Of our own tasks, equal requests are sent once, also those about different questions.

    seen: hashes of all requests so far, to which these are added
    """
    if not isinstance(task, LeakageTask):
        return [*requests]
    new = {key: one for one in requests if (key := hash(repr(one))) not in seen}
    seen.update(new)
    return [*new.values()]


def _why_not_asked(own: Sequence[Any]) -> str:
    """The reason of a question that is skipped; empty for one that is asked."""
    if not own:
        return "its prompt cannot be rendered"
    skipped = getattr(getattr(own[0], "of", own[0]), "skipped", None)
    return "" if skipped is None else str(skipped.reason)


def _asked(task: Any, row: int, chat: Callable[..., str] | None) -> list[Any]:
    """The harness's own instances about one row; none if it has no question."""
    doc = task.eval_docs[row]
    try:
        context = task.fewshot_context(
            doc,
            num_fewshot=task.config.num_fewshot or 0,
            system_instruction=None,
            apply_chat_template=chat is not None,
            fewshot_as_multiturn=chat is not None,
            chat_template=chat,
            gen_prefix=task.doc_to_prefix(doc),
        )
        built = task.construct_requests(
            doc=doc,
            ctx=context,
            metadata=(task.config.task, row, 1),
            apply_chat_template=chat is not None,
            chat_template=chat,
        )
    except Exception:  # a task's templates and functions may raise anything; the run itself will say so
        return []
    return built if isinstance(built, list) else [built]


USUAL_QUESTIONS = 200
FEWEST_PER_TASK = 8  # of a group: its tasks may differ, and each has few-shot examples of its own


def costs(
    tasks: Sequence[str],
    tokenizer: str,
    *,
    questions: int | None = USUAL_QUESTIONS,
    limit: float | None = None,
    metadata: Mapping[str, object] = NO_METADATA,
    num_fewshot: int | None = None,
    include_paths: Sequence[str] = (),
    apply_chat_template: bool | str = False,
) -> dict[str, RunSize]:
    """The size of each task.

    tasks: tasks, groups, tags and audits of lm_eval
    tokenizer: a folder, or a name of the Hugging Face Hub
    questions: how many are tokenised of each task, drawn at random, in which few of the equal requests about different
        questions are found, so that counts are slightly too high; None for all, which is exact
    limit: as for lm_eval: the number of questions of a task that a run asks, or their share if below 1

    Raises ValueError or OSError if there is no such task or tokenizer.
    """
    stand_in = TokenizerOnly(tokenizer, {})
    if apply_chat_template:
        stand_in.chat_template(apply_chat_template)  # chooses one of several by name, as lm_eval does
    chat = stand_in.apply_chat_template if apply_chat_template else None
    shelf = TaskShelf(include_paths)
    found = {}
    for name in shelf.names_with_audits(tasks):
        loaded = list(shelf.load(name, metadata).leaves.values())
        for task in loaded:
            prepare_to_count(task, stand_in, num_fewshot)
        found[name] = _size(loaded, questions, limit, stand_in, chat)
    return found


def prepare_to_count(task: Any, stand_in: TokenizerOnly, num_fewshot: int | None = None) -> None:
    """As lm_eval prepares a task of a run."""
    if isinstance(task, LeakageTask):
        task.lm = stand_in
    elif num_fewshot is not None and task.config.num_fewshot != 0:
        task.set_config(key="num_fewshot", value=num_fewshot)
    task.set_fewshot_seed(seed=1234)


def _size(
    tasks: Sequence[Any], questions: int | None, limit: float | None, stand_in: TokenizerOnly, chat: Any
) -> RunSize:
    asked = [[row for row, _ in all_docs(task, get_sample_size(task, limit), None)] for task in tasks]
    n_asked = sum(map(len, asked))
    if questions is None:
        every = ((task, row) for task, rows in zip(tasks, asked, strict=True) for row in rows)
        return size_of(every, n_asked, stand_in, chat)
    share = questions / max(1, n_asked)
    parts = []
    for task, rows in zip(tasks, asked, strict=True):
        some = drawn(rows, max(FEWEST_PER_TASK, math.ceil(share * len(rows))), 0)
        mean = np.mean([row_lengths(task, row) for row in rows], axis=0).tolist() if len(some) < len(rows) else None
        parts.append(size_of([(task, row) for row in some], len(rows), stand_in, chat, mean))
    return size_together(parts)


# ---------------------------------------------------------------------- as a table, and as records for JSON


TOKENS = ("n_row_tokens", "n_tree_tokens", "n_block_tokens")
OPERATIONS = 2  # floating-point operations per parameter and token: one multiplication and one addition
TERA = 1e12
READ_IN_WORDS = {
    ALONE: "each text in a row of its own",
    MERGED: "texts that differ only in their last token in one row, others in rows of their own",
    IN_BLOCKS: f"full blocks of {ENGINE_BLOCK} tokens that begin several texts once",
    AS_TREE: "every shared prefix once",
}
Refusals = Mapping[str, str]  # why the model cannot answer requests of a method, by method; empty if it can


@dataclass(frozen=True)
class Speed:
    """tokens_per_second: that the user's machine reads; 0 if unknown
    source: where that is from, in words
    """

    tokens_per_second: float = 0.0
    source: str = "the tokens per second that were given"


def speed_of(parameters: float, tflops: float) -> Speed:
    """Of a model with so many parameters at so many 10^12 floating-point operations per second, without attention."""
    found = tflops * TERA / (OPERATIONS * parameters)
    return Speed(found, f"{parameters:.3g} parameters at {tflops:g} TFLOP/s, which is {about(round(found))} tokens/s")


def as_markdown(sizes: Mapping[str, RunSize], model: str, speed: Speed, refusals: Refusals) -> str:
    """A row per task, their sum, and in sentences what the numbers rest on. Columns without a number are left out."""
    total = size_together([*sizes.values()])
    named = [*sizes.items(), *([("all", total)] if len(sizes) > 1 else [])]
    columns = [[heading, *(cell(size) for _, size in named)] for heading, cell in _columns(model, speed).items()]
    told = [["task", *(name for name, _ in named)], *(one for one in columns if {*one[1:]} != {DASH})]
    remarks = [f"- {line}" for line in _remarks(sizes, total, model, speed, refusals)]
    return "\n".join([markdown_of([*map(list, zip(*told, strict=True))]), "", *remarks])


def _columns(model: str, speed: Speed) -> dict[str, Callable[[RunSize], str]]:
    """What the cells of each column say, by its heading."""

    def shared(name: str) -> Callable[[RunSize], str]:
        return lambda size: _with_error(size, name) if size.method == SCORED else DASH

    def ratio(size: RunSize) -> str:
        counts = size.tokens.counts
        shares = size.method == SCORED and counts.n_tree_tokens
        return f"{counts.n_row_tokens / counts.n_tree_tokens:.2f}" if shares else DASH

    def time(size: RunSize) -> str:
        return duration(size.n_read(model) / speed.tokens_per_second) if speed.tokens_per_second else DASH

    return {
        "questions": lambda size: count(size.tokens.n_questions),
        "requests": lambda size: _with_error(size, "n_texts"),
        "tokens in rows": lambda size: _with_error(size, "n_row_tokens"),
        "tokens as a tree": shared("n_tree_tokens"),
        f"in blocks of {ENGINE_BLOCK}": shared("n_block_tokens"),
        "ratio": ratio,
        "generated at most": lambda size: about(size.n_generated) if size.n_generated else DASH,
        f"time, {model}": time,
    }


def _with_error(size: RunSize, name: str) -> str:
    """A count with a digit more than its error has; with all digits where there is no error."""
    value, error = getattr(size.tokens.counts, name), getattr(size.tokens.errors, name)
    if not error or not value:
        return count(value)
    unit = 10 ** max(0, len(str(error)) - 2)
    return f"{count(round(value / unit) * unit)} ± {100 * error / value:.1f} %"


def _remarks(
    sizes: Mapping[str, RunSize], total: RunSize, model: str, speed: Speed, refusals: Refusals
) -> Iterator[str]:
    tokens = total.tokens
    if tokens.n_measured < tokens.n_questions:
        yield (
            f"{count(tokens.n_measured)} of {counted(tokens.n_questions)} tokenised; ± is a standard error; "
            "`--questions all` counts them all"
        )
    yield f"`{model}` reads {about(total.n_read(model))} tokens: {READ_IN_WORDS[READ_BY.get(model, ALONE)]}"
    if speed.tokens_per_second:
        yield f"time: {speed.source}; an estimate of reading alone, without loading and starting"
    for task, size in sizes.items():
        if why_not := refusals.get(size.method):
            yield f"{task} cannot run: {why_not}"
        for reason, n in size.untestable.most_common(3):
            yield f"{task}: about {counted(n)} not asked: {reason}"


def as_records(sizes: Mapping[str, RunSize], model: str, speed: Speed, refusals: Refusals) -> list[dict[str, object]]:
    """A record per task, for JSON."""
    return [
        {
            "task": task,
            "method": size.method,
            "n_questions": size.tokens.n_questions,
            "n_measured": size.tokens.n_measured,
            "n_requests": size.n_requests,
            **{name: getattr(size.tokens.counts, name) for name in TOKENS},
            "errors": {name: getattr(size.tokens.errors, name) for name in ("n_texts", *TOKENS)},
            "block": ENGINE_BLOCK,
            "model": model,
            "n_read": size.n_read(model),
            "n_generated": size.n_generated,
            "seconds": size.n_read(model) / speed.tokens_per_second if speed.tokens_per_second else None,
            "untestable": dict(size.untestable),
            "why_not": refusals.get(size.method) or None,
        }
        for task, size in sizes.items()
    ]
