"""Build the leakage audits of lm_eval's tasks, groups and tags.

`<task>_<suffix>` is the audit of `<task>` with the probe and statistics that the template `_<suffix>_yaml` names. An
audit of a task reads the questions from the prompts that the task renders. Most probes test single questions. Some
test shards, which are runs of neighbouring questions; each row of such an audit is a shard.
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
FEWEST_EXAMPLES = 2  # questions that a shard shows, each of which is called an example
IN_NO_SHARD = "not of the seal, at the end of its file, or beside a missing question"  # the possible reasons
Config = dict[str, Any]
DATA_KEYS = (  # the settings of a YAML that name its data
    *("dataset_path", "dataset_name", "dataset_kwargs", "process_docs"),
    *("test_split", "validation_split", "training_split"),
)
ORDINALS = ("first", "second", "third")


class TaskAudit(LeakageTask):
    """Audits the multiple-choice questions of a task, as the task's own prompts show them.

    base: the audited task
    config: names the probe and the statistics
    """

    def __init__(self, base: ConfigurableTask, config: Config) -> None:
        self.base = base
        super().__init__(config)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        """Set the data set to `base`'s rows, read as questions; raises RefusedAudit, with the reason, if they cannot
        be audited."""
        docs, rows = docs_to_audit(self.base, self.config.metadata or {})
        if reason := why_not_audited(docs, rows):
            raise RefusedAudit(reason)
        readings = [doc.reading for doc in islice(docs, ROWS_TRIED)]
        if (place := constant_answer(readings)) is not None:
            logger.warning(
                "%s: the right option is always the %s published one, so a model that knows the answers may prefer "
                "the published order without having seen it",
                self.config.task,
                ORDINALS[place] if place < len(ORDINALS) else f"{place + 1}th",
            )
        self.dataset = {self.config.test_split: docs}


class TextAudit(TaskAudit):
    """Audits the rows of a task as texts, so that they need no options."""

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        """Set the data set to `base`'s rows, read as texts."""
        docs = statements_to_audit(self.base, self.config.metadata or {}, is_sealed=self.seal is not None)
        self.dataset = {self.config.test_split: docs}


class StatementAudit(FillerAudit, TextAudit):
    """Audits the rows of a task as texts in which fillers, such as names of people, are exchanged."""

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        """Set the data set to `base`'s rows, read as texts, and have the probe exchange their kind of fillers."""
        super().download(dataset_kwargs)
        for docs in self.dataset.values():
            if isinstance(self.probe, CrossedFillers) and isinstance(docs, Docs):
                self.probe = self.probe.exchanging(docs.fillers)


class ShardAudit(LeakageTask):
    """Tests shards of another audit's questions with the probe that `config` names. `--limit` counts shards.

    Questions that cannot be read are in no shard: the log has their number and the reasons.

    source: the audit whose questions are grouped into shards
    """

    def __init__(self, source: LeakageTask, config: Config) -> None:
        self.source = source
        self._n_shown: dict[str, int] = {}  # by shards that had to be shortened to fit into the model's window
        super().__init__(config | {"process_docs": None})  # written for rows that are questions, not shards

    def benchmark(self) -> Iterator[Question]:
        """Return all readable questions of the benchmark that `source` audits."""
        return self.source.benchmark()

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        """Group `source`'s questions into shards, and set the data set to one row per shard.

        Raises RefusedAudit if the questions make no shard.
        """
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
        n_in_shards = sum(len(shard.options) for shard in self.shards.values())
        logger.info("%s: %d shards of %d questions in all", self.config.task, len(self.shards), n_in_shards)
        if seal is None:
            self._warn_of_sorted_questions()
        elif n_in_shards < len(questions):
            logger.warning(
                "%s: %d question(s) are in no shard: %s", self.config.task, len(questions) - n_in_shards, IN_NO_SHARD
            )
        rows = Rows(_row(shard, seal) for shard in self.shards.values())
        self.dataset = {self.config.test_split or self.config.validation_split: rows}

    def _warn_of_sorted_questions(self) -> None:
        """Warn if the questions are sorted by something that their texts show."""
        if properties := sorted_properties([shard.options for shard in self.shards.values()]):
            names = ", ".join(f"{name} (p = {pvalue:.1g})" for name, pvalue in properties.items())
            logger.warning(
                "%s: the published order of the questions can be inferred from their texts, by %s; a model may prefer "
                "it without having seen it, so the p-values of this audit say nothing about leakage",
                self.config.task,
                names,
            )

    def question(self, doc: Doc) -> Shard:
        """Return the shard of a row, without the questions at its end that do not fit into the model's window."""
        shard = self.shards[doc["shard"]]
        return replace(shard, options=shard.options[: self._n_shown.get(shard.id)])

    def fitting(self, doc: Doc, framed: Callable[[str], str]) -> tuple[Sequence[Request], Sequence[tuple[str, str]]]:
        """Return the same as `LeakageTask.fitting`, after dropping the last question of the shard until it fits.

        Raises LongerThanWindow if not even FEWEST_EXAMPLES questions fit into the model's window.
        """
        while True:
            try:
                return super().fitting(doc, framed)
            except LongerThanWindow:
                n_shown = len(self.question(doc).options)
                if n_shown == FEWEST_EXAMPLES:
                    raise
                self._n_shown[doc["shard"]] = n_shown - 1

    def guards(self, doc: Doc) -> tuple[str, ...]:
        """Return no guards, since a guard names a natural order of the options of a single question."""
        return ()


def _row(shard: Shard, seal: Seal | None) -> dict[str, Any]:
    """Return a shard as a row of data, with the ids of its questions.

    In a sealed benchmark these ids are places in the public file, so the row names the seal as well.
    """
    commitment = {} if seal is None else {"seal": seal.commitment}
    return {"shard": shard.id, "members": list(shard.members), **commitment}


class LeakageGroup(Group):  # type: ignore[misc]
    """A group of audits whose rows of the table are computed over all questions of all members.

    Rates weight a member by its number of tested questions, and p-values are computed over all questions. The
    harness's own groups only take means, and a mean of p-values is meaningless.
    """

    def __init__(self, name: str) -> None:
        metrics = [row for row in registered_rows() if not row.endswith("_stderr")]
        super().__init__(name, aggregate_metric_list=[AggMetricConfig(metric=metric) for metric in metrics])

    def aggregate(self, task_metrics: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the metrics of the group.

        task_metrics: the metrics of each task of the run, by its name
        """
        members = [task_metrics[task.task_name] for task in self.get_all_tasks() if task.task_name in task_metrics]
        keys = dict.fromkeys(key for member in members for key in member if isinstance(member[key], RowValue))
        rows = {key: pooled([member[key] for member in members if key in member]) for key in keys}
        sizes = [member.get("sample_len", 0) for member in members]
        return {"alias": self.alias or self.name, "name": self.name, "sample_len": sum(sizes), **rows}


def build_audits(built: Task | Group | Sequence[Task], suffix: str, metadata: Mapping[str, object]) -> Any:
    """Return the audit `suffix` of a task as a LeakageTask, of a group as a LeakageGroup, and of a tag as a list.

    A member that cannot be audited is left out, and the log says why; raises RefusedAudit if none can be audited.

    built: the task or group that lm_eval built, or the tasks of a tag
    """
    name = built.name if isinstance(built, Group) else built.config.task if isinstance(built, Task) else ""
    if suffix == SEAL_AUDIT:
        prefix = f"{name}_" if name else ""
        return _seal_group(prefix, metadata, lambda part: build_audits(built, part, metadata))
    if isinstance(built, Task):
        return audit_task(built, suffix, metadata)
    tasks = built.get_all_tasks() if isinstance(built, Group) else built
    _refuse_data_files(name or "the tag", len(tasks), metadata, suffix)
    if isinstance(built, Group):
        metadata = {TASKS_OF_GROUP: len(tasks), **metadata}
    audits = []
    for member in built:
        try:
            audits.append(build_audits(member, suffix, metadata))
        except RefusedAudit as error:
            member_name = member.name if isinstance(member, Group) else member.config.task
            logger.warning("%s is not audited: %s", member_name, error)
    if not audits:
        members = f"the {len(built)} members of {name}" if name else "its tasks"
        raise RefusedAudit(f"none of {members} can be audited; the log says why")
    return _group(f"{name}_{suffix}", audits) if name else audits


def _group(name: str, audits: Sequence[LeakageTask | LeakageGroup]) -> LeakageGroup:
    """Return a group of audits under this name."""
    group = LeakageGroup(name)
    for audit in audits:
        group.add(audit)
    return group


def audit_task(base: Task, suffix: str, metadata: Mapping[str, object]) -> LeakageTask:
    """Return the audit `suffix` of a single task.

    metadata: parameters of the probe and of the audit; they override those of the template

    Raises RefusedAudit if the task is not configured by a YAML.
    """
    if not isinstance(base, ConfigurableTask):
        raise RefusedAudit(
            f"{base.task_name} is written in Python and does not render the prompt and choices of a row"
        )
    config, name = template_settings(suffix), base.config.task
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
        return as_shard_audit(TextAudit(base, config), config)
    return as_shard_audit(TaskAudit(base, config), config)


def audit_of_yaml(file: Path, name: str, suffix: str, metadata: Mapping[str, object]) -> LeakageTask | LeakageGroup:
    """Return an audit of the data set that a YAML of this package names.

    The YAML is itself an audit of that data set, by another template: `mmlu_leakage_perm_r` is built from the YAML
    of `mmlu_leakage_perm`.

    name: of the audit, with its suffix
    """
    benchmark = name.removesuffix(f"_{suffix}")
    if suffix == SEAL_AUDIT:
        return _seal_group(
            f"{benchmark}_", metadata, lambda part: audit_of_yaml(file, f"{benchmark}_{part}", part, metadata)
        )
    settings = template_settings(suffix)
    config = {key: value for key, value in task_settings(file).items() if key in DATA_KEYS} | settings
    origin = {"config_source": str(file), "audit_of": benchmark}
    config |= {"task": name, "metadata": {**settings["metadata"], **metadata, **origin}}
    return FillerAudit(config) if exchanges_fillers(config) else as_shard_audit(LeakageTask(config), config)


def audit_with_probe(task: Task, probe: str, metadata: Mapping[str, object]) -> LeakageTask:
    """Return the audit of a task by the template that names this probe.

    If several templates do, this package's come before other packages', then short suffixes before long ones, since
    variants of a method have longer suffixes than the method. Raises ValueError if no template names the probe.
    """
    shortest_first = list(reversed(suffixes()))
    ours = [suffix for suffix in shortest_first if templates()[suffix].parent == task_configs_path()]
    for suffix in (*ours, *shortest_first):
        if template_settings(suffix).get("metadata", {}).get("probe") == probe:
            return audit_task(task, suffix, metadata)
    raise ValueError(f"no audit uses the probe {probe!r}; choose the probe of one of: {', '.join(suffixes())}")


def _seal_group(prefix: str, metadata: Mapping[str, object], build: Callable[[str], Any]) -> LeakageGroup:
    """Return the group of all audits that the seal named in `metadata` makes possible.

    prefix: the name of the audited task and a separator, empty for a tag
    build: returns the audit of a suffix

    Raises ValueError if `metadata` names no seal.
    """
    if metadata.get(SEAL_KEY) is None:
        raise ValueError(no_seal(f"{prefix}{SEAL_AUDIT}"))
    seal = seal_in(metadata[SEAL_KEY])
    left_out = {FIRST_AUDIT: "its texts have no options"} if seal.is_of_texts else {FILLER_AUDIT: "it has options"}
    if not any(len(question.wordings) > 1 for question in seal.questions):
        left_out[WORDING_AUDIT] = "its author gave no other wordings"
    audits: list[LeakageTask | LeakageGroup] = []
    for part in PARTS_OF_SEAL:
        if part in left_out:
            logger.info("%s%s is left out: %s", prefix, part, left_out[part])
            continue
        built = build(part)
        audits += built if isinstance(built, list) else [built]
    return _group(f"{prefix}{SEAL_AUDIT}", audits)


def as_shard_audit(audit: LeakageTask, config: Config) -> LeakageTask:
    """Return the audit of shards of `audit`'s questions if its probe tests shards, else `audit` itself.

    config: the settings with which `audit` was built
    """
    if audit.probe.of_shards(()) is None:  # a probe of single questions
        return audit
    if audit.seal is not None:
        config = config | {"metadata": {**SEALED_SHARDS, **config["metadata"]}}
    return ShardAudit(audit, config)


def audits_shards(suffix: str) -> bool:
    """Return whether an audit tests shards of neighbouring questions instead of single questions."""
    return probes.get(template_settings(suffix)["metadata"]["probe"])().of_shards(()) is not None


def exchanges_fillers(config: Config) -> bool:
    """Return whether the probe that a configuration names exchanges fillers between rows."""
    return probes.get(config["metadata"]["probe"]).exchanges_fillers


def template_settings(suffix: str) -> Config:
    """Return the settings of an audit's template, without the class that lm_eval would build from the YAML."""
    return task_settings(templates()[suffix]) | {"class": None}


def refuse_data_files_of_group(name: str, built: object, metadata: Mapping[str, object]) -> None:
    """Raise RefusedAudit if `metadata` names a file of questions for a group in which lm_eval lists several audits.

    name: of the group
    built: what lm_eval built; anything but a group passes
    """
    if isinstance(built, Group):
        n_audits = sum(isinstance(task, LeakageTask) for task in built.get_all_tasks())
        _refuse_data_files(name, n_audits, metadata, FIRST_AUDIT)


def _refuse_data_files(name: str, n_tasks: int, metadata: Mapping[str, object], suffix: str) -> None:
    """Raise RefusedAudit if `metadata` names a file of questions for several tasks, each of which would audit it."""
    if n_tasks > 1 and "data_files" in metadata:
        raise RefusedAudit(
            f"data_files is {metadata['data_files']!r}, but {name} has {n_tasks} tasks, each of which would "
            f"audit that one file; name one of the tasks, or fresh_{suffix}, which audits plain questions"
        )
