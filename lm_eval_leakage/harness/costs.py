"""Estimates what a run of chosen questions asks a model: requests and tokens, counted without the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_leakage.harness.models.question_requests import n_request_characters
from lm_eval_leakage.harness.models.request_tokens import n_generated, read_by, size_estimated, tokens_of
from lm_eval_leakage.harness.models.tokenizer_only import TokenizerOnly
from lm_eval_leakage.harness.tasks.filler_audit import FillerAudit
from lm_eval_leakage.harness.tasks.task import LeakageTask, drawn
from lm_eval_leakage.scoring.prefix_tree import TokenEstimate

ROWS_MEASURED = 60  # drawn at random; the rest is taken to be like them


@dataclass(frozen=True)
class RunSize:
    """The size of a run of `n_questions` questions, estimated from some of them.

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


def task_needs(task: Any) -> str:
    """Return the method of the model that answers a task's requests."""
    if isinstance(task, LeakageTask):
        return str(task.probe.needs)
    method = str(task.OUTPUT_TYPE)
    return method if method in ("generate_until", "loglikelihood_rolling") else "loglikelihood"


def size_of_chosen(
    leaves: Mapping[str, Any],
    samples: Mapping[str, Sequence[int]],
    tokenizer: TokenizerOnly | None,
    chat_template: bool | str,
) -> RunSize:
    """Estimates the size of a run of the chosen questions of these tasks from some of them.

    samples: indices of the chosen questions by task
    tokenizer: a stand-in for the model, whose tokenizer is used; None takes four bytes for a token
    """
    rows = [(leaves[name], row) for name, chosen in samples.items() for row in chosen]
    for name, chosen in samples.items():
        if isinstance(task := leaves[name], FillerAudit):
            task.ask_together(task.eval_docs[row] for row in chosen)
    if tokenizer is not None:
        for task in leaves.values():
            _prepare(task, tokenizer)
    chat = tokenizer.apply_chat_template if tokenizer is not None and chat_template else None
    seen = set[int]()
    method, texts, reasons, n_written, n_long = "", [], Counter[str](), 0, 0
    for task, row in drawn(rows, ROWS_MEASURED, 0):
        method, instances = task_needs(task), _asked(task, row, chat)
        if reason := _why_not_asked(instances):
            reasons[reason] += 1
            instances = []
        requests = _not_yet_sent(task, [instance.args for instance in instances], seen)
        texts.append(tokens_of(tokenizer, method, requests))
        n_written += sum(map(n_generated, requests))
        n_long += sum(map(n_request_characters, requests))
    scale = len(rows) / max(1, len(texts))
    return RunSize(
        method,
        size_estimated(method, texts, len(rows)),
        round(scale * n_written),
        round(scale * n_long),
        Counter({reason: round(scale * n) for reason, n in reasons.items()}),
    )


def _not_yet_sent(task: Any, requests: Sequence[tuple[Any, ...]], seen: set[int]) -> list[tuple[Any, ...]]:
    """Return the requests without those sent before: our own tasks send equal requests once, also those about
    different questions.

    seen: hashes of all requests so far, to which these are added
    """
    if not isinstance(task, LeakageTask):
        return [*requests]
    new = []
    for request in requests:
        key = hash(repr(request))
        if key not in seen:
            seen.add(key)
            new.append(request)
    return new


def _why_not_asked(instances: Sequence[Any]) -> str:
    """Return why a question is skipped; empty if it is not."""
    if not instances:
        return "its prompt cannot be rendered"
    skipped = getattr(getattr(instances[0], "of", instances[0]), "skipped", None)
    return "" if skipped is None else str(skipped.reason)


def _asked(task: Any, row: int, chat: Callable[..., str] | None) -> list[Any]:
    """Return the harness's own instances about one row; none if it has no question."""
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


def _prepare(task: Any, tokenizer: TokenizerOnly) -> None:
    """Prepares a task as lm_eval does before a run."""
    if isinstance(task, LeakageTask):
        task.lm = tokenizer
    task.set_fewshot_seed(seed=1234)
