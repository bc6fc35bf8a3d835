"""What `task_index` and `task_manager` must be told of audits, by those who know what an audit is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class AuditsByName(Protocol):
    """Names such as `arc_easy_leakage_perm`, and the tasks that they stand for."""

    def split_name(self, name: str) -> tuple[str, str] | None:
        """The audited task and the audit; None where the name is not an audit's."""

    def described_as(self, base: str) -> tuple[str, ...]:
        """The names under which the data of `base` may stand in the index, the best first."""

    def check_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Called before an audit is made."""

    def check_group(self, name: str, tasks: list[Any], metadata: Mapping[str, Any]) -> None:
        """Called with the tasks of a group of lm_eval; raises ValueError where they cannot be asked together."""

    def of_config(self, config: dict[str, Any], name: str, suffix: str, metadata: Mapping[str, Any]) -> Any:
        """Another audit of the data that a YAML of ours describes."""

    def of_task(self, built: Any, suffix: str, metadata: Mapping[str, Any]) -> Any:
        """The audit of a task, a group, or a tag's tasks."""
