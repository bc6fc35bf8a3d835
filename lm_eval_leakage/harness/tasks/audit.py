"""A group of audits: its rows are computed over all questions of its members, each counted once.

Builds the leakage audit of any lm_eval task or group: its questions, read from the prompts that it renders.

`<task>_<suffix>` is the audit of `<task>` that the template `_<suffix>_yaml` describes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.task import ConfigurableTask, Task
from lm_eval.config.group import AggMetricConfig

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.seams.tasks import task_settings
from lm_eval_leakage.harness.table import RowValue, known_rows, pooled
from lm_eval_leakage.harness.tasks.base_task import ROWS_TRIED, constant_answer, refusal
from lm_eval_leakage.harness.tasks.data import (
    KeptDocs,
    RefusedAudit,
    refuse_one_file_for_many,
    rows_to_audit,
)
from lm_eval_leakage.harness.tasks.sealed import seal_in
from lm_eval_leakage.harness.tasks.shards import of_shards
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.harness.tasks.templates import (
    PARTS_OF_SEAL,
    SEAL_AUDIT,
    SEAL_KEY,
    WORDING_AUDIT,
    no_seal,
    suffixes,
    templates,
)


class LeakageGroup(Group):  # type: ignore[misc]
    """Rows over all questions of all members: rates weight a member by its number of tested questions, and p-values
    are computed over all questions. (The harness's own groups only take means, and a mean of p-values is
    meaningless.)"""

    def __init__(self, name: str) -> None:
        names = [name for name in known_rows() if not name.endswith("_stderr")]
        super().__init__(name, aggregate_metric_list=[AggMetricConfig(metric=metric) for metric in names])

    def aggregate(self, task_metrics: dict[str, dict[str, Any]]) -> dict[str, Any]:
        members = [task_metrics[task.task_name] for task in self.get_all_tasks() if task.task_name in task_metrics]
        keys = dict.fromkeys(key for member in members for key in member if isinstance(member[key], RowValue))
        together = {key: pooled([member[key] for member in members if key in member]) for key in keys}
        sizes = [member.get("sample_len", 0) for member in members]
        return {"alias": self.alias or self.name, "name": self.name, "sample_len": sum(sizes), **together}


logger = logging.getLogger(__name__)

Config = dict[str, Any]
Built = LeakageTask | LeakageGroup | list[LeakageTask]
DATA_KEYS = ("dataset_path", "dataset_name", "dataset_kwargs", "test_split", "validation_split", "process_docs")
ORDINALS = ("first", "second", "third")


class TaskAudit(LeakageTask):
    """Audits `base`'s questions, in `base`'s own prompts, with the probe and statistics of `config`."""

    def __init__(self, base: ConfigurableTask, config: Config) -> None:
        self.base = base
        super().__init__(config)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        audited = rows_to_audit(self.base, self.config.metadata or {})
        docs = KeptDocs(audited.rows, audited.read)
        if not len(docs):
            raise RefusedAudit(f"{self.base.config.task} has no questions")
        if reason := refusal([doc.reading for doc in islice(docs, ROWS_TRIED)], audited.in_data):
            raise RefusedAudit(reason)
        if (place := constant_answer([doc.reading for doc in islice(docs, ROWS_TRIED)])) is not None:
            logger.warning(
                "%s: the right option is always the %s published one, so a model that knows the answers may prefer "
                "the published order without having seen it",
                self.config.task,
                ORDINALS[place] if place < len(ORDINALS) else f"{place + 1}th",
            )
        self.dataset = {self.config.test_split: docs}


def audit_with_probe(task: Task, probe: str, metadata: Mapping[str, object]) -> LeakageTask:
    """The audit of a task with the default variant of the method that uses this probe."""
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
    return of_shards(TaskAudit(base, config), config)


def audit_like(static: Config, name: str, suffix: str, metadata: Mapping[str, object]) -> LeakageTask | LeakageGroup:
    """The audit `suffix` of the data set in one of our YAMLs, which describes another audit of it."""
    if suffix == SEAL_AUDIT:
        base = name.removesuffix(suffix)
        return _seal_group(base, metadata, lambda part: audit_like(static, base + part, part, metadata))
    config = {key: value for key, value in static.items() if key in DATA_KEYS}
    source = {"config_source": static["metadata"]["config_source"], "audit_of": name.removesuffix(f"_{suffix}")}
    shape = template(suffix)
    config |= shape | {"task": name, "metadata": {**shape["metadata"], **metadata, **source}}
    return of_shards(LeakageTask(config), config)


def build_audits(built: Task | Group | Sequence[Task], suffix: str, metadata: Mapping[str, object]) -> Built:
    """The audits of what an lm_eval name denotes: a task, a group, or the tasks of a tag.

    A member that cannot be audited is left out, and the log says why; raises RefusedAudit if none can be audited.
    """
    if suffix == SEAL_AUDIT:
        base = "" if not isinstance(built, (Task, Group)) else f"{_name_of(built)}_"
        return _seal_group(base, metadata, lambda part: build_audits(built, part, metadata))
    if isinstance(built, Task):
        return audit_task(built, suffix, metadata)
    if isinstance(built, Group):
        refuse_one_file_for_many(built.name, len(built.get_all_tasks()), metadata, suffix)
        return _audit_group(built, suffix, metadata)
    refuse_one_file_for_many("the tag", len(built), metadata, suffix)
    members = [audit for task in built if (audit := _or_refused(task, suffix, metadata)) is not None]
    if not members:
        raise RefusedAudit("none of its tasks can be audited; the log says why for each")
    return [member for member in members if isinstance(member, LeakageTask)]


def _audit_group(group: Group, suffix: str, metadata: Mapping[str, object]) -> LeakageGroup:
    audited = LeakageGroup(f"{group.name}_{suffix}")
    metadata = {"tasks_of_group": len(group.get_all_tasks()), **metadata}
    for member in group:
        audit = _or_refused(member, suffix, metadata)
        if audit is not None:
            audited.add(audit)
    if not len(audited):
        raise RefusedAudit(f"none of the {len(group)} members of {group.name} can be audited; the log says why")
    return audited


def _seal_group(base: str, metadata: Mapping[str, object], build: Callable[[str], Built]) -> LeakageGroup:
    """All audits that a seal allows, under one name.

    base: the audited name with a separator, empty for a tag
    build: makes the audit with a suffix
    """
    if metadata.get(SEAL_KEY) is None:
        raise ValueError(no_seal(f"{base}{SEAL_AUDIT}"))
    has_wordings = any(len(question.wordings) > 1 for question in seal_in(metadata[SEAL_KEY]).questions)
    audited = LeakageGroup(f"{base}{SEAL_AUDIT}")
    for part in PARTS_OF_SEAL:
        if part == WORDING_AUDIT and not has_wordings:
            logger.info("%s%s is left out: its author gave no other wordings", base, part)
            continue
        built = build(part)
        for audit in built if isinstance(built, list) else [built]:
            audited.add(audit)
    return audited


def _name_of(built: Task | Group) -> str:
    return str(built.name if isinstance(built, Group) else built.config.task)


def _or_refused(
    member: Task | Group, suffix: str, metadata: Mapping[str, object]
) -> LeakageTask | LeakageGroup | None:
    try:
        audit = build_audits(member, suffix, metadata)
    except RefusedAudit as error:
        logger.warning("%s is not audited: %s", _name_of(member), error)
        return None
    assert not isinstance(audit, list)
    return audit


def template(suffix: str) -> Config:
    return task_settings(templates()[suffix]) | {"class": None}
