"""Names of audits, `<task>_<suffix>`, told from other names without anything else of this package.

Plain `lm_eval` with the hook asks this of every task that it runs; nothing that takes long to import belongs here.
"""

from __future__ import annotations

from functools import cache

from lm_eval_leakage.harness.tasks.templates import templates

FIRST_AUDIT = "leakage_perm"  # the one that our YAMLs describe for each benchmark


@cache
def suffixes() -> tuple[str, ...]:
    """The audits that any task can have, longest name first."""
    return tuple(sorted(templates(), key=lambda name: (-len(name), name)))


def split_name(name: str) -> tuple[str, str] | None:
    """`arc_easy_leakage_perm` as `arc_easy` and `leakage_perm`; None where the name is not an audit's."""
    for suffix in suffixes():
        if name.endswith(f"_{suffix}"):
            return name.removesuffix(f"_{suffix}"), suffix
    return None


def names_an_audit(task: object) -> bool:
    """Whether a name stands for an audit of ours, or for a group of them."""
    return isinstance(task, str) and (split_name(task) is not None or task in suffixes())
