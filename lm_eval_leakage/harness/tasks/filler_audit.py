"""Implements the audit whose rows exchange their fillers, and so are asked together; and the start of its documents.

The start counts: a model that read a benchmark after `<|im_start|>` shows less memory of it after another one. It is
chosen before any answer, by how likely the model finds the rows as published, which says nothing of other names.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from lm_eval.api.instance import Instance

from lm_eval_leakage.detectors.crossed_fillers import CrossedFillers
from lm_eval_leakage.harness.models.processes import is_first, of_every
from lm_eval_leakage.harness.tasks.seals import exchange_of
from lm_eval_leakage.harness.tasks.task import ChatTemplate, LeakageTask, drawn
from lm_eval_leakage.questions.families import distinct
from lm_eval_leakage.questions.fields import Doc
from lm_eval_leakage.questions.slots import NAMES
from lm_eval_leakage.questions.statements import with_slot
from lm_eval_leakage.records import Question, UntestableQuestion

logger = logging.getLogger("lm_eval.leakage_start")  # a logger of the harness, so that messages are shown
ROWS_COMPARED = 20
AS_GOOD = 0.03  # share of the nats that a longer start must save: any text before another makes it a little likelier
TURN = "\x1f"  # stands for the user's text in a rendered chat


class FillerAudit(LeakageTask):
    """An audit whose probe exchanges fillers between the rows of a run.

    A chat template is not applied to its requests: a chat's beginning is one of the starts that are compared.
    """

    _sample: Sequence[Doc] = ()

    @cached_property
    def asks_control(self) -> bool:
        # numbers are preferred for other reasons, too, so that the control form would not do
        of_names = self.seal is None and self.fillers == NAMES
        return of_names and self.control_form and self.reference is None

    @property
    def fillers(self) -> str:
        """Return what its rows exchange, names or numbers."""
        return self.probe.fillers if isinstance(self.probe, CrossedFillers) else NAMES

    def doc_iterator(
        self, *, rank: int = 0, limit: int | None = None, world_size: int = 1, samples: list[int] | None = None
    ) -> Iterator[tuple[int, Doc]]:
        every = super().doc_iterator(rank=0, limit=limit, world_size=1, samples=samples)
        self.ask_together(doc for _, doc in every)
        return super().doc_iterator(rank=rank, limit=limit, world_size=world_size, samples=samples)

    def ask_together(self, docs: Iterable[Doc]) -> None:
        """Set which rows exchange their fillers: those of all processes of the run."""
        sample = [*docs]
        if [*map(id, sample)] == [*map(id, self._sample)]:
            return
        self._sample = sample
        questions = distinct(filter(None, map(self._readable, sample)))
        probe = self.probe.with_pool(lambda: questions)
        if self.seal is not None:
            probe = probe.with_exchanges(partial(exchange_of, self.seal))
        if isinstance(probe, CrossedFillers) and self.evaluation is not None and self.lacking is None:
            probe = with_likeliest_start(probe, self.lm)
        self.pooled_probe = probe

    def framing(self, system: str, chat_template: ChatTemplate | None) -> Callable[[str], str]:
        """Return what leaves contexts as they are: the probe begins each document itself."""
        return str

    def has_slot(self, doc: Doc) -> bool:
        """Return whether a row has a detail that can be exchanged, or one that a key drew."""
        question = self._readable(doc)
        if question is None or self.seal is None:
            return question is not None and bool(with_slot([question], self.fillers))
        return exchange_of(self.seal, question) is not None

    def guards(self, doc: Doc) -> tuple[str, ...]:
        """Return none, since guards apply to options."""
        return ()


def with_likeliest_start(probe: CrossedFillers, lm: Any) -> CrossedFillers:
    """Return the probe with the shortest start after which the model finds its rows, as published, about as likely as
    after any."""
    starts = starts_of(lm)
    if probe.start is not None or len(starts) < 2:
        return probe if probe.start is not None else probe.starting_with(starts[0])
    questions: list[Question] = []
    for question in drawn(probe.pool, None, 0):
        try:
            probe.block(question)
        except UntestableQuestion:
            continue
        questions.append(question)
    if probe.drawn is not None:  # the order of a sealed file is drawn by the key, too
        questions.sort(key=lambda question: (probe.block(question).name, probe.block(question).place))
    means = [_nats_per_row(lm, probe.starting_with(start), drawn(questions, ROWS_COMPARED, 0)) for start in starts]
    chosen = next(place for place, mean in enumerate(means) if mean >= max(means) * (1 + AS_GOOD))
    best = of_every(chosen)[0]
    if is_first():
        shown = ", ".join(f"{start!r} {mean:.1f}" for start, mean in zip(starts, means, strict=True))
        logger.info("documents start with %r (nats per row as published: %s)", starts[best], shown)
    return probe.starting_with(starts[best])


def _nats_per_row(lm: Any, probe: CrossedFillers, questions: Sequence[Question]) -> float:
    requests = [request for question in questions for request in probe.start_requests(question)]
    instances = [Instance("loglikelihood", {}, tuple(request), number) for number, request in enumerate(requests)]
    total = sum(float(answer[0]) for answer in lm.loglikelihood(instances)) if instances else 0.0
    return total / max(1, len(questions)) if math.isfinite(total) else -math.inf


def starts_of(lm: Any) -> list[str]:
    """Return the texts with which documents may have started in the model's training, the shortest first: nothing, its
    special tokens for the start and the end of a document, and what a chat has before the user's text."""
    starts = [""]
    tokenizer = getattr(lm, "tokenizer", None)
    for name in ("bos_token", "eos_token"):
        if isinstance(token := getattr(tokenizer, name, None), str) and token not in starts:
            starts.append(token)
    try:
        chat = lm.apply_chat_template([{"role": "user", "content": TURN}])
    except Exception:  # a backend without chats, or a tokenizer's own template, may raise anything
        chat = ""
    if isinstance(chat, str) and TURN in chat:
        before = chat[: chat.index(TURN)]
        special = [token for token in getattr(tokenizer, "all_special_tokens", ()) or () if before.startswith(token)]
        starts += [*special[:1], before]
    return list(dict.fromkeys(starts))
