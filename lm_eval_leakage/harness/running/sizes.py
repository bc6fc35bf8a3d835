"""What a run of a task will ask, known before a model is loaded: its requests, and how many tokens they are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_leakage.harness.models.question_requests import n_characters
from lm_eval_leakage.harness.models.request_tokens import n_generated, read_by, size_estimated, tokens_of
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.questions.row_texts import texts_in
from lm_eval_leakage.records import UntestableQuestion
from lm_eval_leakage.scoring.token_counts import Lengths, TokenEstimate, together

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


def drawn_rows(n_rows: int, n_drawn: int) -> list[int]:
    """Indices of rows, drawn at random; all if there are no more."""
    return sorted(random.Random(0).sample(range(n_rows), min(n_rows, n_drawn)))


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
