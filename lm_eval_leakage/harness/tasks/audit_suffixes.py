"""Recognises audit names, `<task>_<suffix>`.

Plain `lm_eval` with the hook calls this for every task that it runs, so nothing slow may be imported here.
"""

from __future__ import annotations

from functools import cache

from lm_eval_leakage.harness.tasks.templates import probe_named_by, templates

FIRST_AUDIT = "leakage_perm"  # the audit that has a YAML of its own for each of our benchmarks
SEAL_AUDIT = "leakage_seal"  # not a template: the group of these audits, for sealed benchmarks
SEAL_KEY = "seal"  # of `--metadata`
WORDING_AUDIT = "leakage_wording"
PARTS_OF_SEAL = (WORDING_AUDIT, FIRST_AUDIT, "leakage_shared_likelihood")


@cache
def suffixes() -> tuple[str, ...]:
    """Suffixes of all audits, longest first."""
    return tuple(sorted(templates(), key=lambda name: (-len(name), name)))


def split_name(name: str) -> tuple[str, str] | None:
    """`arc_easy_leakage_perm` as `arc_easy` and `leakage_perm`; None if it is not an audit's name."""
    for suffix in (*suffixes(), SEAL_AUDIT):
        if name.endswith(f"_{suffix}"):
            return name.removesuffix(f"_{suffix}"), suffix
    return None


def parts_of(suffix: str) -> tuple[str, ...]:
    """The suffixes of the audits that a suffix denotes: itself, or those of a group of audits."""
    return PARTS_OF_SEAL if suffix == SEAL_AUDIT else (suffix,)


def names_an_audit(task: object) -> bool:
    """Whether a name denotes an audit of ours, or a group of audits."""
    return isinstance(task, str) and (split_name(task) is not None or task in suffixes())


def needs_seal(suffix: str) -> bool:
    """Whether an audit, or part of it, asks about what only a private folder has."""
    from lm_eval_leakage.probes import probes  # which may import detector packages

    return any(probes.get(probe_named_by(part)).needs_seal for part in parts_of(suffix))


def no_seal(what: str) -> str:
    """Why something that needs a seal cannot run without one, as a sentence."""
    return (
        f"{what} asks about what only the author of a sealed benchmark has; name the private folder: "
        f"--metadata {SEAL_KEY}=PRIVATE_FOLDER"
    )
