"""A group of audits: its rows are computed over all questions of its members, each counted once."""

from __future__ import annotations

from typing import Any

from lm_eval.api.group import Group
from lm_eval.config.group import AggMetricConfig

from lm_eval_leakage.harness.table.aggregations import RowValue, pooled
from lm_eval_leakage.harness.table.declared_rows import known_rows


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
