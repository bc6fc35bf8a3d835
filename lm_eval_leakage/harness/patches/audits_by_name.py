"""Protocol by which `task_index` and `task_manager` resolve the names of audits and build them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class AuditsByName(Protocol):
    """Resolves names such as `arc_easy_leakage_perm`, and builds the tasks that they denote."""

    def split_name(self, name: str) -> tuple[str, str] | None:
        """The audited task and the audit; None if it is not an audit's name."""

    def described_as(self, base: str) -> tuple[str, ...]:
        """The names under which the data of `base` may be in the index, in order of preference."""

    def check_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Called before an audit is built."""

    def check_group(self, name: str, tasks: list[Any], metadata: Mapping[str, Any]) -> None:
        """Called with the tasks of a group of lm_eval; raises ValueError if they cannot run together."""

    def of_config(self, config: dict[str, Any], name: str, suffix: str, metadata: Mapping[str, Any]) -> Any:
        """Another audit of the data in one of our YAMLs."""

    def of_task(self, built: Any, suffix: str, metadata: Mapping[str, Any]) -> Any:
        """The audit of a task, a group, or the tasks of a tag."""
