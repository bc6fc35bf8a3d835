"""Recognises audit names, `<task>_<suffix>`.

Plain `lm_eval` with the hook calls this for every task that it runs, so nothing slow may be imported here.
"""

from __future__ import annotations

from functools import cache

from lm_eval_leakage.harness.tasks.templates import templates

FIRST_AUDIT = "leakage_perm"  # the audit that has a YAML of its own for each of our benchmarks


@cache
def suffixes() -> tuple[str, ...]:
    """Suffixes of all audits, longest first."""
    return tuple(sorted(templates(), key=lambda name: (-len(name), name)))


def split_name(name: str) -> tuple[str, str] | None:
    """`arc_easy_leakage_perm` as `arc_easy` and `leakage_perm`; None if it is not an audit's name."""
    for suffix in suffixes():
        if name.endswith(f"_{suffix}"):
            return name.removesuffix(f"_{suffix}"), suffix
    return None


def names_an_audit(task: object) -> bool:
    """Whether a name denotes an audit of ours, or a group of audits."""
    return isinstance(task, str) and (split_name(task) is not None or task in suffixes())
