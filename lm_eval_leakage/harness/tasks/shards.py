"""Audits of question order: the rows of such an audit are shards, runs of neighbouring questions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lm_eval_leakage.harness.models.asking import LongerThanWindow
from lm_eval_leakage.harness.tasks.data import RefusedAudit, Rows
from lm_eval_leakage.harness.tasks.judging import REASONS_SHOWN
from lm_eval_leakage.harness.tasks.sealed import SEALED_SHARDS, by_place
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.questions.fields import Doc
from lm_eval_leakage.records import Question, Request, Shard, UntestableQuestion
from lm_eval_leakage.seal.drawn import Seal
from lm_eval_leakage.stats.sorted_questions import told_by

logger = logging.getLogger(__name__)

FEWEST_EXAMPLES = 2  # examples of a shard
IN_NO_SHARD = "not of the seal, at the end of its file, or beside a missing question"


class ShardAudit(LeakageTask):
    """Tests shards of `source`'s questions with the probe that `config` names. `--limit` counts shards.

    Questions that cannot be read are in no shard: the log has their number and the reasons.
    """

    def __init__(self, source: LeakageTask, config: dict[str, Any]) -> None:
        self.source = source
        self._n_shown: dict[str, int] = {}
        super().__init__(config | {"process_docs": None})

    def benchmark(self) -> Iterator[Question]:
        return self.source.benchmark()

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        questions, unreadable = _read(self.source)
        for reason, count in unreadable.most_common(REASONS_SHOWN):
            logger.warning("%s: %d question(s) are in no shard: %s", self.config.task, count, reason)
        seal = self.seal
        shards = self.probe.of_shards(questions) if seal is None else self.probe.of_places(by_place(seal, questions))
        self.shards = {shard.id: shard for shard in shards or ()}
        if not self.shards:
            raise RefusedAudit(
                f"{self.config.task}: {len(questions)} readable question(s) make no shard of {FEWEST_EXAMPLES} or more"
            )
        n_asked = sum(len(shard.options) for shard in self.shards.values())
        logger.info("%s: %d shards of %d questions in all", self.config.task, len(self.shards), n_asked)
        if seal is None:
            self._warn_of_sorted_questions()
        elif n_asked < len(questions):
            logger.warning(
                "%s: %d question(s) are in no shard: %s", self.config.task, len(questions) - n_asked, IN_NO_SHARD
            )
        rows = Rows(_row(shard, seal) for shard in self.shards.values())
        self.dataset = {self.config.test_split or self.config.validation_split: rows}

    def _warn_of_sorted_questions(self) -> None:
        if told := told_by([shard.options for shard in self.shards.values()]):
            names = ", ".join(f"{name} (p = {pvalue:.1g})" for name, pvalue in told.items())
            logger.warning(
                "%s: the published order of the questions can be inferred from their texts, by %s; a model may prefer "
                "it without having seen it, so the p-values of this audit say nothing about leakage",
                self.config.task,
                names,
            )

    def question(self, doc: Doc) -> Shard:
        """The shard, without the examples that do not fit into the model's window."""
        shard = self.shards[doc["shard"]]
        return replace(shard, options=shard.options[: self._n_shown.get(shard.id)])

    def fitting(self, doc: Doc, framed: Callable[[str], str]) -> tuple[Sequence[Request], Sequence[tuple[str, str]]]:
        while True:
            try:
                return super().fitting(doc, framed)
            except LongerThanWindow:
                shown = len(self.question(doc).options)
                if shown == FEWEST_EXAMPLES:
                    raise
                self._n_shown[doc["shard"]] = shown - 1

    def guards(self, doc: Doc) -> tuple[str, ...]:
        """None, since guards apply to the options of a single question."""
        return ()


def _row(shard: Shard, seal: Seal | None) -> dict[str, Any]:
    """A shard as a row of data; of a sealed benchmark, the members are places in the public file."""
    of_seal = {} if seal is None else {"seal": seal.commitment}
    return {"shard": shard.id, "members": list(shard.members), **of_seal}


def of_shards(audit: LeakageTask, config: dict[str, Any]) -> LeakageTask:
    """`audit` itself, or, if its probe tests shards, the audit of shards of its questions."""
    if audit.probe.of_shards(()) is None:
        return audit
    if audit.seal is not None:
        config = config | {"metadata": {**SEALED_SHARDS, **config["metadata"]}}
    return ShardAudit(audit, config)


def _read(source: LeakageTask) -> tuple[Sequence[Question], Counter[str]]:
    questions, reasons = [], Counter[str]()
    for doc in source.eval_docs:
        try:
            questions.append(source.question(doc))
        except UntestableQuestion as error:
            reasons[str(error)] += 1
    return questions, reasons
