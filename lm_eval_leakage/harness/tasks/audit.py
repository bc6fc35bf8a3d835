"""Builds the leakage audit of any lm_eval task, group or tag: its questions, read from the prompts that it renders.

`<task>_<suffix>` is the audit of `<task>` that the template `_<suffix>_yaml` describes. The rows of an audit of
question order are shards, runs of neighbouring questions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.task import ConfigurableTask, Task
from lm_eval.config.group import AggMetricConfig

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.detectors import probes
from lm_eval_leakage.detectors.crossed_fillers import CrossedFillers
from lm_eval_leakage.harness.models.abilities import LongerThanWindow
from lm_eval_leakage.harness.seams.tasks import task_settings
from lm_eval_leakage.harness.table import RowValue, pooled, registered_rows
from lm_eval_leakage.harness.tasks.audited_rows import docs_to_audit, statements_to_audit, why_not_audited
from lm_eval_leakage.harness.tasks.base_task import ROWS_TRIED, RefusedAudit, constant_answer
from lm_eval_leakage.harness.tasks.data import Docs
from lm_eval_leakage.harness.tasks.filler_audit import FillerAudit
from lm_eval_leakage.harness.tasks.judging import REASONS_SHOWN
from lm_eval_leakage.harness.tasks.question_files import Rows
from lm_eval_leakage.harness.tasks.seals import SEALED_SHARDS, by_place, seal_in
from lm_eval_leakage.harness.tasks.task import TASKS_OF_GROUP, LeakageTask
from lm_eval_leakage.harness.tasks.templates import (
    FILLER_AUDIT,
    FIRST_AUDIT,
    PARTS_OF_SEAL,
    SEAL_AUDIT,
    SEAL_KEY,
    WORDING_AUDIT,
    no_seal,
    suffixes,
    templates,
)
from lm_eval_leakage.questions.fields import Doc
from lm_eval_leakage.records import Question, Request, Shard, UntestableQuestion
from lm_eval_leakage.seal.drawn import Seal
from lm_eval_leakage.stats.sorted_questions import sorted_properties

logger = logging.getLogger(__name__)
FEWEST_EXAMPLES = 2  # examples of a shard
IN_NO_SHARD = "not of the seal, at the end of its file, or beside a missing question"
Config = dict[str, Any]
DATA_KEYS = (
    *("dataset_path", "dataset_name", "dataset_kwargs", "process_docs"),
    *("test_split", "validation_split", "training_split"),
)
ORDINALS = ("first", "second", "third")


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
        questions, unreadable = [], Counter[str]()
        for doc in self.source.eval_docs:
            try:
                questions.append(self.source.question(doc))
            except UntestableQuestion as error:
                unreadable[str(error)] += 1
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
        if properties := sorted_properties([shard.options for shard in self.shards.values()]):
            names = ", ".join(f"{name} (p = {pvalue:.1g})" for name, pvalue in properties.items())
            logger.warning(
                "%s: the published order of the questions can be inferred from their texts, by %s; a model may prefer "
                "it without having seen it, so the p-values of this audit say nothing about leakage",
                self.config.task,
                names,
            )

    def question(self, doc: Doc) -> Shard:
        """Return the shard, without the examples that do not fit into the model's window."""
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
        """Return no guards, since guards apply to the options of a single question."""
        return ()


def _row(shard: Shard, seal: Seal | None) -> dict[str, Any]:
    """Return a shard as a row of data; of a sealed benchmark, the members are places in the public file."""
    of_seal = {} if seal is None else {"seal": seal.commitment}
    return {"shard": shard.id, "members": list(shard.members), **of_seal}


def of_shards(audit: LeakageTask, config: dict[str, Any]) -> LeakageTask:
    """Return `audit` itself, or, if its probe tests shards, the audit of shards of its questions."""
    if audit.probe.of_shards(()) is None:
        return audit
    if audit.seal is not None:
        config = config | {"metadata": {**SEALED_SHARDS, **config["metadata"]}}
    return ShardAudit(audit, config)


def template(suffix: str) -> Config:
    return task_settings(templates()[suffix]) | {"class": None}


class LeakageGroup(Group):  # type: ignore[misc]
    """Rows over all questions of all members: rates weight a member by its number of tested questions, and p-values
    are computed over all questions. (The harness's own groups only take means, and a mean of p-values is
    meaningless.)"""

    def __init__(self, name: str) -> None:
        names = [name for name in registered_rows() if not name.endswith("_stderr")]
        super().__init__(name, aggregate_metric_list=[AggMetricConfig(metric=metric) for metric in names])

    def aggregate(self, task_metrics: dict[str, dict[str, Any]]) -> dict[str, Any]:
        members = [task_metrics[task.task_name] for task in self.get_all_tasks() if task.task_name in task_metrics]
        keys = dict.fromkeys(key for member in members for key in member if isinstance(member[key], RowValue))
        together = {key: pooled([member[key] for member in members if key in member]) for key in keys}
        sizes = [member.get("sample_len", 0) for member in members]
        return {"alias": self.alias or self.name, "name": self.name, "sample_len": sum(sizes), **together}


class TaskAudit(LeakageTask):
    """Audits `base`'s questions, in `base`'s own prompts, with the probe and statistics of `config`."""

    def __init__(self, base: ConfigurableTask, config: Config) -> None:
        self.base = base
        super().__init__(config)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        docs, rows = docs_to_audit(self.base, self.config.metadata or {})
        if reason := why_not_audited(docs, rows):
            raise RefusedAudit(reason)
        first = [doc.reading for doc in islice(docs, ROWS_TRIED)]
        if (place := constant_answer(first)) is not None:
            logger.warning(
                "%s: the right option is always the %s published one, so a model that knows the answers may prefer "
                "the published order without having seen it",
                self.config.task,
                ORDINALS[place] if place < len(ORDINALS) else f"{place + 1}th",
            )
        self.dataset = {self.config.test_split: docs}


class TextAudit(TaskAudit):
    """Audits the texts of `base`'s rows, whatever they ask."""

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        docs = statements_to_audit(self.base, self.config.metadata or {}, is_sealed=self.seal is not None)
        self.dataset = {self.config.test_split: docs}


class StatementAudit(FillerAudit, TextAudit):
    """Exchanges fillers in the texts of `base`'s rows."""

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        super().download(dataset_kwargs)
        for docs in self.dataset.values():
            if isinstance(self.probe, CrossedFillers) and isinstance(docs, Docs):
                self.probe = self.probe.exchanging(docs.fillers)


def audit_with_probe(task: Task, probe: str, metadata: Mapping[str, object]) -> LeakageTask:
    """Return the audit of a task with the default variant of the method that uses this probe."""
    ours = [suffix for suffix in suffixes() if templates()[suffix].parent == task_configs_path()]
    for suffix in (*reversed(ours), *reversed(suffixes())):  # the shortest name is the default variant
        if template(suffix).get("metadata", {}).get("probe") == probe:
            return audit_task(task, suffix, metadata)
    raise ValueError(f"no audit uses the probe {probe!r}; choose the probe of one of: {', '.join(suffixes())}")


def audit_task(base: Task, suffix: str, metadata: Mapping[str, object]) -> LeakageTask:
    if not isinstance(base, ConfigurableTask):
        raise RefusedAudit(
            f"{base.task_name} is written in Python and does not render the prompt and choices of a row"
        )
    config, name = template(suffix), base.config.task
    config |= {
        "task": f"{name}_{suffix}",
        "dataset_path": base.config.dataset_path,
        "dataset_name": base.config.dataset_name,
        "test_split": base.config.test_split or base.config.validation_split or "test",
        "metadata": {"benchmark": name, **config.get("metadata", {}), **metadata, "audit_of": name},
    }
    if exchanges_fillers(config):
        return StatementAudit(base, config)
    seal = metadata.get(SEAL_KEY)
    if seal is not None and audits_shards(suffix) and seal_in(seal).is_of_texts:
        return of_shards(TextAudit(base, config), config)
    return of_shards(TaskAudit(base, config), config)


def audits_shards(suffix: str) -> bool:
    """Return whether an audit tests shards of neighbouring questions instead of single questions."""
    return probes.get(template(suffix)["metadata"]["probe"])().of_shards(()) is not None


def exchanges_fillers(config: Config) -> bool:
    return probes.get(config["metadata"]["probe"]).exchanges_fillers


def audit_of_yaml(file: Path, name: str, suffix: str, metadata: Mapping[str, object]) -> LeakageTask | LeakageGroup:
    """Return the audit `suffix` of the data set in one of our YAMLs, which describes another audit of it."""
    base = name.removesuffix(f"_{suffix}")
    if suffix == SEAL_AUDIT:
        return _seal_group(f"{base}_", metadata, lambda part: audit_of_yaml(file, f"{base}_{part}", part, metadata))
    shape = template(suffix)
    config = {key: value for key, value in task_settings(file).items() if key in DATA_KEYS} | shape
    source = {"config_source": str(file), "audit_of": base}
    config |= {"task": name, "metadata": {**shape["metadata"], **metadata, **source}}
    return FillerAudit(config) if exchanges_fillers(config) else of_shards(LeakageTask(config), config)


def build_audits(built: Task | Group | Sequence[Task], suffix: str, metadata: Mapping[str, object]) -> Any:
    """Return the audits of what an lm_eval name denotes: a LeakageTask of a task, a LeakageGroup of a group, a list of
    a tag.

    A member that cannot be audited is left out, and the log says why; raises RefusedAudit if none can be audited.
    """
    name = built.name if isinstance(built, Group) else built.config.task if isinstance(built, Task) else ""
    if suffix == SEAL_AUDIT:
        base = f"{name}_" if name else ""
        return _seal_group(base, metadata, lambda part: build_audits(built, part, metadata))
    if isinstance(built, Task):
        return audit_task(built, suffix, metadata)
    tasks = built.get_all_tasks() if isinstance(built, Group) else built
    refuse_one_file_for_many(name or "the tag", len(tasks), metadata, suffix)
    if isinstance(built, Group):
        metadata = {TASKS_OF_GROUP: len(tasks), **metadata}
    audits = []
    for member in built:
        try:
            audits.append(build_audits(member, suffix, metadata))
        except RefusedAudit as error:
            of_member = member.name if isinstance(member, Group) else member.config.task
            logger.warning("%s is not audited: %s", of_member, error)
    if not audits:
        which = f"the {len(built)} members of {name}" if name else "its tasks"
        raise RefusedAudit(f"none of {which} can be audited; the log says why")
    return _group(f"{name}_{suffix}", audits) if name else audits


def _group(name: str, audits: Sequence[LeakageTask | LeakageGroup]) -> LeakageGroup:
    group = LeakageGroup(name)
    for audit in audits:
        group.add(audit)
    return group


def _seal_group(base: str, metadata: Mapping[str, object], build: Callable[[str], Any]) -> LeakageGroup:
    """Return all audits that a seal allows, under one name.

    base: the audited name with a separator, empty for a tag
    build: makes the audit with a suffix
    """
    if metadata.get(SEAL_KEY) is None:
        raise ValueError(no_seal(f"{base}{SEAL_AUDIT}"))
    seal = seal_in(metadata[SEAL_KEY])
    left_out = {FIRST_AUDIT: "its texts have no options"} if seal.is_of_texts else {FILLER_AUDIT: "it has options"}
    if not any(len(question.wordings) > 1 for question in seal.questions):
        left_out[WORDING_AUDIT] = "its author gave no other wordings"
    audits: list[LeakageTask | LeakageGroup] = []
    for part in PARTS_OF_SEAL:
        if part in left_out:
            logger.info("%s%s is left out: %s", base, part, left_out[part])
            continue
        built = build(part)
        audits += built if isinstance(built, list) else [built]
    return _group(f"{base}{SEAL_AUDIT}", audits)


def refuse_one_file_for_audits(name: str, built: object, metadata: Mapping[str, object]) -> None:
    """Raises RefusedAudit if one file would be audited once per audit of a group that lists audits."""
    if isinstance(built, Group):
        n_audits = sum(isinstance(task, LeakageTask) for task in built.get_all_tasks())
        refuse_one_file_for_many(name, n_audits, metadata, FIRST_AUDIT)


def refuse_one_file_for_many(name: str, n_tasks: int, metadata: Mapping[str, object], suffix: str) -> None:
    """Raises RefusedAudit if one file would be audited once per task of a group or tag."""
    if n_tasks > 1 and "data_files" in metadata:
        raise RefusedAudit(
            f"data_files is {metadata['data_files']!r}, but {name} has {n_tasks} tasks, each of which would "
            f"audit that one file; name one of the tasks, or fresh_{suffix}, which audits plain questions"
        )
