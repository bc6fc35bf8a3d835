"""Resolves audit names for lm_eval's task managers; the code that builds audits is imported only when one is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval_leakage.harness.seams.task_manager import find_tasks
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT, split_name


class AuditsOfTasks:
    """Implements `AuditsByName` for the audits described by templates."""

    def split_name(self, name: str) -> tuple[str, str] | None:
        return split_name(name)

    def described_as(self, base: str) -> tuple[str, ...]:
        """Our own data sets are in the index under the name of their first audit."""
        return base, f"{base}_{FIRST_AUDIT}"

    def check_metadata(self, metadata: Mapping[str, Any]) -> None:
        from lm_eval_leakage.harness.tasks.metadata import warn_of_misspelled_keys

        warn_of_misspelled_keys(frozenset(metadata))

    def check_group(self, name: str, tasks: list[Any], metadata: Mapping[str, Any]) -> None:
        if "data_files" not in metadata:
            return
        from lm_eval_leakage.harness.tasks.data import refuse_one_file_for_many
        from lm_eval_leakage.harness.tasks.task import LeakageTask

        n_audits = sum(isinstance(task, LeakageTask) for task in tasks)
        refuse_one_file_for_many(name, n_audits, metadata, FIRST_AUDIT)

    def of_config(self, config: dict[str, Any], name: str, suffix: str, metadata: Mapping[str, Any]) -> Any:
        from lm_eval_leakage.harness.tasks.audit import audit_like

        return audit_like(config, name, suffix, metadata)

    def of_task(self, built: Any, suffix: str, metadata: Mapping[str, Any]) -> Any:
        from lm_eval_leakage.harness.tasks.audit import build_audits

        return build_audits(built, suffix, metadata)


def know_audits(manager: Any) -> None:
    """Makes one task manager find the audits of everything that it knows."""
    from lm_eval_leakage.harness.seams.tasks import know_audits as extend

    extend(manager, AuditsOfTasks())


def find_audits(task_manager_class: type) -> None:
    """Makes every task manager find our tasks, and audits of all tasks that it knows."""
    find_tasks(task_manager_class, know_audits)
