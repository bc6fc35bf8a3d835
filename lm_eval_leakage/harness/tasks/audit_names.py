"""The names of audits, for the task managers of the harness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval_leakage.harness.patches.task_manager import find_tasks
from lm_eval_leakage.harness.tasks.audit import FIRST_AUDIT, audit_like, audits_of, split_name
from lm_eval_leakage.harness.tasks.audited_rows import refuse_one_file_for_many
from lm_eval_leakage.harness.tasks.known_keys import warn_of_misspelled_keys
from lm_eval_leakage.harness.tasks.task import LeakageTask


class AuditsOfTasks:
    """`AuditsByName` for the audits that `task_configs` describes."""

    def split_name(self, name: str) -> tuple[str, str] | None:
        return split_name(name)

    def described_as(self, base: str) -> tuple[str, ...]:
        """Data of ours stand in the index under the name of their first audit."""
        return base, f"{base}_{FIRST_AUDIT}"

    def check_metadata(self, metadata: Mapping[str, Any]) -> None:
        warn_of_misspelled_keys(frozenset(metadata))

    def check_group(self, name: str, tasks: list[Any], metadata: Mapping[str, Any]) -> None:
        n_audits = sum(isinstance(task, LeakageTask) for task in tasks)
        refuse_one_file_for_many(name, n_audits, metadata, FIRST_AUDIT)

    def of_config(self, config: dict[str, Any], name: str, suffix: str, metadata: Mapping[str, Any]) -> Any:
        return audit_like(config, name, suffix, metadata)

    def of_task(self, built: Any, suffix: str, metadata: Mapping[str, Any]) -> Any:
        return audits_of(built, suffix, metadata)


def find_audits(task_manager_class: type) -> None:
    """Have every task manager know our tasks, and the audits of whatever it knows."""
    find_tasks(task_manager_class, AuditsOfTasks)
