"""Finds the audit templates, files `_<suffix>_yaml`, of this package and of installed detector packages; recognises
audit names, `<task>_<suffix>`.

Plain `lm_eval` with the hook calls this for every task that it runs, so nothing slow may be imported here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.registry import detector_packages
from lm_eval_leakage.texts import from_yaml

logger = logging.getLogger(__name__)
# So that no ordinary task has a name that looks like an audit's.
SUFFIX = re.compile(r"leakage_[a-z0-9_]+")
FIRST_AUDIT = "leakage_perm"  # the audit that has a YAML of its own for each of our benchmarks
FILLER_AUDIT = "leakage_fillers"  # of rows with and without options
SEAL_AUDIT = "leakage_seal"  # not a template: the group of these audits, for sealed benchmarks
SEAL_KEY = "seal"  # of `--metadata`
WORDING_AUDIT = "leakage_wording"
PARTS_OF_SEAL = (WORDING_AUDIT, FIRST_AUDIT, FILLER_AUDIT, "leakage_shared_likelihood")


@cache
def templates() -> dict[str, Path]:
    """Return the template files by suffix. Imports no detector package, since every run of the harness looks names
    up."""
    files = dict(_in(task_configs_path()))
    for package in detector_packages():
        for suffix, file in _in(package.folder):
            if (why := _refusal(suffix, file, files)) is None:
                files[suffix] = file
            else:
                logger.warning("%s is left out: %s", file, why)
    return files


def probe_named_by(suffix: str) -> str:
    """Return the probe of an audit, read from its template without lm_eval's loader, whose import takes seconds."""
    return _probe_named_in(templates()[suffix])


def _probe_named_in(template: Path) -> str:
    plain: Any = from_yaml(template.read_text(encoding="utf-8").replace("!function", ""))
    metadata = plain.get("metadata") or {}
    if "probe" in metadata or "include" not in plain:
        return str(metadata.get("probe"))
    return _probe_named_in(template.parent / plain["include"])


def _in(folder: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.glob("_*_yaml")):
        yield file.name[1:].removesuffix("_yaml"), file


def _refusal(suffix: str, file: Path, taken: dict[str, Path]) -> str | None:
    """Return why a template of another distribution cannot be used; None if it can."""
    if suffix in taken:
        return f"{taken[suffix]} already describes the audit {suffix!r}; give this file another name"
    if not SUFFIX.fullmatch(suffix):
        return f"the audit would be called {suffix!r}; name the file _leakage_<name>_yaml, in lower case"
    # imported here, since plain lm_eval with the hook looks up names in every run
    from lm_eval_leakage.harness.seams.tasks import task_settings

    try:
        shape = task_settings(file)
    except Exception as error:  # from the YAML parser or from what the YAML includes
        return f"it cannot be read ({error!r})"
    if not isinstance(shape.get("metadata"), dict) or "probe" not in shape["metadata"] or not shape.get("filter_list"):
        return "it must name the probe in `metadata` and the statistics in `filter_list`"
    return None


@cache
def suffixes() -> tuple[str, ...]:
    """Suffixes of all audits, longest first."""
    return tuple(sorted(templates(), key=lambda name: (-len(name), name)))


def split_name(name: str) -> tuple[str, str] | None:
    """Return a name such as `arc_easy_leakage_perm` as `arc_easy` and `leakage_perm`; None if it is not an audit's
    name."""
    for suffix in (*suffixes(), SEAL_AUDIT):
        if name.endswith(f"_{suffix}"):
            return name.removesuffix(f"_{suffix}"), suffix
    return None


def suffix_parts(suffix: str) -> tuple[str, ...]:
    """Return the suffixes of the audits that a suffix denotes: itself, or those of a group of audits."""
    return PARTS_OF_SEAL if suffix == SEAL_AUDIT else (suffix,)


def names_an_audit(task: object) -> bool:
    """Return whether a name denotes an audit of ours, or a group of audits."""
    return isinstance(task, str) and (split_name(task) is not None or task in suffixes())


def needs_seal(suffix: str) -> bool:
    """Return whether an audit, or part of it, asks about what only a private folder has."""
    from lm_eval_leakage.detectors import probes  # which may import detector packages

    return any(probes.get(probe_named_by(part)).needs_seal for part in suffix_parts(suffix))


def no_seal(what: str) -> str:
    """Return why something that needs a seal cannot run without one, as a sentence."""
    return (
        f"{what} needs what only the author of a sealed benchmark has; name the private folder: "
        f"--metadata {SEAL_KEY}=PRIVATE_FOLDER"
    )
